"""What jobs cost goes on their tenant's account when they end, once, and the gateway looks there."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from redis.asyncio import Redis

from services.gateway.allowance import USED_UP, Allowance, DailyLimits
from services.gateway.decision import read_ask
from services.gateway.handler import admit
from services.gateway.main import create_groups
from services.gateway.reaper import reap
from services.gateway.settings import JwtSettings
from services.gateway.tokens import TokenVerifier
from shared.contracts import Answered, Budget, Generate, StageUsage
from shared.runtime.common import Common
from shared.runtime.keys import Keys
from shared.runtime.stage import Inbox, Stage
from tests.support import bus
from tests.support.wait import wait_until

USAGE = StageUsage(stage="generator", model="m", calls=2, prompt_tokens=100, completion_tokens=50, cost=0.25)


async def generate(msg: Generate) -> Answered:
    return Answered.ending(msg.header.updated(usage=USAGE), "answered", now=time.time(), answer="Yes.")


def gateway(redis: Redis, keys: Keys, limits: DailyLimits, max_running: int = 0) -> Stage:
    inbox = Inbox.of(
        admit,
        max_workers=4,
        read=read_ask,
        verifier=TokenVerifier(JwtSettings()),
        budget=Budget(),
        allowance=Allowance(Common(redis, keys), limits, max_running=max_running),
    )
    return Stage("gateway", [inbox], chores=[create_groups, reap])


async def test_ended_jobs_are_booked_once_and_a_spent_day_leaves_no_models(
    redis: Redis, redis_url: str, keys: Keys
) -> None:
    stages = [gateway(redis, keys, DailyLimits(calls=4)), *bus.pipeline(generate)[1:]]
    budgets = []
    async with bus.running(stages, redis_url, keys):
        for number in range(3):
            job_id = await bus.ask(redis, keys, job_id=f"job-{number}")
            outcome = await wait_until(partial(bus.outcome, redis, keys, job_id))
            budgets.append(USED_UP in outcome.degraded)
        booked: Any = await redis.hgetall(keys.spent_today("public"))
    assert budgets == [False, False, True]
    assert {name.decode(): float(value) for name, value in booked.items()} == {"calls": 6, "tokens": 450, "cost": 0.75}
    assert 86_400 < await redis.ttl(keys.spent_today("public")) <= 172_800


async def test_jobs_without_models_have_no_account(redis: Redis, redis_url: str, keys: Keys) -> None:
    async with bus.running(bus.pipeline(), redis_url, keys):
        job_id = await bus.ask(redis, keys)
        await wait_until(lambda: bus.outcome(redis, keys, job_id))
    assert await redis.exists(keys.spent_today("public")) == 0


async def test_more_jobs_than_may_run_are_refused_at_once_and_the_rest_is_not_touched(
    redis: Redis, redis_url: str, keys: Keys
) -> None:
    async with bus.running([gateway(redis, keys, DailyLimits(), max_running=2)], redis_url, keys):
        for number in range(3):
            await bus.ask(redis, keys, job_id=f"job-{number}")
            await wait_until(partial(redis.exists, keys.job(f"job-{number}")))
        refused = await wait_until(partial(bus.outcome, redis, keys, "job-2"))
        assert refused.status == "failed"
        assert "retry after 5 s" in refused.error
        assert await redis.zcard(keys.deadlines) == await redis.xlen(keys.inbox("rewriter")) == 2
    async with bus.running([gateway(redis, keys, DailyLimits(), max_running=3)], redis_url, keys):
        await bus.ask(redis, keys, job_id="job-3")
        await wait_until(lambda: redis.exists(keys.job("job-3")))
        assert await redis.zcard(keys.deadlines) == 3
