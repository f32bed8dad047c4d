"""The chat client against a real HTTP server on loopback."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from shared.clients.breaker import BREAKER_OPEN, CircuitBreaker, RetryBudget
from shared.clients.chat import (
    ChatModel,
    Completion,
    HttpChat,
    NoCompletion,
    ReplySchema,
    completion_or_reason,
    open_chat,
    read_completion,
)
from shared.clients.hedging import Hedge
from shared.clients.http import JsonService
from shared.clients.status import Endpoint, RequestRefused, retry_after_s, sort_status
from shared.errors import InvalidModelReply, Misconfigured, ModelUnavailable, SearchUnavailable
from shared.settings import FallbackModel, LlmSettings
from tests.support.mock_openai import Answer, MockOpenAI, completion

ASK = [{"role": "user", "content": "Why?"}]


@asynccontextmanager
async def chatting(mock: MockOpenAI, **options: Any) -> AsyncIterator[HttpChat]:
    endpoint = Endpoint(mock.base_url, "CAIRN_LLM", SecretStr("sk-secret"))
    chat = HttpChat(JsonService(endpoint, **{"concurrency": 8, "timeout_s": 5.0, "attempts": 1, **options}), "m-1")
    try:
        yield chat
    finally:
        await chat.aclose()


async def say(chat: ChatModel, timeout_s: float = 5.0) -> Completion:
    return await chat.complete(ASK, max_tokens=16, timeout_s=timeout_s)


async def test_asks_as_openai_clients_do() -> None:
    schema = {"type": "object", "properties": {"why": {"type": "string"}}}
    async with MockOpenAI() as mock, chatting(mock) as chat:
        said = await chat.complete(ASK, max_tokens=16, schema=ReplySchema("why", schema), timeout_s=5)
    assert (said.prompt_tokens, said.completion_tokens, said.estimated, said.finish_reason) == (100, 20, False, "stop")
    assert mock.headers[0]["authorization"] == "Bearer sk-secret"
    assert mock.requests == [
        {
            "model": "m-1",
            "messages": ASK,
            "max_tokens": 16,
            "temperature": 0.0,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "why", "strict": True, "schema": schema},
            },
        }
    ]


async def test_settings_without_an_address_mean_no_model() -> None:
    assert open_chat(LlmSettings(base_url=None, _env_file=None)) is None


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (Answer.fault(401, "bad key sk-secret"), Misconfigured, "CAIRN_LLM_API_KEY"),
        (Answer.fault(403), Misconfigured, "CAIRN_LLM_API_KEY"),
        (Answer.fault(404, "The model `m-1` does not exist"), Misconfigured, "CAIRN_LLM_MODEL"),
        (Answer.fault(404, "page not found"), Misconfigured, "CAIRN_LLM_BASE_URL"),
        (Answer.fault(400, "m-1 is wrong", code="model_not_found"), Misconfigured, "CAIRN_LLM_MODEL"),
        (Answer.fault(429, "pay first", code="insufficient_quota"), Misconfigured, "CAIRN_LLM_API_KEY"),
        (Answer.fault(301), Misconfigured, "CAIRN_LLM_BASE_URL"),
        (Answer.fault(400, "context too long"), RequestRefused, "context too long"),
        (Answer.fault(429), ModelUnavailable, "429"),
        (Answer.fault(408), ModelUnavailable, "408"),
        (Answer.fault(500), ModelUnavailable, "500"),
        (Answer.fault(503), ModelUnavailable, "503"),
        (Answer(cut=True), ModelUnavailable, "can't be reached"),
        (Answer(latency_s=3), ModelUnavailable, "within 0.3 s"),
        (Answer(raw=b"<html>busy</html>"), InvalidModelReply, "not JSON"),
        (Answer(raw=b'{"choices": []}'), InvalidModelReply, "no message"),
        (Answer(raw=b'{"error": {"message": "upstream"}}'), InvalidModelReply, "upstream"),
        (Answer(raw=b"[]"), InvalidModelReply, "no message"),
    ],
)
async def test_every_failure_is_sorted(answer: Answer, error: type[Exception], told: str) -> None:
    async with MockOpenAI() as mock, chatting(mock) as chat:
        mock.next_answers.append(answer)
        with pytest.raises(error, match=told) as raised:
            await say(chat, timeout_s=0.3)
    assert "sk-secret" not in str(raised.value)


async def test_a_refused_connection_is_transient() -> None:
    async with MockOpenAI() as mock:
        gone = mock.base_url
    chat = open_chat(LlmSettings(base_url=gone, _env_file=None))
    assert chat is not None
    with pytest.raises(ModelUnavailable, match="can't be reached"):
        await say(chat, timeout_s=0.2)
    await chat.aclose()


async def test_an_address_that_is_none_names_its_setting() -> None:
    chat = open_chat(LlmSettings(base_url="ftp://somewhere/v1", _env_file=None))
    assert chat is not None
    with pytest.raises(Misconfigured, match="CAIRN_LLM_BASE_URL"):
        await say(chat)
    await chat.aclose()


async def test_transient_failures_are_tried_again_within_the_time() -> None:
    async with MockOpenAI() as mock, chatting(mock, attempts=3) as chat:
        mock.next_answers.extend([Answer.fault(503), Answer.fault(429, Retry_After="0.01")])
        await say(chat)
        assert len(mock.requests) == 3
        mock.next_answers.append(Answer.fault(429, Retry_After="30"))
        started = time.monotonic()
        with pytest.raises(ModelUnavailable) as raised:
            await say(chat, timeout_s=2)
    assert raised.value.retry_after_s == 30
    assert time.monotonic() - started < 1  # waiting would have been in vain


async def test_permanent_failures_are_not_tried_again() -> None:
    async with MockOpenAI() as mock, chatting(mock, attempts=3) as chat:
        mock.next_answers.append(Answer.fault(401))
        with pytest.raises(Misconfigured):
            await say(chat)
    assert len(mock.requests) == 1


async def test_what_reasoning_models_refuse_is_learnt_once() -> None:
    def refusing(request: dict[str, Any]) -> Answer:
        if "max_tokens" in request:
            return Answer.fault(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        if "temperature" in request:
            return Answer.fault(400, "Unsupported value: 'temperature' does not support 0.0")
        return Answer("fine")

    async with MockOpenAI(script=refusing) as mock, chatting(mock) as chat:
        assert (await say(chat)).text == "fine"
        await say(chat)
    assert len(mock.requests) == 4


async def test_calls_in_flight_are_bounded_and_waiting_counts() -> None:
    async with MockOpenAI(latency_s=0.05) as mock, chatting(mock, concurrency=3) as chat:
        await asyncio.gather(*(say(chat) for _ in range(9)))
        assert mock.most_in_flight == 3
        mock.latency_s = 0.5
        busy = [asyncio.create_task(say(chat)) for _ in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(ModelUnavailable, match="CAIRN_LLM_CONCURRENCY"):
            await say(chat, timeout_s=0.05)
        await asyncio.gather(*busy)


async def test_a_dead_endpoint_is_left_alone_for_a_while() -> None:
    now = [0.0]
    breaker = CircuitBreaker("test", failures=2, cool_down_s=5, clock=lambda: now[0])
    async with MockOpenAI() as mock, chatting(mock, breaker=breaker) as chat:
        mock.next_answers.extend([Answer.fault(500), Answer.fault(500), Answer.fault(500)])
        for _ in range(4):
            now[0] += 0.1
            with pytest.raises(ModelUnavailable):
                await say(chat)
        assert len(mock.requests) == 2
        now[0] = 6.0
        for _ in range(2):  # one may try, and fails; the next is refused again
            with pytest.raises(ModelUnavailable):
                await say(chat)
        assert len(mock.requests) == 3
        assert BREAKER_OPEN.labels("test")._value.get() == 1
        now[0] = 12.0
        await say(chat)
        await say(chat)
        assert BREAKER_OPEN.labels("test")._value.get() == 0


async def test_a_reply_that_nobody_needs_is_tried_again_only_while_retries_are_few() -> None:
    async def fail(chat: ChatModel, needed: bool) -> None:
        with pytest.raises(ModelUnavailable):
            await chat.complete(ASK, max_tokens=8, timeout_s=10, needed=lambda: needed)

    busy = Answer.fault(429, Retry_After="0")
    async with MockOpenAI(script=lambda _: busy) as mock, chatting(mock, attempts=2, concurrency=30) as chat:
        await asyncio.gather(*(fail(chat, needed=False) for _ in range(60)))
        spared = len(mock.requests)
        await asyncio.gather(*(fail(chat, needed=True) for _ in range(30)))
    assert 60 + 20 <= spared <= 60 + 20 + 12  # twenty to begin with, and a fifth of the calls
    assert len(mock.requests) - spared == 60


def test_retries_are_earned_by_calls() -> None:
    budget = RetryBudget(share=0.5, reserve=2)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    budget.called()
    assert not budget.take()
    budget.called()
    assert budget.take()


async def test_a_trial_is_left_to_a_call_that_has_the_time_for_it() -> None:
    now = [0.0]
    breaker = CircuitBreaker(failures=1, cool_down_s=5, clock=lambda: now[0])
    async with MockOpenAI() as mock, chatting(mock, breaker=breaker) as chat:
        mock.next_answers.append(Answer.fault(500))
        with pytest.raises(ModelUnavailable):
            await say(chat)
        now[0] = 6.0
        with pytest.raises(ModelUnavailable, match="not asked again yet"):
            await say(chat, timeout_s=0.5)
        assert len(mock.requests) == 1
        await say(chat, timeout_s=5)  # the trial is still to be had
    assert len(mock.requests) == 2


async def test_cancelling_a_call_frees_its_slot() -> None:
    async with MockOpenAI(latency_s=5) as mock, chatting(mock, concurrency=1) as chat:
        call = asyncio.create_task(say(chat))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        mock.latency_s = 0
        await say(chat, timeout_s=1)


# --- several endpoints -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [Answer.fault(500), Answer.fault(401), Answer.fault(400, "context too long"), Answer(raw=b"<html>")]
)
async def test_the_next_endpoint_is_asked_where_one_fails_each_with_its_own_key(answer: Answer) -> None:
    async with MockOpenAI(script=lambda _: answer) as broken, MockOpenAI(script=lambda _: Answer("fine")) as spare:
        settings = LlmSettings(
            base_url=broken.base_url,
            api_key=SecretStr("sk-first"),
            model="m-1",
            fallbacks=(FallbackModel(base_url=spare.base_url, model="m-2"),),
            _env_file=None,
        )
        chat = open_chat(settings, attempts=1)
        assert chat is not None
        assert chat.name == "m-1 or m-2"
        assert (await say(chat)).text == "fine"
        await chat.aclose()
    assert (broken.requests[0]["model"], spare.requests[0]["model"]) == ("m-1", "m-2")
    assert "authorization" not in spare.headers[0]


async def test_a_silent_endpoint_leaves_time_for_the_next() -> None:
    async with MockOpenAI(latency_s=30) as silent, MockOpenAI() as spare:
        chat = open_chat(
            LlmSettings(base_url=silent.base_url, fallbacks=(FallbackModel(base_url=spare.base_url),), _env_file=None)
        )
        assert chat is not None
        await say(chat, timeout_s=1.0)
        await chat.aclose()
    assert len(spare.requests) == 1


async def test_where_all_fail_the_first_is_the_one_to_mend() -> None:
    async with (
        MockOpenAI(script=lambda _: Answer.fault(401)) as one,
        MockOpenAI(script=lambda _: Answer.fault(503)) as two,
    ):
        settings = LlmSettings(base_url=one.base_url, fallbacks=(FallbackModel(base_url=two.base_url),), _env_file=None)
        chat = open_chat(settings, attempts=1)
        assert chat is not None
        with pytest.raises(Misconfigured, match="CAIRN_LLM_API_KEY"):
            await say(chat)
        await chat.aclose()


# --- late replies ----------------------------------------------------------------------------------------------------


async def test_a_late_reply_is_asked_for_again_and_the_first_good_one_counts() -> None:
    async with MockOpenAI() as mock, chatting(mock, hedge=Hedge()) as chat:
        for _ in range(20):
            await say(chat)
        mock.next_answers.append(Answer("late", latency_s=20))
        started = time.monotonic()
        said = await say(chat, timeout_s=30)
        assert said.text != "late"
        assert time.monotonic() - started < 10
        assert len(mock.requests) == 22


async def test_no_second_call_where_all_slots_are_taken_or_the_first_fails() -> None:
    async with MockOpenAI() as mock, chatting(mock, hedge=Hedge(), concurrency=1) as chat:
        for _ in range(20):
            await say(chat)
        mock.next_answers.append(Answer("late", latency_s=0.5))
        assert (await say(chat)).text == "late"
        mock.next_answers.append(Answer.fault(500))
        with pytest.raises(ModelUnavailable):
            await say(chat)
    assert len(mock.requests) == 22


def test_content_parts_reasoning_and_uncounted_tokens() -> None:
    body = completion("", tokens=None)
    body["choices"][0]["message"]["content"] = [{"type": "text", "text": "<think>x</think>four"}, {"type": "image"}]
    said = read_completion(body, [{"role": "user", "content": "x" * 40}])
    assert (said.text, said.prompt_tokens, said.completion_tokens, said.estimated) == ("four", 10, 1, True)


async def test_a_failure_can_be_had_as_a_value() -> None:
    async with MockOpenAI() as mock, chatting(mock) as chat:
        assert isinstance(await completion_or_reason(chat, ASK, max_tokens=8, timeout_s=1), Completion)
        mock.next_answers.append(Answer.fault(500, "boom"))
        failed = await completion_or_reason(chat, ASK, max_tokens=8, timeout_s=1)
        late = await completion_or_reason(chat, ASK, max_tokens=8, timeout_s=0)
    assert isinstance(failed, NoCompletion)
    assert "boom" in failed.reason
    assert late == NoCompletion("no time left")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None), ("", None), ("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("soon", None), ("inf", None),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)  # fmt: skip
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header, now=60.0) == seconds


def test_other_services_get_their_own_transient_error() -> None:
    told = sort_status(Endpoint("http://searx:8080", "CAIRN_WEB"), 503, "{}", unavailable=SearchUnavailable)
    assert isinstance(told, SearchUnavailable)


def test_a_long_error_is_shortened() -> None:
    body = json.dumps({"error": {"message": "x " * 5000}})
    assert len(str(sort_status(Endpoint("http://a/v1", "CAIRN_LLM"), 400, body))) < 300
