"""A collector of spans for tests: it takes what OpenTelemetry's exporters send by OTLP over HTTP.

with TraceCollector() as collector:
environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
...
collector.named("append t")
"""

from __future__ import annotations

import gzip
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from types import TracebackType
from typing import NamedTuple, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from millrace.addresses import LOOPBACK
from millrace.tracing import TraceContext

PATIENCE_S = 60.0


class CollectedSpan(NamedTuple):
    """A span as it came; `parent` is None for the first one of a trace."""

    service: str
    kind: int
    context: TraceContext
    parent: TraceContext | None
    links: tuple[TraceContext, ...]
    attributes: dict[str, str | int]
    nanoseconds: int
    is_error: bool


class TraceCollector:
    """A server that keeps all spans."""

    def __init__(self) -> None:
        self._spans: dict[str, list[CollectedSpan]] = {}
        self._came = Condition()
        self._server = ThreadingHTTPServer((LOOPBACK, 0), _handler_of(self))
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://{LOOPBACK}:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def named(self, name: str, count: int = 1) -> list[CollectedSpan]:
        """Returns the spans of a name, once so many have come."""
        with self._came:
            assert self._came.wait_for(lambda: len(self._spans.get(name, ())) >= count, PATIENCE_S), self._spans
            return self._spans[name]

    def take(self, body: bytes) -> None:
        """Takes the body of a request; a span that an exporter sends again, as it got no answer, counts once."""
        with self._came:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                service = next(
                    one.value.string_value for one in resource.resource.attributes if one.key == "service.name"
                )
                for span in (one for scope in resource.scope_spans for one in scope.spans):
                    collected, known = _collected(service, span), self._spans.setdefault(span.name, [])
                    if collected not in known:
                        known.append(collected)
            self._came.notify_all()


def _collected(service: str, span: Span) -> CollectedSpan:
    return CollectedSpan(
        service=service,
        kind=span.kind,
        context=_context(span.trace_id, span.span_id),
        parent=_context(span.trace_id, span.parent_span_id) if span.parent_span_id else None,
        links=tuple(_context(link.trace_id, link.span_id) for link in span.links),
        attributes={one.key: getattr(one.value, one.value.WhichOneof("value") or "") for one in span.attributes},
        nanoseconds=span.end_time_unix_nano - span.start_time_unix_nano,
        is_error=span.status.code == 2,
    )


def _context(trace_id: bytes, span_id: bytes) -> TraceContext:
    return TraceContext(int.from_bytes(trace_id), int.from_bytes(span_id))


def _handler_of(collector: TraceCollector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Writes nothing."""

    return Handler
