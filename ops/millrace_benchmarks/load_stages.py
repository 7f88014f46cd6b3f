"""The stages of a load alone, each in this thread: fetch, decode, write; and one whole task in its own process.

A stage works on what the one before it left in memory, so its rate does not depend on the others. A task is what Spark
runs, but without Spark: its rate is that of one core, its memory the peak of its process.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

import pyarrow as pa

from millrace.client import Cluster, SimpleConsumer
from millrace.fs import OsFileSystem
from millrace.records.arrow import decode_to_arrow
from millrace.records.batch import walk
from millrace_benchmarks.harness import Samples
from millrace_benchmarks.load_topics import PARTITIONS, Topic
from millrace_pipelines.arrow import ENVELOPE_SCHEMA, Column
from millrace_pipelines.spark.brokers import FETCH_MAX_BYTES, TopicSource
from millrace_pipelines.spark.read import read_range
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.load.task import LoadSpec, load_range
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.files import DataFileWriter

STAGED_RECORDS = {100: 500_000, 1024: 50_000}
MEBIBYTE = 1 << 20
KIBIBYTES = 1024


class TaskRun(NamedTuple):
    """What one task took; `peak_bytes` is the peak memory of its process, with the interpreter's."""

    seconds: float
    cpu_s: float
    value_bytes: int
    peak_bytes: int


def stages(bootstrap: str, topic: Topic) -> Samples:
    """Returns the records a second of each stage, measured at the beginning of partition 0."""
    assert topic.size_bytes is not None  # flights have no stages of their own
    records = min(STAGED_RECORDS[topic.size_bytes], topic.records // PARTITIONS)
    started = time.perf_counter()
    fetched = list(_fetch(bootstrap, topic.name, records))
    fetch_s = time.perf_counter() - started
    started = time.perf_counter()
    blocks = [block for answer in fetched for block in decode_to_arrow(answer, until_offset=records)]
    decode_s = time.perf_counter() - started
    write_s = _write(topic.name, blocks)
    return {"fetch": records / fetch_s, "decode": records / decode_s, "write": records / write_s}


def task(bootstrap: str, topic: Topic, records: int) -> TaskRun:
    """Loads `records` records of partition 0 in another process."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_task, args=(bootstrap, topic.name, records, theirs))
    process.start()
    theirs.close()
    try:
        return TaskRun(*ours.recv())
    finally:
        process.join()


def _fetch(bootstrap: str, topic: str, records: int) -> Iterator[bytes]:
    with Cluster(bootstrap) as cluster:
        consumer, position = SimpleConsumer(cluster), 0
        while position < records:
            fetched = consumer.fetch(topic, 0, position, max_bytes=FETCH_MAX_BYTES).records
            for _, header in walk(fetched):
                position = header.next_offset
            yield fetched


def _task(bootstrap: str, topic: str, records: int, answer: Connection) -> None:
    span = OffsetRange(0, 0, records)
    read = partial(read_range, TopicSource(bootstrap, topic))
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory:
        spec = LoadSpec(
            load_id="bench",
            topic=topic,
            table=directory,
            dead_letters_table=dead_letters_dir(directory),
            payload=None,
        )
        started, started_cpu = time.perf_counter(), time.process_time()
        result = load_range(span, spec, read, task=0, fs=OsFileSystem())
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - started_cpu
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIBIBYTES
    answer.send((seconds, cpu_s, result.value_bytes, peak_bytes))


def _write(topic: str, blocks: list[pa.RecordBatch]) -> float:
    tables = [_envelope(topic, block) for block in blocks]
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory:
        started = time.perf_counter()
        with DataFileWriter(directory, "bench", 0, ENVELOPE_SCHEMA, OsFileSystem()) as writer:
            for table in tables:
                writer.write(table)
            writer.finish()
        return time.perf_counter() - started


def _envelope(topic: str, records: pa.RecordBatch) -> pa.Table:
    constants: list[Column] = [
        pa.repeat(pa.scalar(topic, pa.string()), records.num_rows),
        pa.repeat(pa.scalar(0, pa.int32()), records.num_rows),
    ]
    return pa.Table.from_arrays([*constants, *records.columns], schema=ENVELOPE_SCHEMA)
