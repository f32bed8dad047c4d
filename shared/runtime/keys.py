"""The one place that names Redis keys and streams."""

from __future__ import annotations

import time
from dataclasses import dataclass

from shared.contracts import Answered, Command, Contract

STAGES = ("gateway", "rewriter", "retriever", "grader", "websearch", "generator")
INBOXES: dict[str, str] = {**{stage: stage for stage in STAGES}, "ingest": "retriever"}
"""Inbox name -> consumer group, which is the name of the service that reads it."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Key names under one prefix. Redis Cluster needs a hash tag in it, `{cairn}:`, for the steps to stay atomic."""

    prefix: str = "cairn:"

    def inbox(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def destination(self, message: type[Contract]) -> str | None:
        """The stream that messages of this type go to; None for those that go into a job's events."""
        if issubclass(message, Answered):
            return self.results
        return self.inbox(message.inbox) if issubclass(message, Command) else None

    def job(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}"

    def events(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}:events"

    def grade(self, digest: str) -> str:
        """A judge's grade of one passage for one question."""
        return f"{self.prefix}grade:{digest}"

    def limit(self, payer: str) -> str:
        """Begins the keys of a limit on calls to an endpoint."""
        return f"{self.prefix}limit:{payer}"

    @property
    def control(self) -> str:
        """Hash of the switches that operators set."""
        return f"{self.prefix}control"

    @property
    def groundedness(self) -> str:
        """List of the latest answers: 1 for one that held, 0 for one that didn't."""
        return f"{self.prefix}groundedness"

    def spent(self, tenant: str, day: str) -> str:
        return f"{self.prefix}spent:{tenant}:{day}"

    def spent_today(self, tenant: str) -> str:
        """Hash of what a tenant's jobs cost that ended on this day (UTC): calls, tokens, cost."""
        return self.spent(tenant, str(int(time.time()) // 86_400))

    @property
    def results(self) -> str:
        return f"{self.prefix}results"

    @property
    def dead(self) -> str:
        return f"{self.prefix}dead"

    @property
    def deadlines(self) -> str:
        """Sorted set of running jobs by deadline; empty (and so absent) when nothing runs."""
        return f"{self.prefix}deadlines"
