"""`millrace bench load`: a topic into a table, and what each stage of the load costs.

Without a peer: a load on one core of Spark beside writing such rows as Parquet alone (no load can be faster), the
stages one by one, one task without Spark, and a commit in a table that has had a thousand. With `--peer spark`, before
these: the same topics into Parquet by Spark's own Kafka source, from Apache Kafka and from Millrace, in the same Spark,
in turn; see `load_peers`. The time includes the commit, but not the start of Spark; topics are so large that a
load takes some seconds, of which the starts of jobs and tasks are a small part. Needs `make peers`. With
`--store ADDRESS` instead, loads into a store beside those into a folder (`in_store`); with `--format iceberg`, loads
into that format beside Delta's, and with `--peer connect` beside Iceberg's sink for Kafka Connect (`in_iceberg`), and
what faults do to the rows of both (`sink_faults`).
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from millrace.records.compression import Codec
from millrace_benchmarks.harness import Figure, alternate, beside_goal, interleave
from millrace_benchmarks.in_iceberg import loads_into_iceberg
from millrace_benchmarks.in_store import loads_in
from millrace_benchmarks.load_commits import COMMITS_BEFORE, commit_after
from millrace_benchmarks.load_peers import Ways, millrace_load, spark_source, spark_with_kafka
from millrace_benchmarks.load_stages import MEBIBYTE, stages, task
from millrace_benchmarks.load_topics import Topic, batches_of, fill
from millrace_benchmarks.sink_faults import faults
from millrace_benchmarks.subjects import Peer as Broker
from millrace_benchmarks.subjects import Subject, apache_kafka, millrace
from millrace_pipelines.spark.session import local_master, spark_session


class Peer(StrEnum):
    """The peers that a load is measured against."""

    SPARK = "spark"


PEERS = tuple(Peer)
FORMATS = {"iceberg": ("connect",)}
CORES = 2
ROUNDS = 3
SMALL = Topic("load-100", "100 B", 100, 12_000)
SMALL_LZ4 = Topic("load-100-lz4", "100 B, lz4", 100, 12_000, Codec.LZ4)
LARGE = Topic("load-1024", "1 KB", 1024, 2_400)
LARGE_LZ4 = Topic("load-1024-lz4", "1 KB, lz4", 1024, 2_400, Codec.LZ4)
FLIGHTS = Topic("load-flights", "flights, 253 B", None, 5_384)
TOPICS = (SMALL, SMALL_LZ4, LARGE, LARGE_LZ4, FLIGHTS)
GOALS = {SMALL: 3.0, SMALL_LZ4: 3.0, LARGE: 2.0, LARGE_LZ4: 2.0}
TYPED_GOAL = 3.0
DECODE_GOAL = 10_000_000
CORE_GOAL_MEBIBYTES = 150
COMMIT_GOAL_MS = 50
GIBIBYTE = 1 << 30


def run(place: Path, peer: Peer | None = None) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with millrace(place) as ours:
        topics = (SMALL, LARGE) if peer is None else TOPICS
        batches = {topic: batches_of(topic) for topic in topics}
        for topic in topics:
            fill(ours.bootstrap, topic, batches[topic])
        figures: list[Figure] = []
        if peer is not None:
            with apache_kafka(Broker.KAFKA, place) as kafka:
                for topic in topics:
                    fill(kafka.bootstrap, topic, batches[topic])
                figures = _beside_spark(ours, kafka, place)
        return [*figures, *_own_figures(ours, place)]


def run_in(place: Path, store: str) -> list[Figure]:
    """Measures loads into a store, an address, beside those into a folder."""
    return loads_in(place, store, (SMALL, LARGE))


def run_as(place: Path, _: str, peer: str | None) -> list[Figure]:
    """Measures loads into Iceberg's format, the only one of FORMATS, beside Delta's and those of a peer."""
    rates = loads_into_iceberg(place, (SMALL, LARGE), beside_connect=peer is not None)
    return [*rates, *(() if peer is None else faults(place / "faults"))]


def _beside_spark(ours: Subject, kafka: Subject, directory: Path) -> list[Figure]:
    with spark_with_kafka(CORES) as spark:
        ways = Ways(spark, ours.bootstrap, kafka.bootstrap, directory)
        for way in (spark_source(ways, kafka.bootstrap, SMALL), millrace_load(ways, SMALL)):
            assert way  # the first jobs of a JVM cost seconds that later ones don't
        figures = [figure for topic in TOPICS for figure in _topic_figures(ways, topic)]
        return [*figures, *_typed_figures(ways)]


def _topic_figures(ways: Ways, topic: Topic) -> list[Figure]:
    rate, from_kafka, from_millrace = alternate(
        ROUNDS,
        lambda: millrace_load(ways, topic),
        lambda: spark_source(ways, ways.kafka, topic),
        lambda: spark_source(ways, ways.millrace, topic),
    )
    yardsticks = (("Spark's source, Apache Kafka", from_kafka), ("Spark's source, Millrace", from_millrace))
    return [
        Figure(
            name=f"{topic.title}, end to end, {CORES} cores" if number == 0 else "· the same",
            value=rate,
            unit="rows/s",
            yardstick=name,
            yardstick_value=other,
            at_least=GOALS.get(topic) if number == 0 else None,
        )
        for number, (name, other) in enumerate(yardsticks)
    ]


def _typed_figures(ways: Ways) -> list[Figure]:
    rate, other = alternate(
        ROUNDS,
        lambda: millrace_load(ways, FLIGHTS, typed=True),
        lambda: spark_source(ways, ways.kafka, FLIGHTS, typed=True),
    )
    return [
        Figure(
            name=f"{FLIGHTS.title}, typed JSON columns", value=rate, unit="rows/s",
            yardstick="Spark's source, from_json", yardstick_value=other, at_least=TYPED_GOAL,
        )
    ]  # fmt: skip


def _own_figures(ours: Subject, directory: Path) -> list[Figure]:
    return [
        _one_core(ours, directory),
        *(figure for topic in (SMALL, LARGE) for figure in _stage_figures(ours, topic)),
        *_task_figures(ours),
        *_commit_figures(),
    ]


def _one_core(ours: Subject, directory: Path) -> Figure:
    with spark_session("bench load", local_master(1)) as spark:
        ways = Ways(spark, ours.bootstrap, "", directory)
        millrace_load(ways, LARGE)
        [load, stage] = interleave(
            ROUNDS, lambda: {"rate": millrace_load(ways, LARGE)}, lambda: stages(ours.bootstrap, LARGE)
        )
    return Figure(
        name=f"{LARGE.title}, end to end, one core of Spark", value=_mebibytes(LARGE, load["rate"]), unit="MiB/s",
        yardstick="Parquet writing alone", yardstick_value=_mebibytes(LARGE, stage["write"]),
    )  # fmt: skip


def _stage_figures(ours: Subject, topic: Topic) -> list[Figure]:
    [rates] = interleave(ROUNDS, lambda: stages(ours.bootstrap, topic))
    goal = {"yardstick": "the goal", "yardstick_value": float(DECODE_GOAL), "at_least": 1.0} if topic is SMALL else {}
    return [
        Figure(name=f"{topic.title}, fetch alone", value=rates["fetch"], unit="records/s"),
        Figure(name=f"{topic.title}, decode alone", value=rates["decode"], unit="records/s", **goal),  # type: ignore[arg-type]
        Figure(name=f"{topic.title}, write and sync alone", value=rates["write"], unit="records/s"),
    ]


def _task_figures(ours: Subject) -> list[Figure]:
    whole, part = LARGE.records // 2, LARGE.records // 8
    runs = [(task(ours.bootstrap, LARGE, whole), task(ours.bootstrap, LARGE, part)) for _ in range(ROUNDS)]
    best = min((run for run, _ in runs), key=lambda run: run.seconds)
    peak, small_peak = (min(one.peak_bytes for one in ones) / MEBIBYTE for ones in zip(*runs, strict=True))
    return [
        Figure(
            name=f"{LARGE.title}, one task without Spark, one core", value=best.value_bytes / MEBIBYTE / best.seconds,
            unit="MiB/s", yardstick="the goal", yardstick_value=CORE_GOAL_MEBIBYTES, at_least=1.0,
        ),
        Figure(name="· its processor time for a GiB", value=best.cpu_s * GIBIBYTE / best.value_bytes, unit="s"),
        Figure(
            name=f"· its memory, {whole:,} records", value=peak, unit="MiB",
            yardstick=f"{part:,} records", yardstick_value=small_peak, at_most=1.25,
        ),
    ]  # fmt: skip


def _commit_figures() -> list[Figure]:
    measured = commit_after()
    return [
        beside_goal(f"commit after {COMMITS_BEFORE:,} commits", measured["commit"], "ms", COMMIT_GOAL_MS),
        Figure(name="· loading the table and its ledger", value=measured["load"], unit="ms"),
    ]


def _mebibytes(topic: Topic, rate: float) -> float:
    assert topic.size_bytes is not None  # asked of topics with values of one size
    return rate * topic.size_bytes / MEBIBYTE
