"""Loads as spans of the traces that records bring (docs/tracing.md).

    process TOPIC      from the load's first task to the end of its commit
    └ commit TOPIC     the commit of rows and offsets

Each task collects the headers `traceparent` of the records that it loads: at most MAX_CONTEXTS different ones whose
trace is sampled. The driver records the spans; it records none where no task found such a header.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from millrace.clock import Clock
from millrace.tracing import Attributes, Span, Tracing, sampled_contexts
from millrace_pipelines.warehouse.load.report import LoadReport

SERVICE = "millrace-load"


class LoadTrace:
    """Records the spans of one load, if it is traced at all."""

    def __init__(self, tracing: Tracing | None, clock: Clock) -> None:
        self._tracing = tracing
        self._clock = clock
        self._began_ns = clock.now_ns()

    @contextmanager
    def committing(self, report: LoadReport, traces: Sequence[str]) -> Iterator[None]:
        """Measures a commit, and records both spans when it has ended, whether it succeeded or failed.

        Args:
            report: What the load has read and written.
            traces: The headers that its tasks found.
        """
        contexts = sampled_contexts(trace.encode() for trace in traces)
        if self._tracing is None or not contexts:
            yield
            return
        committing_ns, error = self._clock.now_ns(), None
        try:
            yield
        except Exception as failure:
            error = type(failure).__name__
            raise
        finally:
            ended_ns, attributes = self._clock.now_ns(), _attributes(report)
            load = Span(f"process {report.topic}", self._began_ns, ended_ns, attributes, is_consumer=True, error=error)
            own = self._tracing.record(load, contexts)
            commit: Attributes = {"messaging.destination.name": report.topic, "millrace.table": report.table}
            self._tracing.record(Span(f"commit {report.topic}", committing_ns, ended_ns, commit, error=error), [own])


def _attributes(report: LoadReport) -> Attributes:
    return {
        "messaging.operation.name": "load",
        "messaging.operation.type": "process",
        "messaging.destination.name": report.topic,
        "messaging.batch.message_count": report.rows + report.dead_letters,
        "millrace.table": report.table,
        "millrace.load.id": report.load_id or "",
        "millrace.load.dead_letters": report.dead_letters,
    }
