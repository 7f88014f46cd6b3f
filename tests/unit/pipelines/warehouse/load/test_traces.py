"""What is recorded of a load whose commit fails, and of one that is not traced."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from millrace.tracing import TraceContext, Tracing
from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.load.load import LoadTrace
from millrace_pipelines.warehouse.load.report import LoadReport
from millrace_support.clock import ManualClock

REPORT = LoadReport(topic="events", table="/table", rows=3, dead_letters=1, load_id="l")
TRACES = [str(TraceContext(1, span)) for span in (7, 8, 7)]


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracing(provider)


def test_a_commit_that_fails_is_an_error_of_both_spans(tracing, exporter):
    clock = ManualClock()
    trace = LoadTrace(tracing, clock)
    clock.advance(5)
    with pytest.raises(StaleLedgerError), trace.committing(REPORT, TRACES):
        refused(clock)
    process, commit = exporter.get_finished_spans()
    assert [process.name, commit.name] == ["process events", "commit events"]
    assert {one.attributes["error.type"] for one in (process, commit)} == {"StaleLedgerError"}
    assert not process.status.is_ok
    assert [link.context.span_id for link in process.links] == [7, 8]
    assert process.attributes["messaging.batch.message_count"] == 4
    assert (process.end_time - process.start_time, commit.end_time - commit.start_time) == (7_000_000, 2_000_000)
    assert commit.parent.span_id == process.context.span_id


def refused(clock):
    clock.advance(2)
    raise StaleLedgerError("another load was first")


def test_without_tracing_and_without_traces_nothing_is_recorded(tracing, exporter):
    with LoadTrace(None, ManualClock()).committing(REPORT, TRACES):
        pass
    with LoadTrace(tracing, ManualClock()).committing(REPORT, []):
        pass
    assert not exporter.get_finished_spans()
