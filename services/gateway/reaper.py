"""Nobody waits for ever: ends jobs whose deadline passed, wherever they are, and trims old results."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from redis.exceptions import RedisError

from shared.contracts import COMMANDS, Answered, Command
from shared.errors import InvalidJob
from shared.runtime.delivery import parse
from shared.runtime.finishing import timed_out
from shared.runtime.keys import INBOXES
from shared.runtime.logs import logger
from shared.runtime.metrics import JOB_SECONDS
from shared.runtime.steps import Steps

_log = logger("cairn")

JOBS_PER_LOOK = 200
TRIM_EVERY_S = 60.0

_MODELS: dict[str, type[Command]] = {model.inbox: model for model in COMMANDS}


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
        await end_job(steps, job_id.decode(), "timed_out")
    return len(late)


async def end_job(steps: Steps, job_id: str, status: str) -> bool:
    """End a running job from outside as `timed_out` or `cancelled`, with the best it has. False if it had ended."""
    fate = "moved"
    while fate == "moved":
        found: Any = await steps.redis.hgetall(steps.keys.job(job_id))
        if found.get(b"status") != b"running":
            await steps.redis.zrem(steps.keys.deadlines, job_id)
            return False
        at = found[b"at"].decode()
        stream, _, entry_id = at.partition(" ")
        inbox = stream.removeprefix(steps.keys.prefix)
        outcome = await _outcome(steps, job_id, found, stream, entry_id)
        outcome = outcome.model_copy(update={"status": status} | ({"error": ""} if status == "cancelled" else {}))
        fate = await steps.end(
            job_id=job_id, at=at, group=INBOXES[inbox], status=status, outcome=outcome.model_dump_json()
        )
        if fate == "done":
            JOB_SECONDS.labels(status).observe(outcome.seconds)
            _log.info("job ended from outside", job_id=job_id, status=status, stage=inbox)
    return fate == "done"


async def _outcome(steps: Steps, job_id: str, found: dict[bytes, bytes], stream: str, entry_id: str) -> Answered:
    # The job's current command is in its stream until it is finished: the trail and evidence so far are there.
    entries: Any = await steps.redis.xrange(stream, entry_id, entry_id)
    inbox = stream.removeprefix(steps.keys.prefix)
    if entries:
        try:
            return timed_out(parse(_MODELS[inbox], entries[0][1][b"data"]))
        except (InvalidJob, KeyError):
            _log.warning("the job's current command can't be read", job_id=job_id, stream=stream, entry_id=entry_id)
    submitted_at = float(found.get(b"submitted_at", b"0"))
    return Answered(
        job_id=job_id,
        entry_id=found.get(b"entry_id", b"").decode(),
        status="timed_out",
        error=f"the deadline passed in the {inbox}",
        seconds=round(max(0.0, time.time() - submitted_at), 4),
    )
