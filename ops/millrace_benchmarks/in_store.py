"""Loads and upserts in a store beside the same ones in a folder: `bench load --store`, `bench upsert --store`.

A store may be slower than the work: so the same files are also written to it, or read, with nothing else, by as many
threads as the work has tasks, and that rate stands beside. The store's options are those of MILLRACE_STORE_OPTIONS.
What a run has made in the store is removed.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millrace.errors import ClientError
from millrace_benchmarks.harness import Figure, alternate
from millrace_benchmarks.load_topics import Topic, batches_of, fill
from millrace_benchmarks.subjects import millrace
from millrace_pipelines.machine import DISK
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.rewrite import current_files
from millrace_pipelines.warehouse.stores.addresses import store_at

CORES = 2
ROUNDS = 3
AT_LEAST = 0.7


def loads_in(place: Path, address: str, topics: Sequence[Topic]) -> list[Figure]:
    """Measures loads of topics into a store, and returns the figures in the order of the report."""
    with millrace(place) as ours, spark_session("bench load", local_master(CORES)) as spark, below(address) as there:
        for topic in topics:
            fill(ours.bootstrap, topic, batches_of(topic))
        load = partial(_load, spark, ours.bootstrap)
        load(topics[0], f"{place}/first")  # the first jobs of a JVM cost seconds that later ones don't
        return [figure for topic in topics for figure in _beside_folder(load, topic, address, there, place)]


def _beside_folder(
    load: Callable[[Topic, str], float], topic: Topic, address: str, there: str, place: Path
) -> list[Figure]:
    load(topic, f"{place}/kept-{topic.name}")
    sizes = [file.size_bytes for file in current_files(load_table(f"{place}/kept-{topic.name}", DISK))]
    in_store, in_folder, alone = alternate(
        ROUNDS,
        lambda: load(topic, f"{there}/{uuid.uuid4().hex}"),
        lambda: load(topic, f"{place}/{uuid.uuid4().hex}"),
        lambda: topic.records / write_alone(f"{there}/alone", sizes),
    )
    return [
        Figure(
            name=f"{topic.title}, into {address}", value=in_store, unit="rows/s",
            yardstick="a folder", yardstick_value=in_folder, at_least=AT_LEAST,
        ),
        Figure(name="· the same files, written alone", value=alone, unit="rows/s"),
    ]  # fmt: skip


def _load(spark: SparkSession, bootstrap: str, topic: Topic, table: str) -> float:
    """Returns the records a second of a load into a new table; raises ClientError where its rows aren't the topic's."""
    started = time.perf_counter()
    report = load_topic(LoadOptions(topic=topic.name, table=table, bootstrap=bootstrap), spark=spark)
    seconds = time.perf_counter() - started
    if report.rows != topic.records:
        raise ClientError(f"{topic.title}: {report.rows} rows came of {topic.records} records")
    return topic.records / seconds


def write_alone(location: str, sizes: Sequence[int]) -> float:
    """Returns the seconds in which files of these sizes are written to a store."""
    store = store_at(location, DISK)

    def write(size: int) -> None:
        with store.output(f"{uuid.uuid4().hex}.parquet") as file:
            file.write(content[:size])

    content = os.urandom(max(sizes))
    return _seconds_of(write, sizes)


def read_alone(location: str, names: Sequence[str]) -> float:
    """Returns the seconds in which files are read from a store, whole."""
    return _seconds_of(store_at(location, DISK).read, names)


def _seconds_of(work: Callable[[Any], object], pieces: Sequence[object]) -> float:
    started = time.perf_counter()
    with ThreadPoolExecutor(CORES) as threads:
        list(threads.map(work, pieces))
    return time.perf_counter() - started


@contextmanager
def below(address: str) -> Iterator[str]:
    """Yields an address of this run's own in a store, and removes all that was made below it."""
    there = f"{address.rstrip('/')}/bench-{uuid.uuid4().hex}"
    try:
        yield there
    finally:
        store = store_at(there, DISK)
        store.filesystem.delete_dir(store.root)
