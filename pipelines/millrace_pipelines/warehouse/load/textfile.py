"""Metrics of tables, for Prometheus: a file for the textfile collector of its `node_exporter`.

millrace_table_rows{table,topic}                          rows
millrace_table_dead_letters{table,topic}                  dead letters; of tables that have a table of them
millrace_table_files{table,topic}                         data files of the newest version
millrace_table_bytes{table,topic}                         their bytes
millrace_table_version{table,topic}                       the newest commit
millrace_table_lag_records{table,topic}                   readable offsets that the table lacks, if brokers were asked
millrace_table_last_load_timestamp_seconds{table,topic}   when the newest load was committed
millrace_table_last_load_seconds{table,topic}             how long it took
millrace_table_last_load_rows{table,topic}                rows that it made
millrace_table_last_load_dead_letters{table,topic}        dead letters that it made
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millrace.errors import SetupError
from millrace_pipelines.warehouse.load.history import TableCommit
from millrace_pipelines.warehouse.tables.find import TableFacts

LABELS = ("table", "topic")


class ToldTable(NamedTuple):
    """What a table holds, and its newest load; None where no load is among its newest commits."""

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
    """What tables held when they were described."""

    def __init__(self, tables: Sequence[ToldTable]) -> None:
        self._tables = tables

    def collect(self) -> Iterable[Metric]:
        """Yields all families; what is not known of a table is left out."""
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
    """Replaces a file at once, so that no reader sees half of it. Raises SetupError where it can't be written."""
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        write_to_textfile(path, registry)
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror or error}") from error
