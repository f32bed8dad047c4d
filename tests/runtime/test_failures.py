"""What handlers can do wrong, and what becomes of the job."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

import pytest
from redis.asyncio import Redis

from shared.contracts import Answered, Generate, Grade, Retrieve, Rewrite
from shared.errors import InvalidModelReply, ModelUnavailable
from shared.runtime.ending import end_job
from shared.runtime.keys import Keys
from shared.runtime.steps import Steps
from tests.support import bus
from tests.support.bus import FAST, ask, outcome, pipeline, residue, running, terminals
from tests.support.wait import wait_until


async def dead_letters(redis: Redis, keys: Keys) -> list[dict[str, Any]]:
    entries: Any = await redis.xrange(keys.dead)
    return [json.loads(fields[b"data"]) for _, fields in entries]


async def test_a_transient_failure_is_tried_again_until_it_works(redis: Redis, keys: Keys, redis_url: str) -> None:
    tries: list[float] = []

    async def grade(msg: Grade) -> Generate:
        tries.append(time.monotonic())
        if len(tries) < 4:
            raise ModelUnavailable("down", retry_after_s=0.15 if len(tries) == 1 else None)
        return await bus.grade(msg)

    async with running(pipeline(grade), redis_url, keys):
        answered = (
            await wait_until(lambda: outcome(redis, keys, "j"), within_s=5)
            if await ask(redis, keys, job_id="j")
            else None
        )
    assert answered is not None
    assert answered.status == "answered"
    assert len(tries) == 4
    assert tries[1] - tries[0] >= 0.15  # Retry-After is honoured
    assert await dead_letters(redis, keys) == []


async def test_a_failure_that_outlasts_the_deadline_is_given_up(redis: Redis, keys: Keys, redis_url: str) -> None:
    async def grade(msg: Grade) -> Generate:
        raise ModelUnavailable("the judge is down")

    async with running(pipeline(grade), redis_url, keys):
        await ask(redis, keys, job_id="j", deadline_s=0.5)
        answered = await wait_until(lambda: outcome(redis, keys, "j"))
    assert answered.status == "timed_out"
    assert len(await terminals(redis, keys, "j")) == 1
    assert await residue(redis, keys) == {}


async def test_a_permanent_failure_is_a_dead_letter_and_a_failed_outcome(
    redis: Redis, keys: Keys, redis_url: str
) -> None:
    async def grade(msg: Grade) -> Generate:
        raise InvalidModelReply("the judge speaks in riddles")

    async with running(pipeline(grade), redis_url, keys):
        await ask(redis, keys, job_id="j")
        answered = await wait_until(lambda: outcome(redis, keys, "j"))
    assert (answered.status, answered.error) == ("failed", "the judge speaks in riddles")
    assert [timing.stage for timing in answered.timings][-1] == "grader"
    (letter,) = await dead_letters(redis, keys)
    assert (letter["stage"], letter["reason"], letter["job_id"]) == ("grader", "permanent", "j")
    assert await residue(redis, keys) == {}


async def test_a_bug_is_redelivered_a_few_times_and_then_given_up(redis: Redis, keys: Keys, redis_url: str) -> None:
    deliveries = 0

    async def grade(msg: Grade) -> Generate:
        nonlocal deliveries
        deliveries += 1
        raise ZeroDivisionError("oops")

    async with running(pipeline(grade), redis_url, keys):
        await ask(redis, keys, job_id="j")
        answered = await wait_until(lambda: outcome(redis, keys, "j"), within_s=20)
    assert deliveries == FAST.max_deliveries
    assert answered.status == "failed"
    assert "ZeroDivisionError" in answered.error
    assert "oops" not in answered.error  # texts of foreign exceptions quote what they choked on
    (letter,) = await dead_letters(redis, keys)
    assert letter["reason"] == "bug"
    assert await residue(redis, keys) == {}


async def test_a_message_whose_workers_die_is_given_up(redis: Redis, keys: Keys, redis_url: str) -> None:
    """As if each worker that took it was killed: only the delivery count is left to tell."""

    async def grade(msg: Grade) -> Generate:
        raise AssertionError("must not run again")

    stages = [stage for stage in pipeline() if stage.name != "grader"]
    async with running(stages, redis_url, keys):
        await ask(redis, keys, job_id="j")
        await wait_until(lambda: redis.xlen(keys.inbox("grader")))
    for _ in range(FAST.max_deliveries):
        await redis.xreadgroup("grader", "victim", {keys.inbox("grader"): ">"})
        pending: Any = await redis.xpending_range(keys.inbox("grader"), "grader", "-", "+", 1)
        ids = [pending[0]["message_id"]]
        await redis.xclaim(keys.inbox("grader"), "grader", "victim", 0, ids, idle=60_000)
    async with running([bus.gateway(), bus.stage(grade)], redis_url, keys):
        answered = await wait_until(lambda: outcome(redis, keys, "j"))
    assert answered.status == "failed"
    assert "kill its workers" in answered.error


async def test_a_cancelled_job_stops_its_handler_and_ends_once(redis: Redis, keys: Keys, redis_url: str) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def grade(msg: Grade) -> Generate:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()
        return await bus.grade(msg)

    async with running(pipeline(grade), redis_url, keys):
        await ask(redis, keys, job_id="j")
        await asyncio.wait_for(started.wait(), 5)
        assert await end_job(Steps(redis, keys, FAST), "j", "cancelled")
        await asyncio.wait_for(stopped.wait(), 2)
        assert not await end_job(Steps(redis, keys, FAST), "j", "cancelled")
    answered = await outcome(redis, keys, "j")
    assert answered is not None
    assert answered.status == "cancelled"
    assert len(await terminals(redis, keys, "j")) == 1
    assert await residue(redis, keys) == {}


async def test_a_slow_handler_keeps_its_claim(redis: Redis, keys: Keys, redis_url: str) -> None:
    """Three times the claim time, two workers: the heartbeat keeps the other one off."""
    runs = 0

    async def grade(msg: Grade) -> Generate:
        nonlocal runs
        runs += 1
        await asyncio.sleep(FAST.claim_after_s * 3)
        return await bus.grade(msg)

    async with running([*pipeline(grade), bus.stage(grade)], redis_url, keys):
        await ask(redis, keys, job_id="j")
        await wait_until(lambda: outcome(redis, keys, "j"))
    assert runs == 1


async def test_a_worker_takes_no_more_than_it_can_work_on(redis: Redis, keys: Keys, redis_url: str) -> None:
    release = asyncio.Event()

    async def grade(msg: Grade) -> Generate:
        await release.wait()
        return await bus.grade(msg)

    few = bus.stage(grade, max_workers=3)
    async with running([*(stage for stage in pipeline() if stage.name != "grader"), few], redis_url, keys) as workers:
        for number in range(10):
            await ask(redis, keys, job_id=f"j{number}")
        await wait_until(lambda: _length(redis, keys.inbox("grader"), 10))
        in_hand = workers[-1].subscribers[0].in_hand
        await wait_until(lambda: len(in_hand) == 3)
        pending: Any = await redis.xpending(keys.inbox("grader"), "grader")
        assert pending["pending"] == 3
        release.set()
        await wait_until(lambda: _length(redis, keys.results, 10))


async def _length(redis: Redis, stream: str, wanted: int) -> bool:
    return await redis.xlen(stream) == wanted


async def test_a_stop_hands_back_what_is_not_finished(redis: Redis, keys: Keys, redis_url: str) -> None:
    hanging = asyncio.Event()

    async def grade(msg: Grade) -> Generate:
        hanging.set()
        await asyncio.sleep(60)
        return await bus.grade(msg)

    impatient = FAST.model_copy(update={"grace_s": 0.1, "claim_after_s": 30.0})
    others = [stage for stage in pipeline() if stage.name != "grader"]
    async with running(others, redis_url, keys, impatient):
        async with running([bus.stage(grade)], redis_url, keys, impatient):
            await ask(redis, keys, job_id="j")
            await asyncio.wait_for(hanging.wait(), 5)
        pending: Any = await redis.xpending_range(keys.inbox("grader"), "grader", "-", "+", 10)
        assert [entry["times_delivered"] for entry in pending] == [0]  # it was no failure of the message's
        # The claim time is half a minute; handed back, it is taken at once.
        async with running([bus.stage(bus.grade)], redis_url, keys, impatient):
            answered = await wait_until(lambda: outcome(redis, keys, "j"), within_s=8)
    assert answered.status == "answered"


async def test_a_vanished_stream_is_created_again(redis: Redis, keys: Keys, redis_url: str) -> None:
    async with running(pipeline(), redis_url, keys):
        await ask(redis, keys, job_id="before")
        await wait_until(lambda: outcome(redis, keys, "before"))
        async for key in redis.scan_iter(f"{keys.prefix}*"):  # what FLUSHALL does, for our prefix
            await redis.delete(key)
        await ask(redis, keys, job_id="after")
        answered = await wait_until(lambda: outcome(redis, keys, "after"))
    assert answered.status == "answered"


async def test_forgotten_scripts_are_loaded_again(redis: Redis, keys: Keys, redis_url: str) -> None:
    async with running(pipeline(), redis_url, keys):
        await ask(redis, keys, job_id="before")
        await wait_until(lambda: outcome(redis, keys, "before"))
        await redis.script_flush()
        await ask(redis, keys, job_id="after")
        await wait_until(lambda: outcome(redis, keys, "after"))


async def test_out_of_memory_loses_nothing(redis: Redis, keys: Keys, redis_url: str) -> None:
    """Redis refuses to grow while the generator finishes: the step changes nothing, and works once there is room."""
    if "CAIRN_TEST_REDIS_URL" in os.environ:
        pytest.skip("needs a server of its own")
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def generate(msg: Generate) -> Answered:
        reached.set()
        await go_on.wait()
        return await bus.generate(msg)

    async with running(pipeline(generate), redis_url, keys):
        await ask(redis, keys, job_id="j")
        await asyncio.wait_for(reached.wait(), 5)
        await redis.config_set("maxmemory", "1")
        try:
            go_on.set()
            await asyncio.sleep(0.2)
            assert await outcome(redis, keys, "j") is None
        finally:
            await redis.config_set("maxmemory", "0")
        answered = await wait_until(lambda: outcome(redis, keys, "j"))
    assert answered.status == "answered"
    assert await residue(redis, keys) == {}


async def test_a_handler_may_only_publish_what_it_declares(redis: Redis, keys: Keys, redis_url: str) -> None:
    async def retrieve(msg: Retrieve) -> Grade:
        return Rewrite(header=msg.header, asked=msg.asked)  # type: ignore[return-value]

    async with running(pipeline(retrieve), redis_url, keys):
        await ask(redis, keys, job_id="j")
        answered = await wait_until(lambda: outcome(redis, keys, "j"), within_s=20)
    assert answered.status == "failed"
    assert "TypeError at finishing.py" in answered.error
