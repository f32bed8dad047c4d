"""Traces for OpenTelemetry: one a job, a span for each delivery. Imported only where CAIRN_TRACES is set.

The gateway's span is the trace's root; its context rides in the header (W3C traceparent), and every later delivery of
the job is a child of it. Spans hold ids, stage and outcome, never what was asked or answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias, TypeVar

from shared.contracts import Command, Contract
from shared.errors import Misconfigured

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as missing:
    raise Misconfigured("CAIRN_TRACES needs the extra `tracing`: pip install 'cairn[tracing]'") from missing

R = TypeVar("R", bound=Contract)

_EXPORT_S = 2.0
"""Longest time for sending, retries included: a stop waits for it where the collector is away."""
_CONTEXT = TraceContextTextMapPropagator()
_UNDONE = ("failed", "expired", "redelivered", "fenced", "cancelled")
"""Outcomes of a delivery that somebody who reads a trace looks for."""


@contextmanager
def exporting(endpoint: str, stage: str) -> Iterator[BeginSpan]:
    """Spans that a thread sends to this OTLP/HTTP endpoint. Where nobody listens, they are dropped."""
    provider = TracerProvider(resource=Resource.create({"service.name": f"cairn-{stage}"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_S)))
    try:
        yield partial(DeliverySpan, provider.get_tracer("cairn"))
    finally:
        provider.shutdown()


class DeliverySpan:
    """The span of one delivery, from its beginning on."""

    def __init__(self, tracer: Tracer, stage: str, message: object) -> None:
        header = message.header if isinstance(message, Command) else None
        context = _CONTEXT.extract({"traceparent": header.traceparent}) if header and header.traceparent else None
        self._span: Span = tracer.start_span(stage, context, SpanKind.CONSUMER)
        self._is_root = context is None

    def carried_by(self, result: R) -> R:
        """What the handler returned; the first command of a job takes the trace's context along."""
        if not isinstance(result, Command):
            return result
        self._span.set_attribute("job_id", result.header.job_id)
        if not self._is_root:
            return result
        carrier: dict[str, str] = {}
        _CONTEXT.inject(carrier, set_span_in_context(self._span))
        header = result.header.model_copy(update={"traceparent": carrier.get("traceparent")})
        return result.model_copy(update={"header": header})

    def end(self, facts: Mapping[str, str | int | float]) -> None:
        """The delivery is over; `facts` are those of its log line."""
        self._span.set_attributes(facts)
        if facts["outcome"] in _UNDONE:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


BeginSpan: TypeAlias = Callable[[str, object], DeliverySpan]
"""Of a stage and the message in hand."""
