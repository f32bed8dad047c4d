"""Every change that touches several keys, as one named Lua step (`lua/`), atomic and fenced.

`Steps` is typed access to them. Calls made while one is on the wire are sent together in one pipeline, which is what
keeps the cost of a hop near that of bare redis-py (bench/bus.py).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, cast

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from shared.contracts import Command
from shared.runtime.connection import lost_connection
from shared.runtime.keys import Keys
from shared.settings import RuntimeSettings

Fate = Literal["done", "fenced", "unknown", "ended", "superseded", "duplicate", "taken", "moved"]
"""What a step answers: `done`, or why it changed nothing (each step's Lua says which it can answer)."""

Argument = str | bytes | int | float


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery taken over from a silent worker. `deliveries` counts this one."""

    entry_id: str
    fields: dict[bytes, bytes]
    deliveries: int


class Script:
    """The source of one step, with the common prelude in front, and its digest for EVALSHA."""

    def __init__(self, name: str) -> None:
        folder = resources.files("shared.runtime") / "lua"
        prelude, body = ((folder / f"{part}.lua").read_text("utf-8") for part in ("_common", name))
        self.source = f"{prelude}\n{body}"
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


_NAMES = "admit advance finish reject end settle bury claim renew hand_back leave forget readmit"
SCRIPTS = {name: Script(name) for name in _NAMES.split()}


@dataclass(slots=True)
class _Call:
    script: Script
    keys: Sequence[str]
    arguments: Sequence[Argument]
    reply: asyncio.Future[Any]


class Steps:
    """The steps on one Redis connection pool, for deliveries that `consumer` holds.

    Raises redis-py's errors; the runtime alone handles those.
    """

    def __init__(self, redis: Redis, keys: Keys, settings: RuntimeSettings, *, consumer: str = "") -> None:
        self.redis = redis
        self.keys = keys
        self.settings = settings
        self.consumer = consumer
        self._waiting: list[_Call] = []
        self._sender: asyncio.Task[None] | None = None

    async def admit(
        self,
        entry_id: str,
        *,
        job_id: str,
        tenant: str,
        submitted_at: float,
        deadline: float,
        inbox: str,
        command: str,
        event: str,
    ) -> Fate:
        """A question becomes a job whose first command waits in `inbox`."""
        keys = self.keys
        ttl_s = int(self.settings.job_ttl_s + max(0.0, deadline - submitted_at))
        return await self._finished(
            "admit",
            (keys.inbox("gateway"), keys.job(job_id), keys.events(job_id), keys.deadlines, keys.inbox(inbox)),
            ("gateway", entry_id, job_id, tenant, submitted_at, deadline, inbox, command, event, ttl_s),
        )

    async def advance(
        self, inbox: str, group: str, entry_id: str, *, job_id: str, next_inbox: str, command: str, event: str
    ) -> Fate:
        """The job moves from this delivery to `command` in `next_inbox`."""
        keys = self.keys
        return await self._finished(
            "advance",
            (keys.inbox(inbox), keys.job(job_id), keys.events(job_id), keys.inbox(next_inbox)),
            (group, entry_id, next_inbox, command, event, self._ttl_s),
        )

    async def finish(
        self, inbox: str, group: str, entry_id: str, *, job_id: str, status: str, outcome: str, dead_letter: str = ""
    ) -> Fate:
        """This delivery ends its job."""
        keys = self.keys
        return await self._finished(
            "finish",
            (
                keys.inbox(inbox),
                keys.job(job_id),
                keys.events(job_id),
                keys.deadlines,
                keys.results,
                keys.dead,
            ),
            (
                group,
                entry_id,
                job_id,
                status,
                outcome,
                dead_letter,
                self._ttl_s,
                self.settings.results_max_len,
                self.settings.dead_max_len,
            ),
        )

    async def reject(self, entry_id: str, *, job_id: str, tenant: str, outcome: str) -> Fate:
        """A question that can't become a job gets its `failed` outcome."""
        keys = self.keys
        return await self._finished(
            "reject",
            (keys.inbox("gateway"), keys.job(job_id), keys.events(job_id), keys.deadlines, keys.results),
            ("gateway", entry_id, job_id, tenant, outcome, self._ttl_s, self.settings.results_max_len),
        )

    async def end(self, *, job_id: str, at: str, group: str, status: str, outcome: str) -> Fate:
        """End a job from outside; `at` is the place ("stream id") its command was read from."""
        stream, _, entry_id = at.partition(" ")
        keys = self.keys
        return await self._fate(
            "end",
            (keys.job(job_id), keys.events(job_id), keys.deadlines, keys.results, stream),
            (job_id, at, group, entry_id, status, outcome, self._ttl_s, self.settings.results_max_len),
        )

    async def settle(
        self, inbox: str, group: str, entry_id: str, *, run_id: str, event: str, dead_letter: str = ""
    ) -> Fate:
        """A delivery without a job is done."""
        return await self._finished(
            "settle",
            (self.keys.inbox(inbox), self.keys.events(run_id), self.keys.dead),
            (group, entry_id, event, dead_letter, self._ttl_s, self.settings.dead_max_len),
        )

    async def bury(self, inbox: str, group: str, entry_id: str, *, dead_letter: str) -> Fate:
        """A delivery of no living job becomes a dead letter."""
        return await self._finished(
            "bury",
            (self.keys.inbox(inbox), self.keys.dead),
            (group, entry_id, dead_letter, self.settings.dead_max_len),
        )

    async def readmit(self, command: Command) -> Fate:
        """A dead letter's command becomes a new job of its header's id, at the stage where it failed."""
        keys, header = self.keys, command.header
        event = json.dumps(
            {"stage": "operator", "hop": header.hop, "next": command.inbox, "wait_s": 0.0, "work_s": 0.0}
        )
        return await self._fate(
            "readmit",
            (keys.job(header.job_id), keys.events(header.job_id), keys.deadlines, keys.inbox(command.inbox)),
            (
                header.job_id,
                header.principal.tenant,
                header.entry_id,
                header.submitted_at,
                header.deadline,
                command.inbox,
                command.model_dump_json(),
                event,
                self._ttl_s,
            ),
        )

    async def claim(self, inbox: str, group: str, *, cursor: str, count: int) -> tuple[str, list[Claimed]]:
        """Up to `count` deliveries idle for longer than the claim time, and the cursor to go on from."""
        arguments = (group, self.consumer, int(self.settings.claim_after_s * 1000), cursor, count)
        next_cursor, entries = await self._call("claim", (self.keys.inbox(inbox),), arguments)
        return next_cursor.decode(), [
            Claimed(entry_id.decode(), dict(zip(fields[::2], fields[1::2], strict=True)), int(deliveries))
            for entry_id, fields, deliveries in entries
        ]

    async def renew(self, inbox: str, group: str, entry_ids: Sequence[str]) -> list[str]:
        """Heartbeat for `entry_ids`; answers those that this consumer owns no more."""
        lost = await self._call("renew", (self.keys.inbox(inbox),), (group, self.consumer, *entry_ids))
        return [entry_id.decode() for entry_id in lost]

    async def hand_back(self, inbox: str, group: str, entry_id: str, *, after_s: float) -> bool:
        """Give a delivery up so that any worker takes it after `after_s` (at most the claim time)."""
        arguments = (group, self.consumer, entry_id, self._claimable_ms, int(after_s * 1000))
        return bool(await self._call("hand_back", (self.keys.inbox(inbox),), arguments))

    async def leave(self, inbox: str, group: str) -> int:
        """Hand back, uncounted, all that this consumer still holds, to be claimed at once; answers how many."""
        arguments = (group, self.consumer, self._claimable_ms)
        return int(await self._call("leave", (self.keys.inbox(inbox),), arguments))

    async def forget(self, inbox: str, group: str) -> list[str]:
        """Remove consumers that hold nothing and have been silent for `consumer_idle_s`; answers their names."""
        arguments = (group, int(self.settings.consumer_idle_s * 1000))
        removed = await self._call("forget", (self.keys.inbox(inbox),), arguments)
        return [name.decode() for name in removed]

    @property
    def _claimable_ms(self) -> int:
        # One more than the claim time: XAUTOCLAIM takes what is idle for at least that long, to the millisecond.
        return int(self.settings.claim_after_s * 1000) + 1

    @property
    def _ttl_s(self) -> int:
        return int(self.settings.job_ttl_s)

    async def _fate(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Fate:
        return cast(Fate, (await self._call(name, keys, arguments)).decode())

    async def _finished(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Fate:
        """A step that ends a delivery; its last argument is who must hold it."""
        return await self._fate(name, keys, (*arguments, self.consumer))

    async def _call(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        # Encoded here, so that text which can't be is its caller's problem and nobody else's in the pipeline.
        encoded = [value.encode() if isinstance(value, str) else value for value in arguments]
        call = _Call(SCRIPTS[name], keys, encoded, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_waiting())
        return await call.reply

    async def _send_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                replies = await self._send(batch)
            except (RedisError, OSError, ValueError, TypeError) as error:
                replies = [error] * len(batch)
            except RuntimeError as error:
                replies = [lost_connection(error)] * len(batch)
            except asyncio.CancelledError:
                for call in batch:
                    call.reply.cancel()
                raise
            for call, reply in zip(batch, replies, strict=True):
                if call.reply.done():  # its caller was cancelled
                    continue
                if isinstance(reply, BaseException):
                    call.reply.set_exception(reply)
                else:
                    call.reply.set_result(reply)

    async def _send(self, batch: list[_Call]) -> list[Any]:
        async with self.redis.pipeline(transaction=False) as pipeline:
            for call in batch:
                pipeline.evalsha(call.script.sha, len(call.keys), *call.keys, *call.arguments)
            replies = await pipeline.execute(raise_on_error=False)
        missing = {call.script.sha: call.script for call, reply in _pairs(batch, replies) if _unknown(reply)}
        if not missing:
            return replies
        # A restarted server, or SCRIPT FLUSH. A refused call changed nothing, so it goes out again as it was.
        for script in missing.values():
            await self.redis.script_load(script.source)
        again = [call for call, reply in _pairs(batch, replies) if _unknown(reply)]
        answers = iter(await self._send(again))
        return [next(answers) if _unknown(reply) else reply for reply in replies]


def _pairs(batch: list[_Call], replies: list[Any]) -> zip[tuple[_Call, Any]]:
    return zip(batch, replies, strict=True)


def _unknown(reply: object) -> bool:
    return isinstance(reply, NoScriptError)
