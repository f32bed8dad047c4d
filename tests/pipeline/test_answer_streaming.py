"""Provisional tokens of a generator at work: how soon the first one leaves, and what a cancelled or long job costs."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from redis.asyncio import Redis

from services.generator.handler import generate
from services.generator.settings import AnsweringPolicy
from shared.clients.chat import open_chat
from shared.contracts import Generate, Grade
from shared.runtime.controls import Controls, switch
from shared.runtime.ending import end_job
from shared.runtime.keys import Keys
from shared.runtime.steps import Steps
from shared.runtime.telling import Telling
from shared.settings import LlmSettings
from tests.support import bus
from tests.support.mock_openai import Answer, MockOpenAI, Request
from tests.support.wait import wait_until
from tests.unit.test_generator import TENTS, evidence

GOOD: Final = "Unused tents can be returned within 45 days [1]."
POLICY: Final = AnsweringPolicy(_env_file=None, self_check=False)


async def grade(msg: Grade) -> Generate:
    """A grader that knows one passage."""
    return Generate(header=msg.header, asked=msg.asked, route=msg.route, verdict="correct", evidence=(evidence(TENTS),))


@asynccontextmanager
async def answering(
    model: MockOpenAI, redis: Redis, url: str, keys: Keys, policy: AnsweringPolicy = POLICY
) -> AsyncIterator[Controls]:
    """All stages, with the real generator and this model."""
    chat, controls = open_chat(LlmSettings(base_url=model.base_url, _env_file=None)), Controls()
    assert chat is not None
    telling = Telling(Steps(redis, keys, bus.FAST))
    writer = bus.stage(generate, chat=chat, embedder=None, policy=policy, controls=controls, telling=telling)
    stages = [each for each in bus.pipeline(grade) if each.name != "generator"]
    async with bus.running([*stages, writer], url, keys):
        yield controls
    await chat.aclose()


async def events(redis: Redis, keys: Keys, job_id: str, kind: str = "token") -> list[dict[str, Any]]:
    entries: Any = await redis.xrange(keys.events(job_id))
    return [json.loads(fields[b"data"]) for _, fields in entries if fields[b"type"] == kind.encode()]


async def first_token(redis: Redis, keys: Keys, job_id: str) -> float:
    """Moment at which a client that follows the job sees its first token."""
    last = "0-0"
    while True:
        found: Any = await redis.xread({keys.events(job_id): last}, block=5000)
        now = time.monotonic()
        if any(fields[b"type"] == b"token" for _, fields in found[0][1]):
            return now
        last = found[0][1][-1][0]


async def test_the_first_token_is_told_within_50_ms(redis: Redis, redis_url: str, keys: Keys) -> None:
    asked_at = 0.0

    def reply(_: Request) -> Answer:
        nonlocal asked_at
        asked_at = time.monotonic()
        return Answer(pieces=("Unused tents", " can be returned within 45 days [1]."), pause_s=0.3)

    took: list[float] = []
    async with MockOpenAI(script=reply) as model, answering(model, redis, redis_url, keys):
        for number in range(5):
            job_id = await bus.ask(redis, keys, job_id=f"j{number}")
            seen_at = await first_token(redis, keys, job_id)
            took.append(seen_at - asked_at)
            outcome = await wait_until(lambda job_id=job_id: bus.outcome(redis, keys, job_id))  # type: ignore[misc]
            assert (outcome.status, outcome.answer) == ("answered", GOOD)
            assert "".join(each["text"] for each in await events(redis, keys, job_id)) == GOOD
    assert min(took) < 0.05, took


async def test_a_cancelled_job_closes_the_models_stream_within_300_ms(redis: Redis, redis_url: str, keys: Keys) -> None:
    steps = Steps(redis, keys, bus.FAST)
    took: list[float] = []
    endless = Answer(pieces=("Tents ", *("can be returned ",) * 3000), pause_s=0.01)
    async with MockOpenAI(script=lambda _: endless) as model, answering(model, redis, redis_url, keys):
        for number in range(3):
            job_id = await bus.ask(redis, keys, job_id=f"j{number}")
            await first_token(redis, keys, job_id)
            cancelled_at = time.monotonic()
            assert await end_job(steps, job_id, "cancelled")
            await wait_until(lambda left=number: model.streams_left > left)  # type: ignore[misc]
            took.append(time.monotonic() - cancelled_at)
            assert len(await bus.terminals(redis, keys, job_id)) == 1
            assert (await events(redis, keys, job_id, "terminal"))[0]["status"] == "cancelled"
        assert len(model.requests) == 3
    assert min(took) < 0.3, took


async def test_ten_thousand_tokens_of_one_job_do_not_slow_another(redis: Redis, redis_url: str, keys: Keys) -> None:
    long = Answer(pieces=("Tents ", "may ", "come ", "back ", "[1]. ") * 2000, pause_s=0.0001)

    def reply(request: Request) -> Answer:
        return long if "everything" in request["messages"][-1]["content"] else Answer(GOOD)

    async def seconds(job_id: str) -> float:
        began = time.monotonic()
        await bus.ask(redis, keys, job_id=job_id)
        await wait_until(lambda: bus.outcome(redis, keys, job_id))
        return time.monotonic() - began

    policy = AnsweringPolicy(_env_file=None, self_check=False, answer_tokens=100_000)
    async with MockOpenAI(script=reply) as model, answering(model, redis, redis_url, keys, policy):
        alone = [await seconds(f"alone{number}") for number in range(5)]
        began = time.monotonic()
        await bus.ask(redis, keys, "Tell me everything about tents", job_id="long", deadline_s=100)
        await first_token(redis, keys, "long")
        beside = [await seconds(f"beside{number}") for number in range(5)]
        assert await bus.outcome(redis, keys, "long") is None
        await wait_until(lambda: bus.outcome(redis, keys, "long"), within_s=90)
        lasted = time.monotonic() - began
    told = await events(redis, keys, "long")
    print(f"alone {statistics.median(alone):.3f} s, beside {statistics.median(beside):.3f} s; "
          f"{len(told)} events in {lasted:.1f} s")  # fmt: skip
    assert len(told) <= lasted / 0.05 + 2
    assert statistics.median(beside) < statistics.median(alone) * 5 + 0.2


async def test_generation_switched_off_leaves_citations(redis: Redis, redis_url: str, keys: Keys) -> None:
    steps = Steps(redis, keys, bus.FAST)
    async with MockOpenAI(script=lambda _: Answer(GOOD)) as model, answering(model, redis, redis_url, keys) as controls:
        await switch(steps, "generation", "off")
        await controls.look(steps)
        job_id = await bus.ask(redis, keys)
        outcome = await wait_until(lambda: bus.outcome(redis, keys, job_id))
        assert (outcome.status, outcome.degraded) == ("citations", ("generation is switched off: citations only",))
        assert [each.passage_id for each in outcome.citations] == ["p1"]
        assert model.requests == []
        await switch(steps, "generation", "default")
        await controls.look(steps)
        job_id = await bus.ask(redis, keys)
        assert (await wait_until(lambda: bus.outcome(redis, keys, job_id))).status == "answered"
