"""What becomes of rows where Iceberg's sink for Kafka Connect, or a load, is killed between its files and its commit.

    1. the catalog takes no commit: its SQLite file is locked
    2. the sink, or the load, has written its files, and waits for the commit
    3. it is killed, the lock goes, and another one is started, which goes on to the end of the topic

The sink's tasks have committed the topic's offsets by then, with what they say of their files in the control topic. Its
coordinator reads that from the end on, as long as its group has committed nothing there, and so the next one never
learns of these files: they are in no snapshot (apache/iceberg 17551). A load's offsets are in its commit, and are
loaded again.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.errors import ClientError
from millrace.lifeline import end_process, start_with_lifeline
from millrace_benchmarks.harness import Figure
from millrace_benchmarks.iceberg_connect import SINK_COLUMNS, TASKS, ConnectWorker, sink_of
from millrace_benchmarks.load_topics import KEPT, PARTITIONS, Topic, append, batches_of, fill
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.formats import load_or_create, load_table

TOPIC = Topic("faults", "100 B", 100, 200)
TIMEOUT_S = 180.0
CYCLES = 4
ASKED = "Sending event of type: START_COMMIT"
STOP_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.05
ANNOUNCED = "Sending event of type: DATA_COMPLETE"
RECEIVED = "[iceberg-coord] INFO org.apache.iceberg.connect.channel.Channel - Handled event of type: DATA_WRITTEN"


class Rows(NamedTuple):
    """How many of a topic's rows a table lacks, and how many it has more often than once."""

    lost: int
    doubled: int


def faults(place: Path, bootstrap: str, topic: Topic = TOPIC) -> list[Figure]:
    """Kills a load and the sink in the same way, and returns what it did to their rows."""
    ours = _killed_load(place, bootstrap, topic)
    fill(bootstrap, topic, batches_of(topic))
    theirs = _killed_sink(place, bootstrap, topic)
    return [
        Figure(
            name=f"killed before its commit: rows {what}, of {topic.records:,}", value=getattr(ours, what), unit="rows",
            yardstick="Kafka Connect's sink", yardstick_value=getattr(theirs, what),
        )
        for what in Rows._fields
    ]  # fmt: skip


def _killed_load(place: Path, bootstrap: str, topic: Topic) -> Rows:
    named = topic._replace(name=f"{topic.name}-load")
    table, lake = f"iceberg:{place}/lake/bench.killed_load", place / "lake"
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(named.name, PARTITIONS, config=KEPT)
        _load(table, bootstrap, named, place).wait(TIMEOUT_S)  # it makes the table
        batches = batches_of(named)
        for number in range(named.batches):
            append(cluster, named.name, number % PARTITIONS, batches[number % len(batches)])
    written = Path(load_table(table, DISK).location) / "metadata"
    before = set(written.glob("snap-*"))
    with _locked(lake):
        load = _load(table, bootstrap, named, place)
        _await(lambda: set(written.glob("snap-*")) > before, "the load writes no manifest")
        end_process(load, signal.SIGKILL, STOP_TIMEOUT_S)
    if _load(table, bootstrap, named, place).wait(TIMEOUT_S):
        raise ClientError("the load after the killed one has failed")
    return _rows(table, topic)


def _load(table: str, bootstrap: str, topic: Topic, place: Path) -> subprocess.Popen[bytes]:
    words: Sequence[str] = ("warehouse", "load", topic.name, "--table", table, "--bootstrap", bootstrap)
    with (place / "killed-load.log").open("ab") as log:
        command = [sys.executable, "-m", "millrace_ops", *words]
        return start_with_lifeline(command, stdout=log, stderr=subprocess.STDOUT)


def _killed_sink(place: Path, bootstrap: str, topic: Topic) -> Rows:
    table, lake = f"iceberg:{place}/lake/bench.killed_sink", place / "lake"
    made = load_or_create(table, DISK, schema=SINK_COLUMNS, name="killed_sink", configuration={})
    with ConnectWorker(place, bootstrap, name="killed") as worker:
        worker.start_connector(
            "killed", sink_of(topic.name, lake=lake, table="bench.killed_sink", control="control-killed")
        )
        _await(lambda: any(Path(made.location).rglob("*.parquet")), "the sink writes no file")
        with _locked(lake):
            _await(lambda: worker.read_log().count(ANNOUNCED) >= TASKS, "the sink's tasks don't finish their files")
            _await(lambda: RECEIVED in worker.read_log(), "the sink's coordinator does not hear of files")
            worker.kill()
    with ConnectWorker(place, bootstrap, name="after") as worker:
        _await(lambda: worker.read_log().count(ASKED) >= CYCLES, "the sink does not go on")
    return _rows(table, topic)


@contextmanager
def _locked(lake: Path) -> Iterator[None]:
    """Keeps the catalog from taking a commit in the context; it can be read."""
    with closing(sqlite3.connect(lake / "catalog.sqlite", isolation_level=None, timeout=TIMEOUT_S)) as catalog:
        catalog.execute("BEGIN IMMEDIATE")
        yield
        catalog.execute("ROLLBACK")


def _rows(table: str, topic: Topic) -> Rows:
    found = load_table(table, DISK).dataset().to_table(columns=["partition", "offset"])
    distinct = found.group_by(["partition", "offset"]).aggregate([]).num_rows
    return Rows(topic.records - distinct, found.num_rows - distinct)


def _await(is_so: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise ClientError(otherwise)
        time.sleep(POLL_INTERVAL_S)
