"""Every change that touches several keys, as one named Lua step (`lua/`), atomic and fenced.

`Steps` is typed access to them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from redis.asyncio import Redis

from shared.contracts import Command
from shared.runtime.keys import Keys
from shared.runtime.scripts import Argument, Scripts
from shared.settings import RuntimeSettings

Fate = Literal["done", "fenced", "unknown", "ended", "superseded", "duplicate", "taken", "moved"]
"""What a step answers: `done`, or why it changed nothing (each step's Lua says which it can answer)."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery taken over from a silent worker. `deliveries` counts this one."""

    entry_id: str
    fields: dict[bytes, bytes]
    deliveries: int


class Steps:
    """The steps on one Redis connection pool, for deliveries that `consumer` holds.

    Raises redis-py's errors; the runtime alone handles those.
    """

    def __init__(self, redis: Redis, keys: Keys, settings: RuntimeSettings, *, consumer: str = "") -> None:
        self.redis = redis
        self.keys = keys
        self.settings = settings
        self.consumer = consumer
        self._scripts = Scripts(redis)

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
        self,
        inbox: str,
        group: str,
        entry_id: str,
        *,
        job_id: str,
        tenant: str,
        status: str,
        outcome: str,
        dead_letter: str = "",
    ) -> Fate:
        """This delivery ends its job, and what it cost goes on the tenant's account."""
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
                keys.spent_today(tenant),
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

    async def end(self, *, job_id: str, tenant: str, at: str, group: str, status: str, outcome: str) -> Fate:
        """End a job from outside; `at` is the place ("stream id") its command was read from."""
        stream, _, entry_id = at.partition(" ")
        keys = self.keys
        return await self._fate(
            "end",
            (
                keys.job(job_id),
                keys.events(job_id),
                keys.deadlines,
                keys.results,
                stream,
                keys.spent_today(tenant),
            ),
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

    async def tell(self, job_id: str, kind: str, data: str) -> Fate:
        """An event of a job that a stage works on; nothing is told of a job that has ended."""
        return await self._fate("tell", (self.keys.job(job_id), self.keys.events(job_id)), (kind, data, self._ttl_s))

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
        next_cursor, entries = await self._scripts.call("claim", (self.keys.inbox(inbox),), arguments)
        return next_cursor.decode(), [
            Claimed(entry_id.decode(), dict(zip(fields[::2], fields[1::2], strict=True)), int(deliveries))
            for entry_id, fields, deliveries in entries
        ]

    async def renew(self, inbox: str, group: str, entry_ids: Sequence[str]) -> list[str]:
        """Heartbeat for `entry_ids`; answers those that this consumer owns no more."""
        lost = await self._scripts.call("renew", (self.keys.inbox(inbox),), (group, self.consumer, *entry_ids))
        return [entry_id.decode() for entry_id in lost]

    async def hand_back(self, inbox: str, group: str, entry_id: str, *, after_s: float) -> bool:
        """Give a delivery up so that any worker takes it after `after_s` (at most the claim time)."""
        arguments = (group, self.consumer, entry_id, self._claimable_ms, int(after_s * 1000))
        return bool(await self._scripts.call("hand_back", (self.keys.inbox(inbox),), arguments))

    async def leave(self, inbox: str, group: str) -> int:
        """Hand back, uncounted, all that this consumer still holds, to be claimed at once; answers how many."""
        arguments = (group, self.consumer, self._claimable_ms)
        return int(await self._scripts.call("leave", (self.keys.inbox(inbox),), arguments))

    async def forget(self, inbox: str, group: str) -> list[str]:
        """Remove consumers that hold nothing and have been silent for `consumer_idle_s`; answers their names."""
        arguments = (group, int(self.settings.consumer_idle_s * 1000))
        removed = await self._scripts.call("forget", (self.keys.inbox(inbox),), arguments)
        return [name.decode() for name in removed]

    @property
    def _claimable_ms(self) -> int:
        # One more than the claim time: XAUTOCLAIM takes what is idle for at least that long, to the millisecond.
        return int(self.settings.claim_after_s * 1000) + 1

    @property
    def _ttl_s(self) -> int:
        return int(self.settings.job_ttl_s)

    async def _fate(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Fate:
        return cast(Fate, (await self._scripts.call(name, keys, arguments)).decode())

    async def _finished(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Fate:
        """A step that ends a delivery; its last argument is who must hold it."""
        return await self._fate(name, keys, (*arguments, self.consumer))
