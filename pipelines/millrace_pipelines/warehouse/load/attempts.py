"""The loads of one table that failed, for Prometheus: a file for the textfile collector of its `node_exporter`.

millrace_table_load_attempts_total{table,topic}          loads, those that failed included
millrace_table_load_failures_total{table,topic,error}    loads that failed, by the name of the error
millrace_table_load_failing{table,topic,error}           1 for the error of the newest load, 0 for those of earlier ones

Other files say what a table holds (`load.textfile`), and which of its newest loads failed (`tables.failed_loads`), but
count no loads that succeeded. A load may be a process of its own, so this file keeps the counts from one to the next.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from millrace.errors import SetupError
from millrace_pipelines.warehouse.load.textfile import LABELS, write_textfile

ATTEMPTS = "millrace_table_load_attempts"
FAILURES = "millrace_table_load_failures"
FAILING = "millrace_table_load_failing"


class LoadAttempts(Collector):
    """Counts the loads of one table and their failures. It goes on from the counts in the table's file, or from 0."""

    def __init__(self, table: str, topic: str) -> None:
        self._labels = (table if "://" in table else os.path.abspath(table), topic)
        self._attempts = 0
        self._failures: Counter[str] = Counter()
        self._failing: str | None = None

    def note(self, path: str, error: str | None) -> None:
        """Adds a load to the file: with the name of its error, or None where it succeeded.

        Raises SetupError where the file can't be read or written.
        """
        self._read(path)
        self._attempts += 1
        self._failing = error
        if error is not None:
            self._failures[error] += 1
        write_textfile(path, self)

    def collect(self) -> Iterable[Metric]:
        """Yields all families."""
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
