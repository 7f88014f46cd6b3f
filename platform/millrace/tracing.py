"""The door to OpenTelemetry: spans of work on records, in the traces of their producers (docs/tracing.md).

    no sampled trace context     no span
    one such context             a span that is its child
    several such contexts        a span in a new trace, with a link to each

A record brings its trace context in its header `traceparent`, as W3C writes it
(https://www.w3.org/TR/trace-context/#traceparent-header):

    00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
    version, trace id, span id, flags: the lowest bit says that the trace is sampled

The environment variables of OpenTelemetry say whether there are spans and where they go. Without them nothing of its
SDK is imported. A span is recorded once its work has ended, so that no open span has to be passed along meanwhile.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from millrace.errors import SetupError
from millrace.extras import require
from millrace.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

HEADER = "traceparent"
MAX_CONTEXTS = 128  # as many links as a span has at most by default, in the specification of OpenTelemetry
SAMPLED = 1
FORMAT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)


class TraceContext(NamedTuple):
    """The ids of a span and its trace; as text the W3C header `traceparent`."""

    trace_id: int
    span_id: int

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"


def sampled_context(traceparent: bytes | None) -> TraceContext | None:
    """Returns the span in a `traceparent` header; None if the trace is not sampled, or the header absent or invalid."""
    found = FORMAT.fullmatch(traceparent or b"")
    if found is None or found[1] == b"ff" or (found[1] == b"00" and found[5]):
        return None
    context = TraceContext(int(found[2], 16), int(found[3], 16))
    return context if all(context) and int(found[4], 16) & SAMPLED else None


def sampled_contexts(traceparents: Iterable[bytes | None]) -> tuple[TraceContext, ...]:
    """Returns the sampled spans in `traceparent` headers, each once, and MAX_CONTEXTS at most."""
    found: dict[TraceContext, None] = {}
    for traceparent in traceparents:
        context = sampled_context(traceparent)
        if context is not None:
            found[context] = None
            if len(found) == MAX_CONTEXTS:
                break
    return tuple(found)


EXPORTER = "OTEL_TRACES_EXPORTER"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HTTP = "http/protobuf"
NONE, OTLP, CONSOLE = "none", "otlp", "console"
MESSAGING = {"messaging.system": "kafka"}

Attributes = Mapping[str, str | int]


class Span(NamedTuple):
    """Work that has ended; `error` is the name of the error with which it failed, None where it succeeded."""

    name: str
    started_ns: int
    ended_ns: int
    attributes: Attributes
    is_consumer: bool = False
    error: str | None = None


class Tracing:
    """Records spans of work by OpenTelemetry, whose SDK exports them."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("millrace", __version__)

    def record(self, span: Span, contexts: Sequence[TraceContext]) -> TraceContext:
        """Exports a span of work on records, as child of one context or linked to several; returns the span's ids."""
        from opentelemetry.trace import Link, SpanKind, Status, StatusCode  # noqa: PLC0415

        is_child = len(contexts) == 1
        started = self._tracer.start_span(
            span.name,
            context=_context(contexts[0] if is_child else None),
            kind=SpanKind.CONSUMER if span.is_consumer else SpanKind.INTERNAL,
            attributes={**MESSAGING, **span.attributes},
            links=() if is_child else [Link(_remote(one)) for one in contexts],
            start_time=span.started_ns,
        )
        if span.error is not None:
            started.set_attribute("error.type", span.error)
            started.set_status(Status(StatusCode.ERROR))
        started.end(span.ended_ns)
        own = started.get_span_context()
        return TraceContext(own.trace_id, own.span_id)

    def close(self) -> None:
        """Exports the spans that are still recorded, and waits until the exporter has sent them."""
        self._provider.shutdown()


def traces_exporter(environ: Mapping[str, str]) -> str | None:
    """Returns where the environment wants spans exported, `otlp` or `console`; None for nowhere.

    Raises SetupError for an exporter or a protocol that Millrace does not support.
    """
    is_given = any(environ.get(name) for name in ENDPOINTS)
    exporter = environ.get(EXPORTER) or (OTLP if is_given else NONE)
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporter == NONE:
        return None
    if exporter not in (OTLP, CONSOLE):
        raise SetupError(f"{EXPORTER}={exporter}: expected {OTLP}, {CONSOLE} or {NONE}")
    protocol = next((value for name in PROTOCOLS if (value := environ.get(name))), HTTP)
    if exporter == OTLP and protocol != HTTP:
        raise SetupError(f"OTLP's protocol {protocol!r} is not served: {PROTOCOLS[1]} is {HTTP}")
    return exporter


@contextmanager
def tracing_of(environ: Mapping[str, str], service: str) -> Iterator[Tracing | None]:
    """Yields a `Tracing`, or None where the environment asks for no spans; exports the spans at the end.

    Args:
        environ: The process's environment, in which the SDK reads further variables.
        service: The name of the service, unless the environment names it.

    Raises:
        SetupError: The environment asks for an exporter or a protocol that is not served, or the extra `tracing` is not
            installed.
    """
    exporter = traces_exporter(environ)
    if exporter is None:
        yield None
        return
    require("tracing, which the environment asks for,", "tracing")
    tracing = Tracing(_provider(exporter, environ, service))
    try:
        yield tracing
    finally:
        tracing.close()


def _provider(exporter: str, environ: Mapping[str, str], service: str) -> TracerProvider:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    is_named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if is_named else {"service.name": service})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_exporter(exporter)))
    return provider


def _exporter(exporter: str) -> SpanExporter:
    if exporter == CONSOLE:
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter  # noqa: PLC0415

        return ConsoleSpanExporter(out=sys.stderr)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    return OTLPSpanExporter()


def _remote(context: TraceContext) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415

    return SpanContext(context.trace_id, context.span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _context(parent: TraceContext | None) -> Context:
    """Returns the OpenTelemetry context for a child span of `parent`; for None, for the first span of a trace."""
    from opentelemetry.context import Context  # noqa: PLC0415
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context  # noqa: PLC0415

    return Context() if parent is None else set_span_in_context(NonRecordingSpan(_remote(parent)), Context())
