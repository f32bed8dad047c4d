"""Prometheus metrics, in base units with closed label sets. Names are part of the public surface (design §3)."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from shared.contracts import Answered

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120)

DELIVERIES = Counter("cairn_deliveries", "Deliveries by how they ended.", ("stage", "outcome"))
STAGE_SECONDS = Histogram("cairn_stage_seconds", "Work on one delivery.", ("stage",), buckets=_SECONDS)
QUEUE_WAIT_SECONDS = Histogram(
    "cairn_queue_wait_seconds", "From a message's arrival in its inbox to its handler.", ("stage",), buckets=_SECONDS
)
JOB_SECONDS = Histogram("cairn_job_seconds", "From submission to outcome.", ("status",), buckets=_SECONDS)
STREAM_WAITING = Gauge("cairn_stream_waiting", "Messages in the inbox that nobody works on yet.", ("stage",))
STREAM_PENDING = Gauge("cairn_stream_pending", "Messages in the hands of workers.", ("stage",))
IN_HAND = Gauge("cairn_in_hand", "Deliveries this worker works on.", ("stage",))
DEAD_LETTERS = Counter("cairn_dead_letters", "Messages given up.", ("stage", "reason"))
RETRIES = Counter("cairn_retries", "Tries repeated after a transient error.", ("stage",))
VERDICTS = Counter("cairn_verdicts", "Decisions of the grader.", ("verdict",))
TOKENS = Counter("cairn_tokens", "Model tokens.", ("stage", "kind"))


def count_outcome(outcome: Answered) -> None:
    """Count a job that has just ended, once: by whoever's step ended it."""
    JOB_SECONDS.labels(outcome.status).observe(outcome.seconds)
    for spent in outcome.usage:
        TOKENS.labels(spent.stage, "prompt").inc(spent.prompt_tokens)
        TOKENS.labels(spent.stage, "completion").inc(spent.completion_tokens)
