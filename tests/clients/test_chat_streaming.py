"""A reply that is streamed: what is heard of it, and that what comes out is what would have come at once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from shared.errors import InvalidModelReply, ModelUnavailable
from tests.clients.test_chat import ASK, chatting
from tests.support.mock_openai import Answer, MockOpenAI, chunk
from tests.support.wait import wait_until


async def streamed(*answers: Answer, attempts: int = 1, timeout_s: float = 5.0) -> tuple[Any, list[str]]:
    """The completion, and everything that was heard."""
    heard: list[str] = []
    async with MockOpenAI() as mock, chatting(mock, attempts=attempts) as chat:
        mock.next_answers.extend(answers)
        return await chat.complete(ASK, max_tokens=16, timeout_s=timeout_s, said=heard.append), heard


async def test_text_is_heard_as_it_comes_and_counted_at_the_end() -> None:
    said, heard = await streamed(Answer(pieces=("Tents ", "can be ", "returned [1].")))
    assert heard == ["Tents ", "Tents can be ", "Tents can be returned [1]."]
    assert (said.text, said.finish_reason) == ("Tents can be returned [1].", "stop")
    assert (said.prompt_tokens, said.completion_tokens, said.estimated) == (100, 20, False)


async def test_a_stream_that_does_not_count_is_estimated() -> None:
    said, _ = await streamed(Answer("x" * 40, counted=False))
    assert (said.completion_tokens, said.estimated) == (10, True)


@pytest.mark.parametrize(
    "pieces",
    [
        ("<thi", "nk>hm", "m</think>", "Yes."),
        ("<think>a</think>Yes.",),
        ("<|channel|>analysis<|message|>hm", "<|channel|>final<|message|>", "Yes."),
        (" ", "<reasoning>hm</reasoning>", "Yes", "."),
    ],
)
async def test_reasoning_is_never_heard(pieces: tuple[str, ...]) -> None:
    said, heard = await streamed(Answer(pieces=pieces))
    assert said.text == "Yes."
    assert all("Yes.".startswith(each) for each in heard)
    assert heard[-1] == "Yes."


async def test_a_template_that_swallows_the_opening_tag_is_learnt() -> None:
    async with (
        MockOpenAI(script=lambda _: Answer(pieces=("let me ", "see</think>", "Yes."))) as mock,
        chatting(mock) as chat,
    ):
        for _ in range(2):
            heard: list[str] = []
            said = await chat.complete(ASK, max_tokens=16, timeout_s=5, said=heard.append)
            assert said.text == "Yes."
    assert heard == ["Yes."]


async def test_a_stream_that_breaks_off_is_tried_again_from_its_beginning() -> None:
    said, heard = await streamed(Answer(pieces=("Tents", " may"), breaks=True), Answer(pieces=("No",)), attempts=2)
    assert said.text == "No"
    assert heard == ["Tents", "Tents may", "No"]


async def test_a_stream_that_breaks_off_for_good_is_unavailable() -> None:
    with pytest.raises(ModelUnavailable, match="in the middle"):
        await streamed(Answer(pieces=("Tents",), breaks=True))


async def test_an_error_in_the_stream_is_unavailable_and_garbage_unreadable() -> None:
    def sse(text: str) -> Answer:
        return Answer(raw=text.encode(), headers={"Content-Type": "text/event-stream"})

    with pytest.raises(ModelUnavailable, match="overloaded"):
        await streamed(sse(f"data: {json.dumps(chunk('a'))}\n\ndata: {json.dumps({'error': 'overloaded'})}\n\n"))
    with pytest.raises(InvalidModelReply, match="not JSON"):
        await streamed(sse("data: {oops\n\n"))
    with pytest.raises(ModelUnavailable, match="in the middle"):
        await streamed(sse(""))


async def test_a_silent_stream_ends_in_time() -> None:
    with pytest.raises(ModelUnavailable, match="within"):
        await streamed(Answer(pieces=("a", "b", "c"), pause_s=30), timeout_s=0.3)


async def test_a_server_that_does_not_stream_is_read_as_it_answers() -> None:
    body = {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}
    said, heard = await streamed(Answer(raw=json.dumps(body).encode()))
    assert (said.text, heard) == ("whole", [])


async def test_stream_options_that_are_refused_are_left_out() -> None:
    def old(request: dict[str, Any]) -> Answer:
        return Answer.fault(400, "unknown field stream_options") if "stream_options" in request else Answer("fine")

    async with MockOpenAI(script=old) as mock, chatting(mock) as chat:
        for _ in range(2):
            assert (await chat.complete(ASK, max_tokens=16, timeout_s=5, said=lambda _: None)).text == "fine"
    assert len(mock.requests) == 3


async def test_cancelling_closes_the_stream() -> None:
    heard: list[str] = []
    async with MockOpenAI() as mock, chatting(mock) as chat:
        mock.next_answers.append(Answer(pieces=("a",) * 100, pause_s=5))
        call = asyncio.create_task(chat.complete(ASK, max_tokens=16, timeout_s=60, said=heard.append))
        await wait_until(lambda: heard)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await wait_until(lambda: mock.streams_left == 1, within_s=2)
        assert mock.streams_open == 0
