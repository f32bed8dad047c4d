"""Prometheus metrics, in base units with closed label sets. Names are part of the public surface (design §3)."""

from __future__ import annotations

import typing

from prometheus_client import Counter, Gauge, Histogram

from shared.contracts import Answered, Status

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120)

DELIVERIES = Counter("cairn_deliveries", "Deliveries by how they ended.", ("stage", "outcome"))
STAGE_SECONDS = Histogram("cairn_stage_seconds", "Work on one delivery.", ("stage",), buckets=_SECONDS)
QUEUE_WAIT_SECONDS = Histogram(
    "cairn_queue_wait_seconds", "From a message's arrival in its inbox to its handler.", ("stage",), buckets=_SECONDS
)
JOB_SECONDS = Histogram("cairn_job_seconds", "From submission to outcome.", ("status",), buckets=_SECONDS)
STREAM_WAITING = Gauge("cairn_stream_waiting", "Messages in the inbox that nobody works on yet.", ("stage",))
STREAM_PENDING = Gauge("cairn_stream_pending", "Messages in the hands of workers.", ("stage",))
STREAM_OLDEST_SECONDS = Gauge(
    "cairn_stream_oldest_seconds", "Age of the oldest message in the inbox, in hand or not; 0 without one.", ("stage",)
)
IN_HAND = Gauge("cairn_in_hand", "Deliveries this worker works on.", ("stage",))
CAPACITY = Gauge("cairn_capacity", "Deliveries this worker can work on at once.", ("stage",))
DEAD_LETTERS = Counter("cairn_dead_letters", "Messages given up.", ("stage", "reason"))
CLAIMED = Counter("cairn_claimed", "Deliveries taken over: their worker fell silent, or handed them back.", ("stage",))
RETRIES = Counter("cairn_retries", "Tries repeated after a transient error.", ("stage",))
VERDICTS = Counter("cairn_verdicts", "Decisions of the grader.", ("verdict",))
TOKENS = Counter("cairn_tokens", "Model tokens.", ("stage", "kind"))
COST = Counter("cairn_cost", "What models cost, in the currency of CAIRN_PRICES.", ("stage",))
DEGRADED = Counter("cairn_degraded", "Jobs whose outcome says what they had to do without.")
JOBS_RUNNING = Gauge("cairn_jobs_running", "Jobs admitted and not ended; told by the gateway.")
HEALTHY = Gauge("cairn_healthy", "1 while /healthz answers 200.")
EVENT_LOOP_LAG_SECONDS = Histogram(
    "cairn_event_loop_lag_seconds", "How late the event loop woke a sleeper.", buckets=(0.001, *_SECONDS[:11])
)

DEAD_LETTER_REASONS = ("invalid", "permanent", "bug", "unavailable", "deadline", "superseded", "unknown")


def start_at_zero(stage: str) -> None:
    """Show the counters that alerts watch before they count: `increase` does not see the event a series begins with."""
    CLAIMED.labels(stage)
    RETRIES.labels(stage)
    for reason in DEAD_LETTER_REASONS:
        DEAD_LETTERS.labels(stage, reason)
    for status in typing.get_args(Status):
        JOB_SECONDS.labels(status)


def count_outcome(outcome: Answered) -> None:
    """Count a job that has just ended, once: by whoever's step ended it."""
    JOB_SECONDS.labels(outcome.status).observe(outcome.seconds, {"job_id": outcome.job_id[:100]})
    DEGRADED.inc(bool(outcome.degraded))
    for spent in outcome.usage:
        TOKENS.labels(spent.stage, "prompt").inc(spent.prompt_tokens)
        TOKENS.labels(spent.stage, "completion").inc(spent.completion_tokens)
        COST.labels(spent.stage).inc(spent.cost or 0.0)
