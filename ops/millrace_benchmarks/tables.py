"""`millrace bench tables`: a hundred small topics into a hundred tables, once a minute, on one core of Spark.

Each round appends a few records to every topic and loads all tables, as a turn of `warehouse load --defs --continuous`
does. Its yardstick loads the same tables one after the other in the same session, a Spark job for each. Counted are the
processor seconds of the driver, Spark's JVM and its Python workers, not those of the broker: what is left of a minute
of one core is the goal. The first turn, which creates the tables, and a start of Spark are not measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.records.record import NewRecord, encode_batch
from millrace_benchmarks.harness import Figure, Samples, beside_goal, interleave
from millrace_benchmarks.load_topics import FIRST_TIMESTAMP_MS, append
from millrace_benchmarks.subjects import millrace
from millrace_pipelines.spark.session import SharedSession, local_master
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.together import load_together

TABLES = 100
RECORDS = 5
ROUNDS = 3
MINUTE_S = 60.0
WHOLE = "seconds", "processor"


def run(place: Path, tables: int = TABLES, rounds: int = ROUNDS) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    names = [f"small-{number:03}" for number in range(tables)]
    with (
        millrace(place) as broker,
        Cluster(broker.bootstrap) as cluster,
        SharedSession("bench", local_master(1)) as spark,
    ):
        for name in names:
            Admin(cluster).create_topic(name, 1)

        def options(way: str) -> list[LoadOptions]:
            return [LoadOptions(topic=one, table=f"{place}/{way}/{one}", bootstrap=broker.bootstrap) for one in names]

        def together(some: Sequence[LoadOptions]) -> None:
            for _, outcome in load_together(some, spark):
                if isinstance(outcome, Exception):
                    raise outcome

        def in_turn(some: Sequence[LoadOptions]) -> None:
            for one in some:
                load_topic(one, spark=spark)

        measures = [_measure(cluster, names, way, options(way.__name__)) for way in (together, in_turn)]
        quiet = _quiet(lambda: together(options("together")))
        interleave(1, *measures)
        ours, theirs = interleave(rounds, *measures)
        [idle] = interleave(rounds, quiet)
    return _figures(tables, ours, theirs, idle)


def _figures(tables: int, ours: Samples, theirs: Samples, idle: Samples) -> list[Figure]:
    processor = beside_goal(
        f"{tables} tables, {RECORDS} records each: processor time", ours["processor"], "s", MINUTE_S
    )
    yardstick, each = "a Spark job for each", 1_000 / tables
    return [
        processor,
        Figure(
            name="· of one table", value=ours["processor"] * each, unit="ms",
            yardstick=yardstick, yardstick_value=theirs["processor"] * each, at_most=0.5,
        ),
        Figure(
            name="· time from the first plan to the last commit", value=ours["seconds"], unit="s",
            yardstick=yardstick, yardstick_value=theirs["seconds"], at_most=1.0,
        ),
        Figure(name="· processor time where no topic has anything new", value=idle["processor"], unit="s"),
    ]  # fmt: skip


def _measure(
    cluster: Cluster, names: Sequence[str], load: Callable[[Sequence[LoadOptions]], None], tables: Sequence[LoadOptions]
) -> Callable[[], Samples]:
    records = [NewRecord(b"v" * 100, key=b"k", timestamp_ms=FIRST_TIMESTAMP_MS) for _ in range(RECORDS)]

    def measure() -> Samples:
        for name in names:
            append(cluster, name, 0, encode_batch(records))
        return _timed(lambda: load(tables))

    return measure


def _quiet(load: Callable[[], None]) -> Callable[[], Samples]:
    load_all = load

    def measure() -> Samples:
        load_all()
        return _timed(load_all)

    return measure


def _timed(work: Callable[[], None]) -> Samples:
    started, processor = time.perf_counter(), _processor_s()
    work()
    return dict(zip(WHOLE, (time.perf_counter() - started, _processor_s() - processor), strict=True))


def _processor_s() -> float:
    """Returns the processor seconds of this process and of all below it but the broker."""
    return sum(_times(one) for one in (psutil.Process(), *psutil.Process().children(recursive=True)))


def _times(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        if "millrace_broker" not in process.cmdline():
            times = process.cpu_times()
            return float(times.user + times.system)
    return 0.0
