"""Workers in this process, with handlers of the test's choosing, on a real server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from redis.asyncio import Redis

from services.gateway.decision import read_ask
from services.gateway.handler import admit
from services.gateway.main import create_groups
from services.gateway.reaper import reap
from services.gateway.settings import JwtSettings
from services.gateway.tokens import TokenVerifier
from shared.contracts import (
    Answered,
    Budget,
    Command,
    Generate,
    Grade,
    Header,
    Question,
    Retrieve,
    Rewrite,
)
from shared.runtime.keys import INBOXES, Keys
from shared.runtime.stage import Inbox, Stage
from shared.runtime.subscriber import ensure_group
from shared.runtime.worker import Worker
from shared.settings import RuntimeSettings

if TYPE_CHECKING:  # an extra
    from shared.runtime.tracing import BeginSpan

FAST = RuntimeSettings(
    claim_after_s=0.8,
    heartbeat_s=0.1,
    block_s=0.1,
    grace_s=2.0,
    backoff_initial_s=0.02,
    backoff_max_s=0.1,
    reap_every_s=0.05,
    job_ttl_s=600,
)


async def rewrite(msg: Rewrite) -> Retrieve:
    """A stage that does nothing but pass the job on."""
    return Retrieve(header=msg.header, asked=msg.asked, route="factual", queries=(msg.asked.question[:100],))


async def retrieve(msg: Retrieve) -> Grade:
    """A stage that does nothing but pass the job on."""
    return Grade(header=msg.header, asked=msg.asked, route=msg.route, queries=msg.queries, passages=())


async def grade(msg: Grade) -> Generate:
    """A stage that does nothing but pass the job on."""
    return Generate(header=msg.header, asked=msg.asked, route=msg.route, verdict="correct")


async def generate(msg: Generate) -> Answered:
    """A stage that answers with the question."""
    return Answered.ending(msg.header, "answered", now=time.time(), answer=msg.asked.question)


def gateway(settings: JwtSettings | None = None) -> Stage:
    """The real gateway."""
    inbox = Inbox.of(
        admit,
        max_workers=32,
        read=read_ask,
        verifier=TokenVerifier(settings or JwtSettings()),
        budget=Budget(),
    )
    return Stage("gateway", [inbox], chores=[create_groups, reap])


def stage(handler: Callable[..., Any], *, max_workers: int = 8, **dependencies: Any) -> Stage:
    """A stage of one handler."""
    inbox = Inbox.of(handler, max_workers=max_workers, **dependencies)
    return Stage(inbox.group, [inbox])


PASSING = (rewrite, retrieve, grade, generate)


def pipeline(*instead: Callable[..., Any]) -> list[Stage]:
    """Every stage from gateway to generator, passing jobs on; handlers given here replace those of their stage."""
    mine = {stage(handler).name: stage(handler) for handler in instead}
    return [gateway(), *(mine.get(stage(handler).name, stage(handler)) for handler in PASSING)]


@asynccontextmanager
async def running(
    stages: Sequence[Stage],
    url: str,
    keys: Keys,
    settings: RuntimeSettings = FAST,
    *,
    begin_span: BeginSpan | None = None,
) -> AsyncIterator[list[Worker]]:
    """These stages, one worker each, until the body ends; then each stops as on SIGTERM."""
    workers = [Worker(each, url, keys, settings, begin_span=begin_span) for each in stages]
    client = Redis.from_url(url)
    for inbox, group in INBOXES.items():
        await ensure_group(client, keys.inbox(inbox), group)
    await client.aclose()
    tasks = [asyncio.create_task(serve(worker)) for worker in workers]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.app.exit()
        await asyncio.gather(*tasks)


async def serve(worker: Worker) -> None:
    """Run a worker to its end; for tests, without taking over the process's signals."""
    async with worker.app.lifespan_context():
        await worker.app.start()
        while not worker.app._should_exit:  # noqa: ASYNC110  as FastStream itself does
            await asyncio.sleep(0.01)
        await worker.app.stop()
    await worker.redis.aclose()


def header(job_id: str = "job-1", **fields: Any) -> Header:
    """A header as the gateway would write it, a minute before its deadline."""
    now = time.time()
    return Header(**{"job_id": job_id, "entry_id": "1-0", "submitted_at": now, "deadline": now + 60, **fields})


def question(text: str = "How long do I have to return a tent?", **fields: Any) -> Question:
    return Question(question=text, **fields)


async def ask(redis: Redis, keys: Keys, text: str = "Why?", **fields: Any) -> str:
    """Submit a question; answers its job id."""
    entry_id: Any = await redis.xadd(keys.inbox("gateway"), {"data": json.dumps({"question": text, **fields})})
    return str(fields.get("job_id") or entry_id.decode())


async def outcome(redis: Redis, keys: Keys, job_id: str) -> Answered | None:
    """The job's outcome, once it has one."""
    raw = await redis.hget(keys.job(job_id), "outcome")
    return Answered.model_validate_json(raw) if raw else None


async def terminals(redis: Redis, keys: Keys, job_id: str) -> list[dict[str, Any]]:
    """The terminal events of a job: there must be exactly one."""
    entries: Any = await redis.xrange(keys.events(job_id))
    return [json.loads(fields[b"data"]) for _, fields in entries if fields[b"type"] == b"terminal"]


async def residue(redis: Redis, keys: Keys) -> dict[str, Any]:
    """What should not be left when all jobs have ended: entries in work streams, pending ones, keys without TTL."""
    left: dict[str, Any] = {}
    streams = {keys.inbox(inbox): group for inbox, group in INBOXES.items()}
    for stream, group in streams.items():
        if length := await redis.xlen(stream):
            left[f"{stream} entries"] = length
        pending: Any = await redis.xpending(stream, group)
        if pending["pending"]:
            left[f"{stream} pending"] = pending["pending"]
    async for key in redis.scan_iter(f"{keys.prefix}*"):
        name = key.decode()
        if name not in streams and name not in (keys.results, keys.dead) and await redis.ttl(name) < 0:
            left[f"{name} without TTL"] = True
    return left


async def put(redis: Redis, keys: Keys, command: Command) -> str:
    """Publish a command behind the gateway's back, as a forger would."""
    entry_id: Any = await redis.xadd(keys.inbox(command.inbox), {"data": command.model_dump_json()})
    return str(entry_id.decode())
