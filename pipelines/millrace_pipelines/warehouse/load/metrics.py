"""Metrics of a continuous load, for Prometheus.

millrace_load_lag_records{topic,partition}     readable offsets that the table lacks
millrace_load_rows_total                       rows committed
millrace_load_dead_letters_total               dead letters committed
millrace_load_commits_total                    loads that committed something
millrace_load_failures_total{error}            loads that failed and were tried again
millrace_load_seconds                          duration of a load that committed, without the start of the session
millrace_load_table_version                    the newest commit
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from millrace_pipelines.warehouse.load.continuous import Failure
from millrace_pipelines.warehouse.load.report import LoadReport

BOUNDS_S = (*Histogram.DEFAULT_BUCKETS[:-1], 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


class LoadMetrics:
    """The metrics of a continuous load, in a registry of their own."""

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
        """Serves GET /metrics on a thread and returns the port; port 0 asks for a free one."""
        server, _ = start_http_server(port, host, self.registry)
        return int(server.server_port)

    def loaded(self, report: LoadReport) -> None:
        """Notes a load's lag and, if it committed something, what it committed."""
        for partition, lag in report.lag.items():
            self._lag.labels(report.topic, str(partition)).set(lag)
        if report.version is not None:
            self._rows.inc(report.rows)
            self._dead_letters.inc(report.dead_letters)
            self._commits.inc()
            self._seconds.observe(report.seconds)
            self._version.set(report.version)

    def failed(self, failure: Failure) -> None:
        """Counts a failure, by the name of its error."""
        self._failures.labels(type(failure.error).__name__).inc()
