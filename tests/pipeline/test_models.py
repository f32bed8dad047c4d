"""The stages with a model: real handlers and clients, real Redis and HTTP; only the model itself is scripted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from redis.asyncio import Redis

from services.generator.handler import generate
from services.generator.settings import AnsweringPolicy
from services.grader import prompts
from services.grader.handler import grade
from services.grader.settings import GraderSettings
from services.rewriter.handler import rewrite
from services.rewriter.settings import RewritingPolicy
from services.websearch.handler import search_web
from shared.clients.chat import open_chat
from shared.clients.judge import open_judge
from shared.contracts import Answered, Grade, Passage, Retrieve
from shared.runtime.keys import Keys
from shared.runtime.stage import Stage
from shared.settings import JudgeSettings, LlmSettings
from tests.support import bus
from tests.support.bus import ask, outcome, residue, running
from tests.support.mock_openai import Answer, MockOpenAI, Request
from tests.support.wait import wait_until

TEXT = "An unused tent may be returned within 45 days. The shop pays the postage inside France. Boots have 14 days."


def passages(count: int) -> tuple[Passage, ...]:
    return tuple(
        Passage(
            passage_id=f"p{number}",
            document_id="returns.md",
            title="Returns",
            uri="returns.md",
            text=f"{TEXT} Note {number}.",
            language="en",
            score=1 / (number + 1),
            similarity=0.9,
        )
        for number in range(count)
    )


def model(request: Request) -> Answer:
    """A well-behaved model, by what it is asked."""
    asked = request["messages"][0]["content"]
    if "prepare searches" in asked:
        return Answer('{"route": "factual", "queries": ["tent return period", "return postage"]}')
    if request.get("response_format") or "score" in asked:
        return Answer('{"score": 0.9, "verdict": "relevant", "reason": "states the period"}')
    return Answer("You have 45 days [1]. The shop pays the postage [7].")


@asynccontextmanager
async def stages(mock: MockOpenAI, *, count: int = 3, concurrency: int = 16) -> AsyncIterator[list[Stage]]:
    """All six stages; the retriever's search is replaced by `count` passages."""
    llm = LlmSettings(base_url=mock.base_url, model="mock")
    chat = open_chat(llm)
    judge = open_judge(JudgeSettings(concurrency=concurrency), llm, None, prompts=prompts)

    async def retrieve(msg: Retrieve) -> Grade:
        return Grade(header=msg.header, asked=msg.asked, route=msg.route, queries=msg.queries, passages=passages(count))

    yield [
        bus.gateway(),
        bus.stage(rewrite, chat=chat, policy=RewritingPolicy()),
        bus.stage(retrieve),
        bus.stage(grade, judge=judge, policy=GraderSettings().policy),
        bus.stage(search_web, web=None, top_k=5),
        bus.stage(generate, chat=chat, embedder=None, policy=AnsweringPolicy()),
    ]
    await judge.aclose()
    if chat is not None:
        await chat.aclose()


async def answered_by(mock: MockOpenAI, redis: Redis, keys: Keys, redis_url: str, question: str) -> Answered:
    async with stages(mock) as everyone, running(everyone, redis_url, keys):
        job_id = await ask(redis, keys, question, deadline_s=20)
        found = await wait_until(lambda: outcome(redis, keys, job_id), within_s=25)
    assert await residue(redis, keys) == {}
    return found


async def test_a_model_rewrites_judges_and_answers(redis: Redis, keys: Keys, redis_url: str) -> None:
    async with MockOpenAI(script=model) as mock:
        found = await answered_by(mock, redis, keys, redis_url, "How long may I return a tent?")
    assert found.status == "answered"
    assert "45 days [1]" in found.answer
    assert "[7]" not in found.answer  # the model invented it
    assert found.answer.count("[") == len(found.citations) == 1
    assert found.citations[0].quote in TEXT
    assert found.writer == "mock"
    assert {each.stage for each in found.usage} == {"rewriter", "grader", "generator"}
    assert sum(each.calls for each in found.usage if each.stage == "grader") == 3


async def test_a_model_that_is_down_degrades_every_stage_and_fails_none(
    redis: Redis, keys: Keys, redis_url: str
) -> None:
    async with MockOpenAI(script=lambda request: Answer.fault(503)) as mock:
        found = await answered_by(mock, redis, keys, redis_url, "How long may I return a tent?")
    assert found.status == "citations"
    assert found.citations
    marks = " / ".join(found.degraded)
    for expected in ("rewritten by rules", "judge unavailable: 3 of 3", "generator unavailable"):
        assert expected in marks


async def test_a_wrong_key_is_named_once_and_for_all(redis: Redis, keys: Keys, redis_url: str) -> None:
    async with MockOpenAI(script=lambda request: Answer.fault(401, "bad key")) as mock:
        found = await answered_by(mock, redis, keys, redis_url, "How long may I return a tent?")
    assert found.status == "citations"
    assert "CAIRN_LLM_API_KEY" in " ".join(found.degraded)


@pytest.mark.parametrize(("concurrency", "most"), [(16, 1.6), (5, 2.7)])
async def test_the_grading_step_takes_few_calls_time(
    concurrency: int, most: float, redis: Redis, keys: Keys, redis_url: str
) -> None:
    """Ten passages, a judge of 400 ms; other work on the machine only ever adds time, so the fastest of five counts."""
    latency_s = 0.4
    async with MockOpenAI(script=model, latency_s=latency_s) as mock:
        async with stages(mock, count=10, concurrency=concurrency) as everyone, running(everyone, redis_url, keys):
            seconds = []
            for number in range(5):
                await ask(redis, keys, "How long may I return a tent?", job_id=f"j{number}")
                found = await wait_until(partial(outcome, redis, keys, f"j{number}"))
                seconds += [timing.work_s for timing in found.timings if timing.stage == "grader"]
        assert mock.most_in_flight <= max(concurrency, 10)
    assert min(seconds) < most * latency_s


async def test_a_deadline_ends_a_model_that_never_answers(redis: Redis, keys: Keys, redis_url: str) -> None:
    async with (
        MockOpenAI(script=model, latency_s=60) as mock,
        stages(mock) as everyone,
        running(everyone, redis_url, keys),
    ):
        job_id = await ask(redis, keys, "How long?", deadline_s=1.5)
        found = await wait_until(lambda: outcome(redis, keys, job_id), within_s=6.5)
    assert found.status in ("timed_out", "citations", "abstained")
    assert len(await bus.terminals(redis, keys, job_id)) == 1
