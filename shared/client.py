"""What a program does with Cairn: submit a question, follow it, read its outcome, cancel it. Redis is all it needs."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from shared.contracts import Answered, Ask, Contract
from shared.runtime.keys import Keys

POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a job or an ingestion run: `stage`, `token` or `terminal`, with its data."""

    type: str
    data: dict[str, Any]


class Client:
    """Talks to the streams of one Cairn. Raises redis-py's errors."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self.redis = redis
        self.keys = keys

    async def submit(self, ask: Ask) -> str:
        """Publish a question; answers its job id, which is the entry's unless the question names one."""
        entry_id = await self.publish("gateway", ask)
        return ask.job_id or entry_id

    async def publish(self, inbox: str, message: Contract) -> str:
        """Publish any message to an inbox; answers the entry's id."""
        private = {"entry_id"} if isinstance(message, Ask) else None
        body = message.model_dump_json(exclude_defaults=True, exclude=private)
        entry_id: Any = await self.redis.xadd(self.keys.inbox(inbox), {"data": body})
        return str(entry_id.decode())

    async def follow(self, job_id: str, *, within_s: float) -> AsyncIterator[Event]:
        """The job's events from its first on, as they come, up to and including the terminal one.

        Raises TimeoutError when `within_s` pass without an end.
        """
        last = b"0-0"
        deadline = time.monotonic() + within_s
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"job {job_id} did not end within {within_s:.0f} s")
            block_ms = max(1, int(min(POLL_S, left_s) * 1000))
            reply: Any = await self.redis.xread({self.keys.events(job_id): last}, block=block_ms, count=100)
            for _, entries in reply:
                for entry_id, fields in entries:
                    last = entry_id
                    event = Event(fields[b"type"].decode(), json.loads(fields[b"data"]))
                    yield event
                    if event.type == "terminal":
                        return

    async def wait(self, job_id: str, *, within_s: float) -> Answered:
        """The job's outcome, once it has one. Raises TimeoutError."""
        async for event in self.follow(job_id, within_s=within_s):
            if event.type == "terminal":
                return Answered.model_validate(event.data)
        raise AssertionError("follow ends with a terminal event or raises")

    async def outcome(self, job_id: str) -> Answered | None:
        """The outcome, or None while there is none."""
        raw = await self.redis.hget(self.keys.job(job_id), "outcome")
        return Answered.model_validate_json(raw) if raw else None

    async def status(self, job_id: str) -> dict[str, str]:
        """The job's hash as text, without its outcome; empty for an unknown id."""
        raw: Any = await self.redis.hgetall(self.keys.job(job_id))
        return {name.decode(): value.decode() for name, value in raw.items() if name != b"outcome"}

    async def events(self, job_id: str) -> list[Event]:
        """The events so far."""
        entries: Any = await self.redis.xrange(self.keys.events(job_id))
        return [Event(fields[b"type"].decode(), json.loads(fields[b"data"])) for _, fields in entries]


async def ask_and_wait(client: Client, ask: Ask) -> Answered:
    """Submit and wait for the outcome, a little longer than the deadline: the gateway ends late jobs itself."""
    job_id = await client.submit(ask)
    return await client.wait(job_id, within_s=ask.deadline_s + 10)
