"""`millrace bench load`: a topic into a table by Spark on one core, beside the Parquet writing of such rows alone.

1 KB values of random bytes, so that compression has no easy game; the raw envelope. The start of the Spark session is
not counted, the commit is. The yardstick writes rows that are already in memory as Arrow with the load's own
settings, and syncs the file: no load could be faster.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.client.sync_producer import SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.arrow import decode_to_arrow
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_ops.bench.figures import Figure, alternate
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.files import DataFileWriter
from millrace_pipelines.warehouse.load import LoadOptions, load_topic
from millrace_pipelines.warehouse.schema import table_schema

VALUE_BYTES = 1024
RECORDS = 400_000
RECORDS_PER_BATCH = 500
ROUNDS = 3
MEBIBYTE = 1 << 20
TOPIC = "load"
YARDSTICK_BYTES = 32 << 20


def run() -> list[Figure]:
    """Measure; the figures in the order of the report."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory:
        tables = iter(range(ROUNDS + 1))
        with BrokerProcess(Path(directory, "broker")) as broker, spark_session("bench", local_master(1)) as spark:
            _fill(broker.bootstrap)

            def load() -> float:
                table = str(Path(directory, f"table-{next(tables)}"))
                options = LoadOptions(topic=TOPIC, table=table, bootstrap=broker.bootstrap)
                report = load_topic(options, spark=spark)
                return report.value_bytes / MEBIBYTE / report.seconds

            load()  # Spark's first job costs seconds that later ones don't
            rows = _rows(broker.bootstrap)
            rate, write_rate = alternate(ROUNDS, load, lambda: _write(Path(directory), rows))
    return [
        Figure(
            name=f"topic to table, {VALUE_BYTES} B values, one core",
            value=rate,
            unit="MiB/s",
            yardstick="Parquet writing alone",
            yardstick_value=write_rate,
        )
    ]


def _fill(bootstrap: str) -> None:
    values = random.Random(0)  # noqa: S311  # bytes that don't compress, not secrets
    with Cluster(bootstrap) as cluster:
        producer = SyncProducer(cluster)
        for _ in range(RECORDS // RECORDS_PER_BATCH):
            producer.send(TOPIC, 0, [NewRecord(values.randbytes(VALUE_BYTES)) for _ in range(RECORDS_PER_BATCH)])


def _rows(bootstrap: str) -> pa.Table:
    """One fetch of the topic as rows of the table."""
    with Cluster(bootstrap) as cluster:
        records = SimpleConsumer(cluster).fetch(TOPIC, 0, 0, max_bytes=YARDSTICK_BYTES).records
    batch = next(decode_to_arrow(records, from_offset=0, until_offset=RECORDS))
    topic = pa.array([TOPIC] * batch.num_rows)
    partition = pa.array([0] * batch.num_rows, pa.int32())
    columns: list[pa.Array[Any]] = [topic, partition, *batch.columns]
    return pa.Table.from_arrays(columns, schema=table_schema(None))


def _write(directory: Path, rows: pa.Table) -> float:
    started = time.perf_counter()
    with DataFileWriter(str(directory), "bench", 0, rows.schema, OsFileSystem()) as writer:
        writer.write(rows)
        writer.finish()
    return rows.num_rows * VALUE_BYTES / MEBIBYTE / (time.perf_counter() - started)
