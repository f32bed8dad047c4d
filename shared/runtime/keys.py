"""The one place that names Redis keys and streams."""

from __future__ import annotations

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
