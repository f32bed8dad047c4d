"""How a delivery's result becomes one atomic step: which step, with which event and outcome."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from shared.citations import citations_of
from shared.contracts import PUBLIC_TENANT, Answered, Ask, Command, Contract, Ingest, Ingested, Rewrite, StageTiming
from shared.errors import PermanentError
from shared.runtime.deadletter import dead_letter, job_of, wanted_job_id
from shared.runtime.delivery import Delivery
from shared.runtime.metrics import count_outcome
from shared.runtime.stage import Inbox
from shared.runtime.steps import Fate, Steps


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds a message waited in its inbox, and seconds of work on it."""

    wait_s: float
    work_s: float


class Finishing:
    """The ends a delivery of one inbox can take. Each answers its step's fate and raises redis-py's errors."""

    def __init__(self, inbox: Inbox, steps: Steps, consumer: str) -> None:
        self.inbox = inbox
        self.steps = steps
        self.consumer = consumer
        self._place = (inbox.name, inbox.group)

    def check(self, result: object) -> None:
        """Raises TypeError for what the handler's signature does not declare: a bug of the handler's."""
        if not isinstance(result, self.inbox.signature.emits):
            raise TypeError(
                f"the handler of {self.inbox.name} returned {type(result).__name__}, which it doesn't declare"
            )

    async def succeed(self, delivery: Delivery, message: Contract, result: Contract, took: Took) -> Fate:
        """Publish what the handler returned."""
        if isinstance(message, Ask) and isinstance(result, Rewrite):
            fate = await self._admit(delivery, result, took)
            if fate == "taken":
                return await self._reject(delivery, message, "job_id: already in use; choose another")
            return fate
        if isinstance(message, Ingest) and isinstance(result, Ingested):
            return await self._settle(delivery, message, result)
        if isinstance(message, Command) and isinstance(result, Command):
            return await self._advance(delivery, message, result, took)
        if isinstance(message, Command) and isinstance(result, Answered):
            timings = (*result.timings, self._timing(message, took))
            return await self._finish(delivery, message, result.model_copy(update={"timings": timings}))
        raise TypeError(f"{type(message).__name__} can't end in {type(result).__name__}")

    async def bury(self, delivery: Delivery, *, error: str, reason: str) -> Fate:
        """A plain dead letter: for a delivery of no job, or one that can't even be given up properly."""
        letter = self._letter(delivery, None, error=error, reason=reason)
        return await self.steps.bury(*self._place, delivery.entry_id, dead_letter=letter)

    async def fail(self, delivery: Delivery, message: Contract | None, *, error: str, reason: str, took: Took) -> Fate:
        """Give the delivery up: dead letter, and the client's `failed` outcome where there is a job."""
        if self.inbox.name == "gateway":
            return await self._reject(delivery, message, error)
        job_id = job_of(delivery, message)
        letter = self._letter(delivery, job_id, error=error, reason=reason)
        if isinstance(message, Ingest):
            failed = Ingested(document_id=message.document.document_id, status="failed", error=error)
            return await self._settle(delivery, message, failed, letter)
        if job_id is None:
            return await self.bury(delivery, error=error, reason=reason)
        if isinstance(message, Command):
            header = message.header.updated(timing=self._timing(message, took))
            outcome = Answered.ending(header, "failed", now=time.time(), error=error)
        else:
            outcome = Answered(job_id=job_id, entry_id="", status="failed", error=error)
        return await self._finish(delivery, message, outcome, letter)

    async def expire(self, delivery: Delivery, message: Command, took: Took, *, why: str = "") -> Fate:
        """The deadline passed in our hands, or nothing can be done before it: end the job as the reaper would."""
        header = message.header.updated(timing=self._timing(message, took))
        return await self._finish(delivery, message, timed_out(message.model_copy(update={"header": header}), why))

    async def disown(self, delivery: Delivery, message: Contract | None, fate: Fate) -> None:
        """A finished delivery that turned out to belong to no job, or not to be its job's current command."""
        why = {
            "unknown": "no such job: it was never admitted, or its keys expired",
            "superseded": "not the job's current command: a copy, or published by something other than a stage",
        }[fate]
        letter = self._letter(delivery, job_of(delivery, message), error=why, reason=fate)
        await self.steps.bury(*self._place, delivery.entry_id, dead_letter=letter)

    async def _admit(self, delivery: Delivery, command: Rewrite, took: Took) -> Fate:
        header = command.header.updated(
            timing=StageTiming(stage="gateway", hop=0, wait_s=round(took.wait_s, 6), work_s=round(took.work_s, 6))
        )
        command = command.model_copy(update={"header": header})
        return await self.steps.admit(
            delivery.entry_id,
            job_id=header.job_id,
            tenant=header.principal.tenant,
            submitted_at=header.submitted_at,
            deadline=header.deadline,
            inbox=command.inbox,
            command=self._published(command),
            event=self._event(command, took),
        )

    async def _advance(self, delivery: Delivery, message: Command, command: Command, took: Took) -> Fate:
        command = command.model_copy(update={"header": command.header.updated(timing=self._timing(message, took))})
        return await self.steps.advance(
            *self._place,
            delivery.entry_id,
            job_id=message.header.job_id,
            next_inbox=command.inbox,
            command=self._published(command),
            event=self._event(command, took),
        )

    async def _finish(self, delivery: Delivery, message: Contract | None, outcome: Answered, letter: str = "") -> Fate:
        fate = await self.steps.finish(
            *self._place,
            delivery.entry_id,
            job_id=outcome.job_id,
            tenant=message.header.principal.tenant if isinstance(message, Command) else PUBLIC_TENANT,
            status=outcome.status,
            outcome=outcome.model_dump_json(),
            dead_letter=letter,
        )
        if fate == "done":
            count_outcome(outcome)
        return fate

    async def _reject(self, delivery: Delivery, message: Contract | None, error: str) -> Fate:
        wanted = message.job_id if isinstance(message, Ask) else wanted_job_id(delivery)
        fate: Fate = "taken"
        # An id that belongs to a job already is not touched; the outcome is then found under the entry's own id.
        own = delivery.entry_id
        for job_id in dict.fromkeys((wanted or own, own, f"{own}-refused")):
            outcome = Answered(job_id=job_id, entry_id=delivery.entry_id, status="failed", error=error)
            fate = await self.steps.reject(
                delivery.entry_id, job_id=job_id, tenant=PUBLIC_TENANT, outcome=outcome.model_dump_json()
            )
            if fate != "taken":
                break
        return fate

    async def _settle(self, delivery: Delivery, message: Ingest, result: Ingested, letter: str = "") -> Fate:
        return await self.steps.settle(
            *self._place,
            delivery.entry_id,
            run_id=message.run_id,
            event=result.model_dump_json(),
            dead_letter=letter,
        )

    def _published(self, command: Command) -> str:
        text, limit = command.model_dump_json(), self.steps.settings.max_message_bytes
        if (size := len(text.encode())) > limit:
            raise PermanentError(
                f"the message to the {command.inbox} would have {size} bytes, more than {limit}: lower top_k, "
                "or raise CAIRN_MAX_MESSAGE_BYTES"
            )
        return text

    def _timing(self, message: Command, took: Took) -> StageTiming:
        return StageTiming(
            stage=self.inbox.group, hop=message.header.hop, wait_s=round(took.wait_s, 6), work_s=round(took.work_s, 6)
        )

    def _event(self, command: Command, took: Took) -> str:
        facts: dict[str, Any] = {
            "stage": self.inbox.group,
            "hop": command.header.hop,
            "next": command.inbox,
            "wait_s": round(took.wait_s, 4),
            "work_s": round(took.work_s, 4),
            "worker": self.consumer,
            **command.summary(),
        }
        return json.dumps(facts, ensure_ascii=False)

    def _letter(self, delivery: Delivery, job_id: str | None, *, error: str, reason: str) -> str:
        stage, worker = self.inbox.group, self.consumer
        return dead_letter(delivery, stage=stage, worker=worker, job_id=job_id, error=error, reason=reason)


def timed_out(command: Command, why: str = "") -> Answered:
    """The outcome of a job whose deadline passed while `command` was its current one: the best it has, cited."""
    evidence = command.evidence_so_far()
    return Answered.ending(
        command.header,
        "timed_out",
        now=time.time(),
        citations=citations_of(evidence),
        error=f"the deadline passed in the {command.inbox}" + (f": {why}" if why else ""),
    )
