"""What happens to one delivery between being taken and being finished: run, sort the failure, retry, commit, report.

The only place in Cairn that catches Exception, and the only one that acknowledges. FastStream calls it as the
subscriber's middleware; the handler it wraps knows none of this.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from faststream import BaseMiddleware
from faststream.message import StreamMessage
from redis.exceptions import RedisError, ResponseError

from shared.contracts import Answered, Ask, Command, Contract
from shared.errors import InvalidJob, TransientError
from shared.runtime.delivery import Delivery, GiveUp, Redeliver, RetryHere, RetryPolicy, after_failure, told
from shared.runtime.finishing import Finishing, Took
from shared.runtime.logs import logger
from shared.runtime.metrics import DEAD_LETTERS, DELIVERIES, QUEUE_WAIT_SECONDS, RETRIES, STAGE_SECONDS
from shared.runtime.stage import Inbox
from shared.runtime.steps import Fate, Steps
from shared.settings import RuntimeSettings

if TYPE_CHECKING:  # an extra
    from shared.runtime.tracing import BeginSpan, DeliverySpan

_log = logger("cairn")

COMMIT_ATTEMPTS = 12
"""Tries of a finished delivery's step while Redis is away, a minute or more; after that it is claimed and run again."""
HANDLER_LIMIT_S = 900.0
"""For a message without a deadline: embedding one part of a document on a slow machine fits in."""


Call = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class _InHand:
    """A delivery with its message, or with the error that says why there is none."""

    delivery: Delivery
    message: Contract | InvalidJob
    started: float
    span: DeliverySpan | None = None

    @property
    def readable(self) -> Contract | None:
        return None if isinstance(self.message, InvalidJob) else self.message

    @property
    def command(self) -> Command | None:
        return self.message if isinstance(self.message, Command) else None

    @property
    def deadline(self) -> float:
        if isinstance(self.message, Ask):  # no job yet, so no reaper looks after it
            return min(self.delivery.submitted_at, self.started) + self.message.deadline_s
        return self.command.header.deadline if self.command is not None else math.inf

    def took(self) -> Took:
        return Took(max(0.0, self.started - self.delivery.submitted_at), time.time() - self.started)


class Handling:
    """Sorts and finishes the deliveries of one inbox."""

    def __init__(
        self,
        inbox: Inbox,
        steps: Steps,
        settings: RuntimeSettings,
        consumer: str,
        begin_span: BeginSpan | None = None,
    ) -> None:
        self.inbox = inbox
        self.steps = steps
        self.settings = settings
        self.consumer = consumer
        self.begin_span = begin_span
        self.finishing = Finishing(inbox, steps, consumer)
        self.policy = RetryPolicy(
            initial_s=settings.backoff_initial_s, max_s=settings.backoff_max_s, max_deliveries=settings.max_deliveries
        )

    def read(self, delivery: Delivery) -> Contract | InvalidJob:
        """The delivery's message, or why it can't be read: sorting that out is `run`'s business."""
        try:
            return self.inbox.read(delivery, self.settings.max_message_bytes)
        except InvalidJob as unreadable:
            return unreadable

    async def run(self, delivery: Delivery, message: Contract | InvalidJob, call: Call) -> None:
        """Work on a delivery to its end: published, given up, handed back, or found to be somebody else's."""
        span = None if self.begin_span is None else self.begin_span(self.inbox.group, message)
        task = _InHand(delivery, message, time.time(), span)
        outcome, error = "cancelled", ""
        try:
            outcome, error = await self._run(task, call)
        finally:
            self._report(task, outcome, error)

    async def _run(self, task: _InHand, call: Call) -> tuple[str, str]:
        """Answers how the delivery ended, and the error's text where there is one."""
        attempt = 0
        while True:
            attempt += 1
            try:
                result = await self._result(task, call)
                if task.span is not None:
                    result = task.span.carried_by(result)
                fate = await self._commit(task, self.finishing.succeed, task.readable, result, task.took())
                return (_success(result) if fate == "done" else fate), ""
            except Exception as error:  # noqa: BLE001  sorted here, once, for every stage
                match after_failure(
                    error,
                    attempt=attempt,
                    deliveries=task.delivery.deliveries,
                    seconds_left=task.deadline - time.time(),
                    policy=self.policy,
                    jitter=random.random(),
                ):
                    case RetryHere(after_s):
                        RETRIES.labels(self.inbox.group).inc()
                        _log.warning("trying again", **self._place(task), after_s=round(after_s, 2), error=told(error))
                        await asyncio.sleep(after_s)
                    case Redeliver(after_s):
                        _log.error("handler failed", **self._place(task), error=told(error), stack=stack(error))
                        await self._hand_back(task.delivery, after_s)
                        return "redelivered", told(error)
                    case GiveUp(reason):
                        return await self._give_up(task, error, reason)

    async def _result(self, task: _InHand, call: Call) -> Any:
        if isinstance(task.message, InvalidJob):
            raise task.message
        if task.delivery.deliveries > self.settings.max_deliveries:
            raise _WorkersDied(
                f"handed over {task.delivery.deliveries - 1} times and never finished: it seems to kill its workers"
            )
        try:
            async with asyncio.timeout(self._seconds_for(task)) as limit:
                result = await call()
        except TimeoutError as error:
            if limit.expired():
                raise _TooLate("the time for it is over") from error
            raise
        self.finishing.check(result)
        return result

    def _seconds_for(self, task: _InHand) -> float:
        """What a handler may take: until the deadline, or long enough for a part of a document."""
        return HANDLER_LIMIT_S if math.isinf(task.deadline) else max(0.0, task.deadline - time.time())

    async def _give_up(self, task: _InHand, error: Exception, reason: str) -> tuple[str, str]:
        text = told(error)
        if reason == "bug":
            _log.error("handler failed for good", **self._place(task), error=text, stack=stack(error))
            text = f"internal error after {task.delivery.deliveries} deliveries: {text}"
        try:
            if reason == "deadline" and task.command is not None:
                why = "" if isinstance(error, _TooLate) else text
                expire = partial(self.finishing.expire, why=why)
                fate = await self._commit(task, expire, task.command, task.took())
                return ("expired" if fate == "done" else fate), text
            fail = partial(self.finishing.fail, error=text, reason=reason, took=task.took())
            fate = await self._commit(task, fail, task.readable)
        except Exception as worse:  # noqa: BLE001  nothing may stay in the inbox for ever
            _log.error("can't be given up properly", **self._place(task), error=told(worse), stack=stack(worse))
            fate = await self._commit(task, partial(self.finishing.bury, error=text, reason=reason))
        if fate == "done" and self.inbox.name != "gateway":
            DEAD_LETTERS.labels(self.inbox.group, reason).inc()
        return ("failed" if fate == "done" else fate), text

    async def _commit(self, task: _InHand, step: Callable[..., Awaitable[Fate]], *arguments: Any) -> Fate:
        """Make the result visible, waiting for Redis if it is away: the work is done and must not be done again."""
        for attempt in range(1, COMMIT_ATTEMPTS + 1):
            try:
                fate = await step(task.delivery, *arguments)
                if fate in ("unknown", "superseded"):
                    await self.finishing.disown(task.delivery, task.readable, fate)
                    DEAD_LETTERS.labels(self.inbox.group, fate).inc()
            except (RedisError, OSError) as away:
                if not _passes(away):
                    raise
                if attempt == COMMIT_ATTEMPTS:
                    _log.error("could not finish", **self._place(task), error=str(away))
                    break
                await asyncio.sleep(self.policy.backoff_s(attempt, random.random()))
            else:
                return fate
        return "fenced"

    async def _hand_back(self, delivery: Delivery, after_s: float) -> None:
        try:
            await self.steps.hand_back(self.inbox.name, self.inbox.group, delivery.entry_id, after_s=after_s)
        except (RedisError, OSError) as away:  # then it is claimed after the whole claim time
            _log.warning("could not hand back", entry_id=delivery.entry_id, error=str(away))

    def _report(self, task: _InHand, outcome: str, error: str) -> None:
        stage, took = self.inbox.group, task.took()
        DELIVERIES.labels(stage, outcome).inc()
        STAGE_SECONDS.labels(stage).observe(took.work_s)
        QUEUE_WAIT_SECONDS.labels(stage).observe(took.wait_s)
        facts = self._place(task) | {
            "outcome": outcome,
            "wait_s": round(took.wait_s, 4),
            "seconds": round(took.work_s, 4),
        }
        if task.span is not None:
            task.span.end(facts)
        if error:
            _log.warning("delivery", **facts, error=error)
        else:
            _log.info("delivery", **facts)

    def _place(self, task: _InHand) -> dict[str, Any]:
        place: dict[str, Any] = {"inbox": self.inbox.name, "entry_id": task.delivery.entry_id}
        if task.command is not None:
            place |= {"job_id": task.command.header.job_id, "hop": task.command.header.hop}
        return place | {"delivery": task.delivery.deliveries}


class _TooLate(TransientError):
    """The handler's time was over."""


class _WorkersDied(InvalidJob):
    """A message that was handed over too often without a word."""


def _passes(error: Exception) -> bool:
    """Whether Redis may take the step later: it is away, full, loading or failing over. The rest is a bug of ours, or
    a key of the wrong type."""
    return not isinstance(error, ResponseError) or str(error).startswith(
        ("OOM", "READONLY", "LOADING", "MASTERDOWN", "BUSY", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "NOREPLICAS")
    )


def stack(error: BaseException) -> list[str]:
    """Where it happened, without the error's own text."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)[-8:]]


def _success(result: Contract) -> str:
    return result.status if isinstance(result, Answered) else "done"


class HandlingMiddleware(BaseMiddleware[Any, StreamMessage[Any]]):
    """Lets FastStream run the handler inside `Handling.run`. The delivery rides in the raw message."""

    async def consume_scope(
        self, call_next: Callable[[StreamMessage[Any]], Awaitable[Any]], msg: StreamMessage[Any]
    ) -> None:
        handling: Handling = msg.raw_message["handling"]
        message: Any = await msg.decode()
        await handling.run(msg.raw_message["delivery"], message, lambda: call_next(msg))
