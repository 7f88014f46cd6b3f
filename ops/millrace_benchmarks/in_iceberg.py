"""Loads into Iceberg tables beside those into Delta tables: `bench load --format iceberg`.

Both formats get the same load of the same topic in one Spark session, in turn; Iceberg's table is in the embedded
catalog of a folder on the same disk. With `--peer connect` Iceberg's own sink for Kafka Connect has a turn, too
(`iceberg_connect`), and all three read from Apache Kafka 4.1. A worker of Connect runs already; its time begins when
its first data file is there, and ends with the commit that has the last row, as a load's ends with its commit. What
faults do to the rows of both is shown by `sink_faults`.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path

from pyspark.sql import SparkSession

from millrace.errors import ClientError
from millrace_benchmarks.harness import Figure, alternate
from millrace_benchmarks.iceberg_connect import SINK_COLUMNS, ConnectWorker, sink_of
from millrace_benchmarks.load_topics import Topic, batches_of, fill
from millrace_benchmarks.subjects import Peer as Broker
from millrace_benchmarks.subjects import apache_kafka, millrace
from millrace_pipelines.machine import DISK
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.formats import load_or_create, load_table
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.rewrite import current_files

CORES = 2
ROUNDS = 3
OF_DELTA, OF_SINK = 0.95, 5.0
TIMEOUT_S = 600.0
POLL_INTERVAL_S = 0.1


def loads_into_iceberg(
    place: Path, topics: Sequence[Topic], *, beside_connect: bool, rounds: int = ROUNDS
) -> list[Figure]:
    """Measures loads of topics into Iceberg tables, and returns the figures in the order of the report."""
    with ExitStack() as stack:
        broker = stack.enter_context(apache_kafka(Broker.KAFKA, place) if beside_connect else millrace(place))
        for topic in topics:
            fill(broker.bootstrap, topic, batches_of(topic))
        spark = stack.enter_context(spark_session("bench load", local_master(CORES)))
        measure = _Measure(place, broker.bootstrap, spark)
        measure.load(measure.iceberg(), topics[0])  # the first jobs of a JVM cost seconds that later ones don't
        return [figure for topic in topics for figure in _figures(measure, topic, rounds, beside_connect)]


def _figures(measure: _Measure, topic: Topic, rounds: int, beside_connect: bool) -> list[Figure]:
    ways: list[Callable[[], float]] = [
        lambda: measure.load(measure.iceberg(), topic),
        lambda: measure.load(measure.delta(), topic),
        *([partial(measure.sink, topic)] if beside_connect else []),
    ]
    rate, *others = alternate(rounds, *ways)
    yardsticks = (("Delta", OF_DELTA), ("Kafka Connect's sink", OF_SINK))
    return [
        Figure(
            name=f"{topic.title}, into Iceberg" if number == 0 else "· the same", value=rate, unit="rows/s",
            yardstick=name, yardstick_value=other, at_least=goal,
        )
        for number, ((name, goal), other) in enumerate(zip(yardsticks, others, strict=False))
    ]  # fmt: skip


class _Measure:
    """Loads a broker's topics into new tables below a folder, and removes those."""

    def __init__(self, place: Path, bootstrap: str, spark: SparkSession) -> None:
        self._place = place
        self._bootstrap = bootstrap
        self._spark = spark
        self._numbers = count()

    def delta(self) -> str:
        """Returns the address of a new Delta table."""
        return str(self._place / f"delta-{next(self._numbers)}")

    def iceberg(self) -> str:
        """Returns the address of a new Iceberg table."""
        return f"iceberg:{self._place}/lake/bench.load_{next(self._numbers)}"

    def load(self, table: str, topic: Topic) -> float:
        """Returns the records a second of a load into a new table."""
        options = LoadOptions(topic=topic.name, table=table, bootstrap=self._bootstrap)
        os.sync()  # what was written before is no work of this load
        started = time.perf_counter()
        rows = load_topic(options, spark=self._spark).rows
        seconds = time.perf_counter() - started
        return self._rate(table, topic, rows, seconds)

    def sink(self, topic: Topic) -> float:
        """Returns the records a second of Iceberg's sink into a new table."""
        table = self.iceberg()
        name = table.rpartition(".")[2]
        location = load_or_create(table, DISK, schema=SINK_COLUMNS, name=name, configuration={}).location
        settings = sink_of(topic.name, lake=self._place / "lake", table=f"bench.{name}", control=f"control-{name}")
        with ConnectWorker(self._place, self._bootstrap, name=name, cluster=name) as worker:
            worker.start_connector(name, settings)
            _await(lambda: any(Path(location).rglob("*.parquet")), worker)
            started = time.perf_counter()
            _await(lambda: _rows(table) >= topic.records, worker)
            seconds = time.perf_counter() - started
        return self._rate(table, topic, _rows(table), seconds)

    def _rate(self, table: str, topic: Topic, rows: int, seconds: float) -> float:
        shutil.rmtree(load_table(table, DISK).location)
        if rows != topic.records:
            raise ClientError(f"{topic.title}: {rows} rows came of {topic.records} records")
        return topic.records / seconds


def _rows(table: str) -> int:
    return sum(file.rows for file in current_files(load_table(table, DISK)))


def _await(is_so: Callable[[], bool], worker: ConnectWorker) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise ClientError(f"Iceberg's sink does not get on:\n{worker.read_log()[-4000:]}")
        time.sleep(POLL_INTERVAL_S)
