"""One hand-over of a message, and what follows from how it went. Pure: no Redis, no clock, no randomness of its own."""

from __future__ import annotations

import math
import re
import traceback
from dataclasses import dataclass
from pathlib import PurePath
from typing import TypeVar

from pydantic import ValidationError

from shared.contracts import Contract
from shared.errors import CairnError, InvalidJob, PermanentError, TransientError

C = TypeVar("C", bound=Contract)

MAX_ERROR_CHARS = 2_000
ENTRY_ID = re.compile(r"\d+-\d+")
"""How Redis names entries, and Cairn the jobs that were given no id."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message in hand. `deliveries` is how often it has been handed over, this time included."""

    inbox: str
    entry_id: str
    fields: dict[bytes, bytes]
    deliveries: int = 1

    @property
    def submitted_at(self) -> float:
        """When the entry was added, by the server's clock (entry ids start with its milliseconds)."""
        return int(self.entry_id.partition("-")[0]) / 1000

    @property
    def size_bytes(self) -> int:
        return sum(len(name) + len(value) for name, value in self.fields.items())


@dataclass(frozen=True, slots=True)
class RetryHere:
    """Run the handler again in this worker after `after_s`. Its slot stays taken, so that a dead endpoint slows the
    intake down instead of filling workers with waiting jobs."""

    after_s: float


@dataclass(frozen=True, slots=True)
class Redeliver:
    """Hand the message to whichever worker claims it next, after `after_s`."""

    after_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No further try: dead letter, and a `failed` outcome for the client. `reason` is a closed set, for metrics."""

    reason: str


AfterFailure = RetryHere | Redeliver | GiveUp


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays in seconds; `max_deliveries` bounds hand-overs after bugs and crashes, not transient retries."""

    initial_s: float = 0.2
    max_s: float = 10.0
    max_deliveries: int = 5
    max_attempts: int = 30
    """Tries of a message without a deadline (ingestion), about five minutes."""

    def backoff_s(self, attempt: int, jitter: float) -> float:
        """Exponential with full jitter on the upper half; `attempt` starts at 1, `jitter` is in [0, 1)."""
        ceiling = min(self.max_s, self.initial_s * 2.0 ** min(attempt - 1, 30))
        return ceiling * (0.5 + jitter / 2)


def after_failure(
    error: Exception, *, attempt: int, deliveries: int, seconds_left: float, policy: RetryPolicy, jitter: float
) -> AfterFailure:
    """What to do with a delivery whose handler raised `error` at its `attempt`-th try in this worker.

    `seconds_left` is the time to the job's deadline (infinite for messages without a job).
    """
    if isinstance(error, TransientError):
        if math.isinf(seconds_left) and attempt >= policy.max_attempts:
            return GiveUp("unavailable")
        wait_s = max(policy.backoff_s(attempt, jitter), error.retry_after_s or 0.0)
        return RetryHere(wait_s) if wait_s < seconds_left else GiveUp("deadline")
    if isinstance(error, InvalidJob):
        return GiveUp("invalid")
    if isinstance(error, PermanentError):
        return GiveUp("permanent")
    if deliveries >= policy.max_deliveries:
        return GiveUp("bug")
    return Redeliver(policy.backoff_s(deliveries, jitter))


def read_command(model: type[C], delivery: Delivery, max_bytes: int) -> C:
    """The command in the entry's `data` field. Raises InvalidJob, which says what is wrong with it."""
    check_size(delivery, max_bytes)
    if set(delivery.fields) != {b"data"}:
        raise InvalidJob(f"expected one field, data; got {field_names(delivery)}")
    return parse(model, delivery.fields[b"data"])


def parse(model: type[C], text: bytes) -> C:
    """`text` as JSON of this contract. Raises InvalidJob."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise InvalidJob(explain(error)) from error


def check_size(delivery: Delivery, max_bytes: int) -> None:
    if delivery.size_bytes > max_bytes:
        raise InvalidJob(
            f"the message has {delivery.size_bytes} bytes, more than {max_bytes} (CAIRN_MAX_MESSAGE_BYTES)"
        )


def field_names(delivery: Delivery) -> str:
    return ", ".join(repr(name[:40].decode("utf-8", "replace")) for name in sorted(delivery.fields)[:10]) or "none"


def explain(error: ValidationError) -> str:
    """Field by field what is wrong, without the values: they may hold secrets or a megabyte of text."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    shown = [f"{_clipped('.'.join(map(str, fault['loc']))) or 'message'}: {fault['msg']}" for fault in faults[:5]]
    return "; ".join(shown) + (f"; and {len(faults) - 5} more" if len(faults) > 5 else "")


def told(error: BaseException) -> str:
    """What may be said of an error to clients and logs: ours in full, up to a bound; of a bug only its kind and place.

    The text of foreign exceptions quotes what they choked on: questions, passages, keys.
    """
    if isinstance(error, CairnError):
        text = str(error) or type(error).__name__
        return text.encode("utf-8", "backslashreplace").decode()[:MAX_ERROR_CHARS]
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


def _clipped(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"
