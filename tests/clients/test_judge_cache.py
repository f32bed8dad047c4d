"""Grades remembered, on a real server, and pairs in flight judged once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from services.grader import prompts
from shared.clients.judge import Grading, Judge, open_judge
from shared.clients.judge.cache import JUDGE_CACHE
from shared.contracts import Passage
from shared.runtime.common import Common
from shared.runtime.keys import Keys
from shared.settings import JudgeSettings, LlmSettings
from tests.support.mock_openai import Answer, MockOpenAI
from tests.support.wait import wait_until

QUESTION = "How many days do I have to return an unused tent?"


def passages(*texts: str) -> list[Passage]:
    return [Passage(passage_id=f"p{n}", document_id="d", title="T", uri="u", text=text) for n, text in enumerate(texts)]


@asynccontextmanager
async def judging(mock: MockOpenAI, redis: Redis, keys: Keys, **settings: Any) -> AsyncIterator[Judge]:
    judge = open_judge(
        JudgeSettings(base_url=mock.base_url, _env_file=None, **{"model": "j-1", **settings}),
        LlmSettings(_env_file=None),
        None,
        prompts=prompts,
        common=Common(redis, keys),
    )
    try:
        yield judge
    finally:
        await judge.aclose()


async def grade(judge: Judge, found: Sequence[Passage], question: str = QUESTION, **options: Any) -> Grading:
    return await judge.grade_all(question, "en", found, **{"deadline": time.time() + 10, **options})


async def test_a_grade_is_remembered_for_every_worker_and_costs_nothing(redis: Redis, keys: Keys) -> None:
    found = passages("a", "b", "a")
    async with MockOpenAI() as mock, judging(mock, redis, keys) as one, judging(mock, redis, keys) as two:
        first = await grade(one, found)
        again = await grade(two, found)
    assert len(mock.requests) == 2  # the same text twice is one passage to a judge
    assert again.grades == first.grades
    assert (first.usage.calls, again.usage.calls, again.degraded) == (2, 0, ())
    async for key in redis.scan_iter(keys.grade("*")):
        assert 86_000_000 < await redis.pttl(key) <= 86_400_000


@pytest.mark.parametrize("change", ["question", "text", "title", "model", "batch"])
async def test_whatever_the_grade_depends_on_is_in_its_key(redis: Redis, keys: Keys, change: str) -> None:
    found, question, settings = passages("a"), QUESTION, {}
    if change in ("text", "title"):
        found = [found[0].model_copy(update={change: "other"})]
    elif change == "question":
        question = "And a kayak?"
    else:
        settings = {change: {"model": "j-2", "batch": 4}[change]}
    async with MockOpenAI() as mock, judging(mock, redis, keys) as one, judging(mock, redis, keys, **settings) as two:
        await grade(one, passages("a"))
        await grade(two, found, question)
    assert len(mock.requests) == 2


async def test_failures_are_not_remembered(redis: Redis, keys: Keys) -> None:
    async with MockOpenAI() as mock, judging(mock, redis, keys) as judge:
        mock.next_answers.extend([*[Answer("no idea")] * 3, Answer.fault(400, "no")])
        for _ in range(2):
            assert (await grade(judge, passages("a"))).grades[0].score is None
        assert (await grade(judge, passages("a"))).grades[0].score == 0.9


async def test_a_pair_in_flight_is_judged_once(redis: Redis, keys: Keys) -> None:
    async with MockOpenAI(latency_s=0.2) as mock, judging(mock, redis, keys) as judge:
        gradings = await asyncio.gather(*(grade(judge, passages("a", "b")) for _ in range(5)))
    assert len(mock.requests) == 2
    assert [[found.score for found in grading.grades] for grading in gradings] == [[0.9, 0.9]] * 5
    assert sum(grading.usage.calls for grading in gradings) == 2


async def test_who_waits_asks_itself_when_the_other_job_ends_without_a_grade(redis: Redis, keys: Keys) -> None:
    async with MockOpenAI(latency_s=5) as mock, judging(mock, redis, keys) as judge:
        leader = asyncio.create_task(grade(judge, passages("a")))
        await wait_until(lambda: mock.requests)
        found = JUDGE_CACHE.labels("shared")._value
        before = found.get()
        follower = asyncio.create_task(grade(judge, passages("a")))
        await wait_until(lambda: found.get() > before)
        mock.latency_s = 0
        leader.cancel()
        assert (await follower).grades[0].score == 0.9
        with pytest.raises(asyncio.CancelledError):
            await leader
    assert len(mock.requests) == 2


async def test_a_budget_counts_calls_not_remembered_grades(redis: Redis, keys: Keys) -> None:
    async with MockOpenAI() as mock, judging(mock, redis, keys) as judge:
        await grade(judge, passages("a", "b"))
        grading = await grade(judge, passages("a", "b", "c", "d"), max_calls=1)
    assert [found.score for found in grading.grades] == [0.9, 0.9, 0.9, None]


async def test_what_cannot_be_read_back_is_asked_again(redis: Redis, keys: Keys) -> None:
    async with MockOpenAI() as mock, judging(mock, redis, keys) as judge:
        await grade(judge, passages("a"))
        async for key in redis.scan_iter(keys.grade("*")):
            await redis.set(key, b'{"score": 7}')
        assert (await grade(judge, passages("a"))).grades[0].score == 0.9
    assert len(mock.requests) == 2


async def test_without_redis_the_judge_is_asked(keys: Keys) -> None:
    away = Redis.from_url("redis://127.0.0.1:1/0")
    async with MockOpenAI() as mock, judging(mock, away, keys) as judge:
        assert (await grade(judge, passages("a"))).grades[0].score == 0.9
    await away.aclose()


async def test_a_ttl_of_zero_remembers_nothing(redis: Redis, keys: Keys) -> None:
    async with MockOpenAI() as mock, judging(mock, redis, keys, cache_ttl_s=0) as judge:
        for _ in range(2):
            await grade(judge, passages("a"))
    assert len(mock.requests) == 2
    assert [key async for key in redis.scan_iter(keys.grade("*"))] == []
