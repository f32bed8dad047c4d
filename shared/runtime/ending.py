"""Jobs that end from outside: past their deadline, or cancelled. Whoever works on one loses its claim and stops."""

from __future__ import annotations

import time
from typing import Any

from shared.contracts import COMMANDS, PUBLIC_TENANT, Answered, Command
from shared.errors import InvalidJob
from shared.runtime.delivery import parse
from shared.runtime.finishing import timed_out
from shared.runtime.keys import INBOXES
from shared.runtime.logs import logger
from shared.runtime.metrics import count_outcome
from shared.runtime.steps import Steps

_log = logger("cairn")

_MODELS: dict[str, type[Command]] = {model.inbox: model for model in COMMANDS}


async def end_job(steps: Steps, job_id: str, status: str) -> bool:
    """End a running job from outside as `timed_out` or `cancelled`, with the best it has. False if it had ended."""
    fate = "moved"
    while fate == "moved":
        found: Any = await steps.redis.hgetall(steps.keys.job(job_id))
        if found.get(b"status") != b"running":
            await steps.redis.zrem(steps.keys.deadlines, job_id)
            return False
        at = found.get(b"at", b"").decode()
        stream, _, entry_id = at.partition(" ")
        inbox = stream.removeprefix(steps.keys.prefix)
        outcome = await _outcome(steps, job_id, found, stream, entry_id)
        outcome = outcome.model_copy(update={"status": status} | ({"error": ""} if status == "cancelled" else {}))
        fate = await steps.end(
            job_id=job_id,
            tenant=found.get(b"tenant", PUBLIC_TENANT.encode()).decode(),
            at=at,
            group=INBOXES.get(inbox, inbox),
            status=status,
            outcome=outcome.model_dump_json(),
        )
        if fate == "done":
            count_outcome(outcome)
            _log.info("job ended from outside", job_id=job_id, status=status, stage=inbox)
    return fate == "done"


async def _outcome(steps: Steps, job_id: str, found: dict[bytes, bytes], stream: str, entry_id: str) -> Answered:
    # The job's current command is in its stream until it is finished: the trail and evidence so far are there.
    entries: Any = await steps.redis.xrange(stream, entry_id, entry_id) if stream else []
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
