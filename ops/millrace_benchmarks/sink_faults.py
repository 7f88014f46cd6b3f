"""What becomes of rows if a load, or Iceberg's sink for Kafka Connect, is disturbed between its files and its commit.

Each fault is brought about in both, step by step and without chance, and their rows are counted (`FAULTS`).

Killed before its commit:

    1. the catalog takes no commit: its SQLite file is locked
    2. the sink, or the load, has written files of all records, and waits for the commit
    3. it is killed, the lock goes, and another one is started, which goes on to the end of the topic

The sink's tasks have committed the topic's offsets by then, with what they say of their files in the control topic. Its
coordinator reads that from the end on, as long as its group has committed nothing there, and so the next one never
learns of these files: they are in no snapshot (apache/iceberg 17551). A load's offsets are in its commit, and are
loaded again.

Joined by another before its commit:

    a load      is stopped while it waits for the lock; another one commits the same offsets, and the first one goes on
    the sink    has three tasks, one of which has no records yet, and so gives no answer; when the two others have
                answered in a cycle, another member joins the coordinator's group, as a second coordinator would

The coordinator loses its partition of the control topic, gets it again, and reads the cycle's events once more, from
the offset that its group has committed. It counts the first task's answer twice, which makes three, and commits the
files of both tasks with the place behind that answer. What the second task said of its files lies behind that place,
is read again, too, and goes into the next commit once more (apache/iceberg 17340, 13763). A load that comes late finds
other offsets in the table than it has planned with, and is refused.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.groups import Groups
from millrace.errors import ClientError
from millrace.lifeline import end_process, start_with_lifeline
from millrace_benchmarks.harness import Figure
from millrace_benchmarks.iceberg_connect import SINK_COLUMNS, TASKS, ConnectWorker, sink_of
from millrace_benchmarks.load_topics import KEPT, PARTITIONS, Topic, append, batches_of
from millrace_benchmarks.subjects import Peer, apache_kafka
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.formats import load_or_create, load_table

TOPIC = Topic("", "100 B", 100, 200)  # each fault names its own
TIMEOUT_S = 180.0
CYCLES = 2  # the first of them is over when the second one begins
STOP_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.05
ASKED = "Sending event of type: START_COMMIT"
RECEIVED = "[iceberg-coord] INFO org.apache.iceberg.connect.channel.Channel - Handled event of type: DATA_WRITTEN"
ALL_BUT_ONE = f"received responses for {TASKS} of {TASKS + 1} partitions"
ALL = f"received responses for all {TASKS + 1} partitions"
IDLE_TASK = {"tasks.max": str(TASKS + 1)}
WITHOUT_ALL_ANSWERS = {"iceberg.control.commit.timeout-ms": "15000"}
PROMPT = {"offset.flush.interval.ms": "500"}  # how long a task waits for records before it looks for a cycle


class Rows(NamedTuple):
    """How many of a topic's rows a table lacks, and how many it has more often than once."""

    lost: int
    doubled: int


class Scene(NamedTuple):
    """Where a fault happens; the table is called as the topic."""

    place: Path
    bootstrap: str
    topic: Topic

    @property
    def lake(self) -> Path:
        """The folder of the embedded catalog."""
        return self.place / "lake"

    @property
    def table(self) -> str:
        """The table, as the catalog names it."""
        return f"bench.{self.topic.name}"

    @property
    def address(self) -> str:
        """The table, as a load names it."""
        return f"iceberg:{self.lake}/{self.table}"

    def create_topic(self, partitions: int = PARTITIONS) -> None:
        """Creates the topic, without records."""
        with Cluster(self.bootstrap) as cluster:
            Admin(cluster).create_topic(self.topic.name, partitions, config=KEPT)

    def fill(self, first: int = 0, end: int | None = None) -> None:
        """Appends the topic's batches from `first` until `end`, by default all, in turn to the first two partitions."""
        with Cluster(self.bootstrap) as cluster:
            for number, batch in enumerate(islice(cycle(batches_of(self.topic)), first, end or self.topic.batches)):
                append(cluster, self.topic.name, number % PARTITIONS, batch)

    def taken(self) -> int:
        """Returns how many of the topic's records are behind the offsets that the sink's tasks have committed."""
        with Cluster(self.bootstrap) as cluster:
            return sum(place.offset for place in Groups(cluster).offsets(f"connect-{self.topic.name}").values())

    def rows(self) -> Rows:
        """Returns how the table's rows differ from the topic's records."""
        found = load_table(self.address, DISK).dataset().to_table(columns=["partition", "offset"])
        distinct = found.group_by(["partition", "offset"]).aggregate([]).num_rows
        return Rows(self.topic.records - distinct, found.num_rows - distinct)


def faults(place: Path) -> list[Figure]:
    """Brings about each fault in a load and in the sink, in a new folder, and returns what it did to their rows."""
    place.mkdir()
    with apache_kafka(Peer.KAFKA, place) as broker:
        return [figure for fault in FAULTS for figure in _figures(fault, place, broker.bootstrap)]


def _figures(fault: str, place: Path, bootstrap: str) -> list[Figure]:
    load, sink = (
        bring_about(Scene(place, bootstrap, TOPIC._replace(name=bring_about.__name__.strip("_"))))
        for bring_about in FAULTS[fault]
    )
    return [
        Figure(
            name=f"{fault}: rows {what}, of {TOPIC.records:,}", value=getattr(load, what), unit="rows",
            yardstick="Kafka Connect's sink", yardstick_value=getattr(sink, what),
        )
        for what in Rows._fields
    ]  # fmt: skip


def _killed_load(scene: Scene) -> Rows:
    with _load_before_commit(scene) as load:
        end_process(load, signal.SIGKILL, STOP_TIMEOUT_S)
    _load_all(scene)
    return scene.rows()


def _joined_load(scene: Scene) -> Rows:
    with _load_before_commit(scene) as load:
        load.send_signal(signal.SIGSTOP)
    _load_all(scene)
    load.send_signal(signal.SIGCONT)
    load.wait(TIMEOUT_S)
    return scene.rows()


@contextmanager
def _load_before_commit(scene: Scene) -> Iterator[subprocess.Popen[bytes]]:
    """Yields a load of all records that has written its files, and can't commit them within the context."""
    scene.create_topic()
    _load_all(scene)  # it makes the table
    scene.fill()
    metadata = Path(load_table(scene.address, DISK).location) / "metadata"
    before = set(metadata.glob("snap-*"))
    with _locked(scene.lake):
        load = _start_load(scene)
        _await(lambda: set(metadata.glob("snap-*")) > before, "the load writes no manifest")
        yield load


def _load_all(scene: Scene) -> None:
    if _start_load(scene).wait(TIMEOUT_S):
        raise ClientError("the load has failed")


def _start_load(scene: Scene) -> subprocess.Popen[bytes]:
    words = ("warehouse", "load", scene.topic.name, "--table", scene.address, "--bootstrap", scene.bootstrap)
    with (scene.place / f"{scene.topic.name}.log").open("ab") as log:
        command = [sys.executable, "-m", "millrace_ops", *words]
        return start_with_lifeline(command, stdout=log, stderr=subprocess.STDOUT)


def _killed_sink(scene: Scene) -> Rows:
    scene.create_topic()
    scene.fill()
    with _sink(scene) as worker:
        location = Path(load_table(scene.address, DISK).location)
        _await(lambda: any(location.rglob("*.parquet")), "the sink writes no file")
        with _locked(scene.lake):
            _await(lambda: scene.taken() == scene.topic.records, "the sink's tasks don't commit the topic's offsets")
            worker.kill()
    with ConnectWorker(
        scene.place, scene.bootstrap, name=f"{scene.topic.name}-after", cluster=scene.topic.name
    ) as worker:
        _await_cycles(worker)
    return scene.rows()


def _joined_sink(scene: Scene) -> Rows:
    scene.create_topic(PARTITIONS + 1)
    scene.fill(end=PARTITIONS)
    begun = scene._replace(topic=scene.topic._replace(batches=PARTITIONS))
    with _sink(scene, connector=IDLE_TASK, properties=PROMPT) as worker:
        _await(lambda: begun.rows().lost == 0, "the sink does not commit")
        _await(lambda: _are_answers_in(worker.read_log(), files=0), "the sink's tasks don't answer")
        scene.fill(PARTITIONS)
        _await(lambda: _are_answers_in(worker.read_log(), files=TASKS), "the sink's tasks write no files")
        with _another_member(scene):
            _await(lambda: ALL in worker.read_log(), "the sink's coordinator counts no answer twice")
            _await_cycles(worker)
    return scene.rows()


def _are_answers_in(log: str, files: int) -> bool:
    """Returns whether all tasks but the one without records have answered in the last cycle, with so many files."""
    answers = log.rpartition(ASKED)[2]
    return ALL_BUT_ONE in answers and answers.count(RECEIVED) == files


@contextmanager
def _another_member(scene: Scene) -> Iterator[None]:
    """Keeps a member in the coordinator's group that reads another topic than the coordinator."""
    settings = {"bootstrap.servers": scene.bootstrap, "group.id": f"connect-{scene.topic.name}-coord"}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([scene.topic.name])
        yield


@contextmanager
def _sink(
    scene: Scene, *, connector: Mapping[str, str] | None = None, properties: Mapping[str, str] | None = None
) -> Iterator[ConnectWorker]:
    name = scene.topic.name
    load_or_create(scene.address, DISK, schema=SINK_COLUMNS, name=name, configuration={})
    settings = sink_of(name, lake=scene.lake, table=scene.table, control=f"control-{name}") | WITHOUT_ALL_ANSWERS
    with ConnectWorker(scene.place, scene.bootstrap, name=name, cluster=name, properties=properties) as worker:
        worker.start_connector(name, settings | dict(connector or {}))
        yield worker


def _await_cycles(worker: ConnectWorker) -> None:
    begun = worker.read_log().count(ASKED)
    _await(lambda: worker.read_log().count(ASKED) >= begun + CYCLES, "the sink does not go on")


@contextmanager
def _locked(lake: Path) -> Iterator[None]:
    """Keeps the catalog from taking a commit in the context; it can be read."""
    with closing(sqlite3.connect(lake / "catalog.sqlite", isolation_level=None, timeout=TIMEOUT_S)) as catalog:
        catalog.execute("BEGIN IMMEDIATE")
        yield
        catalog.execute("ROLLBACK")


def _await(is_so: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise ClientError(otherwise)
        time.sleep(POLL_INTERVAL_S)


FAULTS: Mapping[str, tuple[Callable[[Scene], Rows], Callable[[Scene], Rows]]] = {
    "killed before its commit": (_killed_load, _killed_sink),
    "joined by another before its commit": (_joined_load, _joined_sink),
}
