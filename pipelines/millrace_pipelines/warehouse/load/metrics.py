"""Metrics of loads and of tables, for Prometheus.

A continuous load serves its own:

    millrace_load_lag_records{topic,partition}     readable offsets that the table lacks
    millrace_load_rows_total                       rows committed
    millrace_load_dead_letters_total               dead letters committed
    millrace_load_commits_total                    loads that committed something
    millrace_load_failures_total{error}            loads that failed and were tried again
    millrace_load_seconds                          duration of a load that committed, without the start of the session
    millrace_load_table_version                    the newest commit

Of tables there is a file for the textfile collector of the `node_exporter`:

    millrace_table_rows{table,topic}                          rows
    millrace_table_dead_letters{table,topic}                  dead letters; of tables that have a table of them
    millrace_table_files{table,topic}                         data files of the newest version
    millrace_table_bytes{table,topic}                         their bytes
    millrace_table_version{table,topic}                       the newest commit
    millrace_table_lag_records{table,topic}                   readable offsets that it lacks, if brokers were asked
    millrace_table_last_load_timestamp_seconds{table,topic}   when the newest load was committed
    millrace_table_last_load_seconds{table,topic}             how long it took
    millrace_table_last_load_rows{table,topic}                rows that it made
    millrace_table_last_load_dead_letters{table,topic}        dead letters that it made

So there is of the loads of one table, since a load may be a process of its own: the file keeps the counts from one to
the next. (Which of the newest loads failed, a file in the table's folder says, too: `tables.find`.)

    millrace_table_load_attempts_total{table,topic}          loads, those that failed included
    millrace_table_load_failures_total{table,topic,error}    loads that failed, by the name of the error
    millrace_table_load_failing{table,topic,error}           1 for the error of the newest load, 0 for others
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from millrace.errors import SetupError
from millrace_pipelines.warehouse.load.history import TableCommit
from millrace_pipelines.warehouse.load.report import LoadReport
from millrace_pipelines.warehouse.tables.find import TableFacts

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.load.continuous import Failure

BOUNDS_S = (*Histogram.DEFAULT_BUCKETS[:-1], 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
LABELS = ("table", "topic")
ATTEMPTS = "millrace_table_load_attempts"
FAILURES = "millrace_table_load_failures"
FAILING = "millrace_table_load_failing"


class LoadMetrics:
    """The Prometheus metrics of a continuous load, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lag = Gauge("millrace_load_lag_records", "Readable offsets that the table lacks.",
                          ["topic", "partition"], registry=self.registry)  # fmt: skip
        self._rows = self._counter("millrace_load_rows", "Rows committed.")
        self._dead_letters = self._counter("millrace_load_dead_letters", "Dead letters committed.")
        self._commits = self._counter("millrace_load_commits", "Loads that committed something.")
        self._failures = Counter("millrace_load_failures", "Loads that failed and were tried again.",
                                 ["error"], registry=self.registry)  # fmt: skip
        self._seconds = Histogram("millrace_load_seconds", "Of a load that committed.",
                                  registry=self.registry, buckets=BOUNDS_S)  # fmt: skip
        self._version = Gauge("millrace_load_table_version", "The newest commit.", registry=self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self.registry)

    def serve(self, host: str, port: int) -> int:
        """Serves the metrics at GET /metrics on a thread, and returns the port; port 0 asks for a free one."""
        server, _ = start_http_server(port, host, self.registry)
        return int(server.server_port)

    def loaded(self, report: LoadReport) -> None:
        """Sets the lag after a load and, if it committed something, counts its rows and dead letters."""
        for partition, lag in report.lag.items():
            self._lag.labels(report.topic, str(partition)).set(lag)
        if report.version is not None:
            self._rows.inc(report.rows)
            self._dead_letters.inc(report.dead_letters)
            self._commits.inc()
            self._seconds.observe(report.seconds)
            self._version.set(report.version)

    def failed(self, failure: Failure) -> None:
        """Counts a failed load under the name of its error."""
        self._failures.labels(type(failure.error).__name__).inc()


class ToldTable(NamedTuple):
    """A described table and its newest load; None where none of its newest commits is a load."""

    facts: TableFacts
    last_load: TableCommit | None


GAUGES: tuple[tuple[str, str, Callable[[TableFacts], float | None]], ...] = (
    ("rows", "Rows.", lambda one: one.rows),
    ("dead_letters", "Dead letters.", lambda one: one.dead_letters),
    ("files", "Data files of the newest version.", lambda one: one.files),
    ("bytes", "Bytes of the data files.", lambda one: one.bytes),
    ("version", "The newest commit.", lambda one: one.version),
    ("lag_records", "Readable offsets that the table lacks.", lambda one: one.lag),
)
LOAD_GAUGES: tuple[tuple[str, str, Callable[[TableCommit], float | None]], ...] = (
    ("timestamp_seconds", "When the newest load was committed.", lambda one: one.time_ms / 1000),
    ("seconds", "How long the newest load took.", lambda one: one.seconds),
    ("rows", "Rows that the newest load made.", lambda one: one.rows),
    ("dead_letters", "Dead letters that the newest load made.", lambda one: one.dead_letters),
)


class TableCollector(Collector):
    """The Prometheus metrics of tables, as they were when they were described."""

    def __init__(self, tables: Sequence[ToldTable]) -> None:
        self._tables = tables

    def collect(self) -> Iterable[Metric]:
        """Yields the metrics; a value that is not known of a table is left out."""
        for name, text, value in GAUGES:
            yield _family(name, text, [(one.facts, value(one.facts)) for one in self._tables])
        for name, text, of_load in LOAD_GAUGES:
            loads = [(one.facts, of_load(one.last_load)) for one in self._tables if one.last_load is not None]
            yield _family(f"last_load_{name}", text, loads)


def _family(name: str, text: str, values: Iterable[tuple[TableFacts, float | None]]) -> Metric:
    family = GaugeMetricFamily(f"millrace_table_{name}", text, labels=LABELS)
    for facts, value in values:
        if value is not None:
            family.add_metric([facts.location, facts.topic], value)
    return family


def write_textfile(path: str, collector: Collector) -> None:
    """Writes a collector's metrics to a file, replacing it at once; raises SetupError where that fails."""
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        write_to_textfile(path, registry)
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror or error}") from error


class LoadAttempts(Collector):
    """Counts the loads of one table and their failures, on top of the counts in the table's metrics file."""

    def __init__(self, table: str, topic: str) -> None:
        self._labels = (table if "://" in table else os.path.abspath(table), topic)
        self._attempts = 0
        self._failures: collections.Counter[str] = collections.Counter()
        self._failing: str | None = None

    def note(self, path: str, error: str | None) -> None:
        """Counts a load in the file; `error` is the name of its error, None for a load that succeeded.

        Raises SetupError where the file can't be read or written.
        """
        self._read(path)
        self._attempts += 1
        self._failing = error
        if error is not None:
            self._failures[error] += 1
        write_textfile(path, self)

    def collect(self) -> Iterable[Metric]:
        """Yields the counts of loads and of failures by error, and which error the newest load has, as metrics."""
        attempts = CounterMetricFamily(ATTEMPTS, "Loads, those that failed included.", labels=LABELS)
        attempts.add_metric(self._labels, self._attempts)
        failures = CounterMetricFamily(FAILURES, "Loads that failed.", labels=(*LABELS, "error"))
        text = "1 for the error with which the newest load failed."
        failing = GaugeMetricFamily(FAILING, text, labels=(*LABELS, "error"))
        for error, times in self._failures.items():
            failures.add_metric([*self._labels, error], times)
            failing.add_metric([*self._labels, error], float(error == self._failing))
        yield from (attempts, failures, failing)

    def _read(self, path: str) -> None:
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(f"{path}: {error}") from error
        try:
            samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
        except ValueError as error:
            raise SetupError(f"{path} is no file of metrics: {error}") from error
        for one in samples:
            if one.name == f"{ATTEMPTS}_total":
                self._attempts = int(one.value)
            elif one.name == f"{FAILURES}_total":
                self._failures[one.labels["error"]] = int(one.value)
