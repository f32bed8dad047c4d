"""Nobody waits for ever: ends jobs whose deadline passed, wherever they are, and trims old results."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from redis.exceptions import RedisError, ResponseError

from shared.runtime.ending import end_job
from shared.runtime.logs import logger
from shared.runtime.steps import Steps

_log = logger("cairn")

JOBS_PER_LOOK = 200
TRIM_EVERY_S = 60.0
BROKEN_JOB_AGAIN_S = 60.0


async def reap(steps: Steps) -> None:
    """Look for late jobs every `reap_every_s`, for ever. Several gateways may do so at once; the step is fenced."""
    trim_due = 0.0
    while True:
        try:
            while await reap_late_jobs(steps, time.time()) == JOBS_PER_LOOK:
                pass
            if time.monotonic() >= trim_due:
                oldest_ms = int((time.time() - steps.settings.results_max_age_s) * 1000)
                await steps.redis.xtrim(steps.keys.results, minid=max(0, oldest_ms), approximate=True)
                trim_due = time.monotonic() + TRIM_EVERY_S
        except (RedisError, OSError) as away:
            _log.warning("can't look for late jobs", error=str(away))
        await asyncio.sleep(steps.settings.reap_every_s)


async def reap_late_jobs(steps: Steps, now: float) -> int:
    """End up to `JOBS_PER_LOOK` jobs whose deadline is before `now`; answers how many were looked at."""
    late: Any = await steps.redis.zrange(
        steps.keys.deadlines, "-inf", str(now), byscore=True, offset=0, num=JOBS_PER_LOOK
    )
    for job_id in late:
        try:
            await end_job(steps, job_id.decode(), "timed_out")
        except (ResponseError, ValueError) as broken:  # keys of a wrong type or content: the other jobs must not wait
            _log.error("a late job can't be ended", job_id=job_id.decode(), error=str(broken))
            await steps.redis.zadd(steps.keys.deadlines, {job_id: now + BROKEN_JOB_AGAIN_S}, xx=True)
    return len(late)
