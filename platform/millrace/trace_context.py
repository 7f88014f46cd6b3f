"""The trace context that a record brings in its header `traceparent`, as W3C writes it.

    00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
    version, trace id, span id, flags: the lowest bit says that the trace is sampled

https://www.w3.org/TR/trace-context/#traceparent-header
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

HEADER = "traceparent"
MAX_CONTEXTS = 128  # as many links as a span has at most by default, in the specification of OpenTelemetry
SAMPLED = 1
FORMAT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)


class TraceContext(NamedTuple):
    """A span of a trace."""

    trace_id: int
    span_id: int

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"


def sampled_context(traceparent: bytes | None) -> TraceContext | None:
    """Returns the span that a header names; None where its trace is not sampled, or the header is absent or invalid."""
    found = FORMAT.fullmatch(traceparent or b"")
    if found is None or found[1] == b"ff" or (found[1] == b"00" and found[5]):
        return None
    context = TraceContext(int(found[2], 16), int(found[3], 16))
    return context if all(context) and int(found[4], 16) & SAMPLED else None


def sampled_contexts(traceparents: Iterable[bytes | None]) -> tuple[TraceContext, ...]:
    """Returns the sampled spans that headers name, each once, and MAX_CONTEXTS at most."""
    found: dict[TraceContext, None] = {}
    for traceparent in traceparents:
        context = sampled_context(traceparent)
        if context is not None:
            found[context] = None
            if len(found) == MAX_CONTEXTS:
                break
    return tuple(found)
