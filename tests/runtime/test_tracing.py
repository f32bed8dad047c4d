"""Traces: one a job, over real streams."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from redis.asyncio import Redis

from shared.contracts import Answered, Generate
from shared.errors import InvalidModelReply
from shared.runtime.keys import Keys
from shared.runtime.tracing import BeginSpan, DeliverySpan, exporting
from tests.support.bus import ask, header, outcome, pipeline, question, running
from tests.support.wait import wait_until


def recorded() -> tuple[BeginSpan, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return partial(DeliverySpan, provider.get_tracer("test")), exporter


def facts(span: ReadableSpan) -> tuple[str, object, object]:
    assert span.attributes is not None
    return span.name, span.attributes["job_id"], span.attributes["outcome"]


async def test_a_jobs_deliveries_are_one_trace(redis: Redis, keys: Keys, redis_url: str) -> None:
    begin_span, exporter = recorded()
    async with running(pipeline(), redis_url, keys, begin_span=begin_span):
        for job_id in ("a", "b"):
            await ask(redis, keys, "Why, Quokkamark?", job_id=job_id)
        for job_id in ("a", "b"):
            assert await wait_until(partial(outcome, redis, keys, job_id))
        await wait_until(lambda: len(exporter.get_finished_spans()) == 10)
    spans = exporter.get_finished_spans()
    for job_id in ("a", "b"):
        own = [span for span in spans if span.attributes and span.attributes["job_id"] == job_id]
        assert [facts(span) for span in sorted(own, key=lambda span: span.start_time or 0)] == [
            ("gateway", job_id, "done"),
            ("rewriter", job_id, "done"),
            ("retriever", job_id, "done"),
            ("grader", job_id, "done"),
            ("generator", job_id, "answered"),
        ]
        (root,) = [span for span in own if span.parent is None]
        assert root.name == "gateway"
        assert {span.parent.span_id for span in own if span.parent} == {root.context.span_id}
        assert {span.context.trace_id for span in own} == {root.context.trace_id}
    assert len({span.context.trace_id for span in spans}) == 2
    assert "Quokkamark" not in "".join(span.to_json() for span in spans)


async def test_a_failed_delivery_is_marked(redis: Redis, keys: Keys, redis_url: str) -> None:
    async def generate(msg: Generate) -> Answered:
        raise InvalidModelReply("no")

    begin_span, exporter = recorded()
    async with running(pipeline(generate), redis_url, keys, begin_span=begin_span):
        await ask(redis, keys, job_id="a")
        await wait_until(lambda: len(exporter.get_finished_spans()) == 5)
    found = {span.name: span.status.is_ok for span in exporter.get_finished_spans()}
    assert found == {"gateway": True, "rewriter": True, "retriever": True, "grader": True, "generator": False}


def test_a_collector_that_is_away_does_not_hold_up_a_stop() -> None:
    with exporting("http://127.0.0.1:9/v1/traces", "grader") as begin_span:
        span = begin_span("grader", Generate(header=header(), asked=question(), route="factual", verdict="correct"))
        span.end({"outcome": "done"})
        stopping = time.monotonic()
    assert time.monotonic() - stopping < 5


def test_without_the_extra_everything_runs_but_traces() -> None:
    script = """
import sys
sys.modules["opentelemetry"] = None  # as if it were not installed
import services.grader.main
from shared.errors import Misconfigured
try:
    import shared.runtime.tracing
except Misconfigured as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout.startswith("CAIRN_TRACES needs the extra `tracing`")
