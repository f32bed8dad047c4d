"""The judge against llama.cpp's own server: somebody else's idea of an OpenAI-compatible endpoint.

The model is too small for its verdicts to matter. What matters is that requests are taken as they are written, replies
read, time kept, and that a call given up is given up by the server, too.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import httpx
import pytest

from services.grader import prompts
from shared.clients.chat import HttpChat
from shared.clients.http import JsonService
from shared.clients.judge import Judge, open_judge
from shared.clients.judge.http import HttpJudge
from shared.clients.status import Endpoint
from shared.contracts import Passage
from shared.settings import JudgeSettings, LlmSettings
from tests.support.llama_server import MISSING, llama_process, weights
from tests.support.wait import wait_until

pytestmark = [
    pytest.mark.skipif(weights() is None, reason=MISSING),
    pytest.mark.xdist_group("llamacpp"),
    pytest.mark.timeout(300),
]

QUESTION = "How many days do I have to return an unused tent?"
LONG = 2_000
"""Tokens that take this model longer than any wait here."""


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with llama_process() as url:
        yield url


def passage(number: int, text: str) -> Passage:
    return Passage(passage_id=f"p{number}", document_id="d", title="Returns", uri="u", text=text)


PASSAGES = [passage(0, "Unused tents can be returned within 45 days."), passage(1, "The shop opens at nine.")]


@asynccontextmanager
async def judging(base_url: str, **settings: Any) -> AsyncIterator[Judge]:
    judge = open_judge(
        JudgeSettings(base_url=base_url, model="smollm2", _env_file=None, **settings),
        LlmSettings(base_url=None, _env_file=None),
        None,
        prompts=prompts,
    )
    try:
        yield judge
    finally:
        await judge.aclose()


async def is_busy(base_url: str) -> bool:
    """Whether the server is at work, as it says itself."""
    async with httpx.AsyncClient(timeout=30) as client:
        slots = (await client.get(base_url.removesuffix("/v1") + "/slots")).json()
    return any(slot["is_processing"] for slot in slots)


async def becomes(base_url: str, busy: bool) -> None:
    async def is_so() -> bool:
        return await is_busy(base_url) is busy

    await wait_until(is_so, within_s=100)


async def test_passages_are_graded_or_ungraded_with_a_reason_and_tokens_are_counted(base_url: str) -> None:
    async with judging(base_url, max_tokens=64) as judge:
        grading = await judge.grade_all(QUESTION, "en", PASSAGES, deadline=time.time() + 240)
    assert not any("unavailable" in mark for mark in grading.degraded), grading
    assert all(grade.reason if grade.score is None else 0 <= grade.score <= 1 for grade in grading.grades)
    assert grading.usage.calls >= len(PASSAGES)
    assert grading.usage.prompt_tokens > 200
    assert not grading.usage.estimated


async def test_the_json_schema_is_taken_at_once_and_the_reply_keeps_to_it(base_url: str) -> None:
    formats: list[str] = []
    replies: list[dict[str, Any]] = []

    async def sent(request: httpx.Request) -> None:
        formats.append(json.loads(request.content)["response_format"]["type"])

    async def received(response: httpx.Response) -> None:
        replies.append(json.loads(await response.aread()))

    async with httpx.AsyncClient(event_hooks={"request": [sent], "response": [received]}) as client:
        service = JsonService(Endpoint(base_url, "CAIRN_JUDGE"), client=client, concurrency=1, timeout_s=200)
        judge = HttpJudge(HttpChat(service, "smollm2"), prompts, max_tokens=200)
        await judge.grade_all(QUESTION, "en", PASSAGES[:1], deadline=time.time() + 240, max_calls=1)
    assert formats == ["json_schema"]
    choice = replies[0]["choices"][0]
    if choice["finish_reason"] == "stop":
        assert list(json.loads(choice["message"]["content"])) == ["reason", "score", "verdict"]
    else:
        assert re.match(r'\s*\{\s*"reason"', choice["message"]["content"])


async def test_a_timeout_ends_in_time_and_the_server_goes_on(base_url: str) -> None:
    async with judging(base_url, max_tokens=LONG) as judge:
        started = time.monotonic()
        grading = await judge.grade_all(QUESTION, "en", PASSAGES, deadline=time.time() + 1.0)
        seconds = time.monotonic() - started
    assert seconds < 2.5  # half of the time to the deadline, and a busy machine's delay
    assert [grade.score for grade in grading.grades] == [None, None]
    assert grading.degraded == ("judge unavailable: 2 of 2 passages ungraded",)
    await becomes(base_url, busy=False)
    async with judging(base_url, max_tokens=16) as judge:
        again = await judge.grade_all(QUESTION, "en", PASSAGES[:1], deadline=time.time() + 240, max_calls=1)
    assert again.usage.calls == 1


async def test_a_call_that_is_cancelled_is_given_up_by_the_server(base_url: str) -> None:
    async with httpx.AsyncClient(timeout=200) as client:
        service = JsonService(Endpoint(base_url, "CAIRN_JUDGE"), client=client, concurrency=1, timeout_s=200)
        chat = HttpChat(service, "smollm2")
        endless = [{"role": "user", "content": "Count from one to a thousand, in words, without a break."}]
        call = asyncio.create_task(chat.complete(endless, max_tokens=LONG, temperature=1.0, timeout_s=200))
        await becomes(base_url, busy=True)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert call.cancelled()
        await becomes(base_url, busy=False)
        short = await chat.complete([{"role": "user", "content": "Say yes."}], max_tokens=4, timeout_s=100)
    assert short.completion_tokens > 0


@asynccontextmanager
async def chatting(base_url: str) -> AsyncIterator[HttpChat]:
    service = JsonService(Endpoint(base_url, "CAIRN_LLM"), concurrency=1, timeout_s=200)
    chat = HttpChat(service, "smollm2")
    try:
        yield chat
    finally:
        await chat.aclose()


async def test_a_stream_is_heard_counted_and_cut_where_it_was_told_to(base_url: str) -> None:
    heard: list[str] = []
    asked = [{"role": "user", "content": "Count from one to twenty, in words."}]
    async with chatting(base_url) as chat:
        said = await chat.complete(asked, max_tokens=24, timeout_s=200, said=heard.append)
    assert len(heard) > 5
    assert all(later.startswith(earlier) for earlier, later in pairwise(heard))
    assert heard[-1] == said.text
    assert (said.finish_reason, said.completion_tokens, said.estimated) == ("length", 24, False)


async def test_a_stream_that_is_given_up_is_given_up_by_the_server(base_url: str) -> None:
    heard: list[str] = []
    endless = [{"role": "user", "content": "Count from one to a thousand, in words, without a break."}]
    async with chatting(base_url) as chat:
        call = asyncio.create_task(
            chat.complete(endless, max_tokens=LONG, temperature=1.0, timeout_s=200, said=heard.append)
        )
        await wait_until(lambda: heard, within_s=100)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await becomes(base_url, busy=False)
