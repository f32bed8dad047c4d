"""More graders grade more at once, and a slow judge slows graders only. bench/scaling.py has the rates."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from redis.asyncio import Redis

from services.grader import prompts
from services.grader.handler import grade
from services.grader.settings import GraderSettings
from shared.clients.judge import open_judge
from shared.contracts import Grade, Retrieve
from shared.runtime.keys import Keys
from shared.runtime.stage import Stage
from shared.settings import JudgeSettings, LlmSettings
from tests.support import bus
from tests.support.bus import FAST, ask, running
from tests.support.judged import faultless, job
from tests.support.mock_openai import MockOpenAI
from tests.support.wait import wait_until

PASSAGES = 4
IN_HAND = 2
"""Jobs of one worker."""


async def retrieve(msg: Retrieve) -> Grade:
    """Finds the same passages for every question."""
    found = job("correct", 1, random.Random(1), passages=PASSAGES).passages
    return Grade(header=msg.header, asked=msg.asked, route=msg.route, queries=msg.queries, passages=found)


@asynccontextmanager
async def graders(mock: MockOpenAI, count: int) -> AsyncIterator[list[Stage]]:
    """So many graders, each with a judge, and so bounds, of its own."""
    settings = JudgeSettings(base_url=mock.base_url, model="mock", concurrency=IN_HAND * PASSAGES, _env_file=None)
    policy = GraderSettings(_env_file=None).policy
    async with AsyncExitStack() as stack:
        stages = []
        for _ in range(count):
            judge = open_judge(settings, LlmSettings(base_url=None, _env_file=None), None, prompts=prompts)
            stack.push_async_callback(judge.aclose)
            stages.append(bus.stage(grade, max_workers=IN_HAND, judge=judge, policy=policy))
        yield stages


@pytest.mark.parametrize("count", [1, 3])
async def test_each_grader_adds_its_share_of_calls_in_flight(
    count: int, redis: Redis, keys: Keys, redis_url: str
) -> None:
    jobs = 4 * count * IN_HAND
    async with (
        MockOpenAI(script=faultless, latency_s=0.4) as mock,
        graders(mock, count) as stages,
        running([bus.gateway(), bus.stage(bus.rewrite), bus.stage(retrieve), *stages], redis_url, keys),
    ):
        for _ in range(jobs):
            await ask(redis, keys)
        await wait_until(lambda: _waiting(redis, keys, "generator", jobs), within_s=30)
        assert mock.most_in_flight == count * IN_HAND * PASSAGES


async def test_a_slow_judge_holds_up_graders_only(redis: Redis, keys: Keys, redis_url: str) -> None:
    jobs, hasty = 30, FAST.model_copy(update={"grace_s": 0.1})
    async with (
        MockOpenAI(latency_s=600) as mock,
        graders(mock, 1) as stages,
        running([bus.gateway(), bus.stage(bus.rewrite), bus.stage(retrieve), *stages], redis_url, keys, hasty),
    ):
        for _ in range(jobs):
            await ask(redis, keys)
        await wait_until(lambda: _waiting(redis, keys, "grader", jobs))
        assert [await redis.xlen(keys.inbox(inbox)) for inbox in ("gateway", "rewriter", "retriever")] == [0, 0, 0]
        assert (await redis.xpending(keys.inbox("grader"), "grader"))["pending"] == IN_HAND  # the rest is for others
        assert mock.in_flight == IN_HAND * PASSAGES


async def _waiting(redis: Redis, keys: Keys, inbox: str, wanted: int) -> bool:
    return await redis.xlen(keys.inbox(inbox)) == wanted
