"""The whole path on a real server, with stages that only pass jobs on."""

from __future__ import annotations

import json
from typing import Any

from redis.asyncio import Redis

from shared.contracts import Answered
from shared.runtime.keys import Keys
from tests.support.bus import ask, gateway, outcome, pipeline, residue, running, terminals
from tests.support.wait import wait_until


async def results_of(redis: Redis, keys: Keys) -> list[Answered]:
    entries: Any = await redis.xrange(keys.results)
    return [Answered.model_validate_json(fields[b"data"]) for _, fields in entries]


async def test_a_question_comes_out_answered_and_leaves_nothing_behind(
    redis: Redis, keys: Keys, redis_url: str
) -> None:
    async with running(pipeline(), redis_url, keys):
        job_id = await ask(redis, keys, "Why is the sky blue?")
        answered = await wait_until(lambda: outcome(redis, keys, job_id))

    assert answered.status == "answered"
    assert answered.answer == "Why is the sky blue?"
    assert [timing.stage for timing in answered.timings] == ["gateway", "rewriter", "retriever", "grader", "generator"]
    assert await terminals(redis, keys, job_id) == [json.loads(answered.model_dump_json())]
    assert [found.job_id for found in await results_of(redis, keys)] == [job_id]
    assert await residue(redis, keys) == {}


async def test_single_fields_work_from_any_client(redis: Redis, keys: Keys, redis_url: str) -> None:
    async with running(pipeline(), redis_url, keys):
        entry_id: Any = await redis.xadd(
            keys.inbox("gateway"), {"question": "Combien ?", "top_k": "3", "job_id": "mine"}
        )
        answered = await wait_until(lambda: outcome(redis, keys, "mine"))
    assert (answered.status, answered.entry_id) == ("answered", entry_id.decode())


async def test_the_same_id_again_is_the_same_job(redis: Redis, keys: Keys, redis_url: str) -> None:
    async with running(pipeline(), redis_url, keys):
        for text in ("first", "second"):
            await ask(redis, keys, text, job_id="twice")
        answered = await wait_until(lambda: outcome(redis, keys, "twice"))
        await ask(redis, keys, "third", job_id="twice")
        await wait_until(lambda: _empty(redis, keys))
    assert answered.answer == "first"
    assert len(await terminals(redis, keys, "twice")) == 1
    assert len(await results_of(redis, keys)) == 1


async def _empty(redis: Redis, keys: Keys) -> bool:
    return await residue(redis, keys) == {}


async def test_many_jobs_at_once_each_end_once(redis: Redis, keys: Keys, redis_url: str) -> None:
    async with running(pipeline(), redis_url, keys):
        ids = [await ask(redis, keys, f"question {n}", job_id=f"job-{n}") for n in range(200)]
        await wait_until(lambda: _count(redis, keys, 200))
    assert sorted(found.job_id for found in await results_of(redis, keys)) == sorted(ids)
    assert await residue(redis, keys) == {}


async def _count(redis: Redis, keys: Keys, wanted: int) -> bool:
    return await redis.xlen(keys.results) >= wanted


async def test_a_topic_without_workers_times_out_and_is_emptied(redis: Redis, keys: Keys, redis_url: str) -> None:
    async with running([gateway()], redis_url, keys):
        job_id = await ask(redis, keys, deadline_s=0.3)
        answered = await wait_until(lambda: outcome(redis, keys, job_id), within_s=5.3)
    assert answered.status == "timed_out"
    assert "rewriter" in answered.error
    assert await residue(redis, keys) == {}
