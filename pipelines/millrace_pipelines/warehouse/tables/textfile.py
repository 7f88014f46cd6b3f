"""Tables in numbers, for Prometheus: a file for the textfile collector of its `node_exporter`.

millrace_table_rows{table,topic}            rows
millrace_table_dead_letters{table,topic}    dead letters; of tables that have a table of them
millrace_table_files{table,topic}           data files of the newest version
millrace_table_bytes{table,topic}           their bytes
millrace_table_version{table,topic}         the newest commit
millrace_table_lag_records{table,topic}     readable offsets that the table lacks, where brokers were asked
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millrace.errors import SetupError
from millrace_pipelines.warehouse.tables.find import TableFacts

GAUGES = (
    ("rows", "Rows.", "rows"),
    ("dead_letters", "Dead letters.", "dead_letters"),
    ("files", "Data files of the newest version.", "files"),
    ("bytes", "Bytes of the data files.", "bytes"),
    ("version", "The newest commit.", "version"),
    ("lag_records", "Readable offsets that the table lacks.", "lag"),
)


class TableCollector(Collector):
    """What tables held when they were described."""

    def __init__(self, tables: Sequence[TableFacts]) -> None:
        self._tables = tables

    def collect(self) -> Iterable[Metric]:
        """Yields all families; what is not known of a table is left out."""
        for name, text, field in GAUGES:
            family = GaugeMetricFamily(f"millrace_table_{name}", text, labels=["table", "topic"])
            for one in self._tables:
                if (value := getattr(one, field)) is not None:
                    family.add_metric([one.location, one.topic], value)
            yield family


def write_textfile(path: str, tables: Sequence[TableFacts]) -> None:
    """Replaces a file at once, so that no reader sees half of it. SetupError where it can't be written."""
    registry = CollectorRegistry()
    registry.register(TableCollector(tables))
    try:
        write_to_textfile(path, registry)
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror or error}") from error
