"""The brokers that are measured: Millrace, and Apache Kafka beside it on the same machine, in the same run.

    millrace     standalone, as `millrace broker` starts it
    kafka        Apache Kafka 4.1 with KRaft; heap, collector and threads as its own scripts set them
    kafka-3.9    Apache Kafka 3.9 with ZooKeeper, likewise

Brokers may use every core; their client keeps to the first one (`pinned`). All brokers delete files at once, so that
rounds don't fill the disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import psutil

from millrace.addresses import LOOPBACK
from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.ports import free_port
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker, find_kafka, with_listeners
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_pipelines.http import get_bytes

KAFKA_FLAGS = (
    *("-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)
DELETE_AT_ONCE = {"log.segment.delete.delay.ms": "0"}
KAFKA_PROPERTIES = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "file.delete.delay.ms": "0",
    "log.segment.delete.delay.ms": "0",
    "auto.create.topics.enable": "true",
    "log.cleaner.dedupe.buffer.size": str(128 << 20),
}
ADMIN_TIMEOUT_S = 300.0
PROCESSOR_TIME = 2  # of another process: the clock that Linux's clock_getcpuclockid gives


class Peer(StrEnum):
    """The brokers that Millrace can be measured against."""

    MOCK = "mock"
    KAFKA = "kafka"
    KAFKA_3_9 = "kafka-3.9"


VERSIONS = {Peer.KAFKA: "4.1", Peer.KAFKA_3_9: "3.9"}


@dataclass(frozen=True, slots=True)
class Subject:
    """A running broker under measurement; `addresses` has those of its further listeners, by name."""

    name: str
    bootstrap: str
    pid: int
    data_dir: Path
    ready_s: float
    addresses: Mapping[str, str] = field(default_factory=dict)

    @property
    def cpu_s(self) -> float:
        """The processor time of all its threads so far."""
        return processor_time(self.pid)

    @property
    def resident_mebibytes(self) -> float:
        """The memory that it takes now."""
        return float(psutil.Process(self.pid).memory_info().rss) / (1 << 20)

    @property
    def client_settings(self) -> dict[str, str]:
        """The settings by which a client reaches the listener without security."""
        return {"bootstrap.servers": self.bootstrap}

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Creates a topic, and waits until all of its partitions have leaders."""
        with Cluster(self.bootstrap, timeout_s=ADMIN_TIMEOUT_S) as cluster:
            Admin(cluster).create_topic(name, partitions, config=config)

    def ask_admin(self, path: str) -> bytes:
        """Returns what the admin endpoint of a Millrace answers to a GET request; raises ServiceUnreachableError."""
        address = (self.data_dir / "admin.address").read_text(encoding="utf-8").strip()
        advice = "has the broker ended?"
        return get_bytes(f"http://{address}/{path}", timeout_s=ADMIN_TIMEOUT_S, advice=advice)


def processor_time(pid: int) -> float:
    """Returns the seconds of all threads of a process so far, to the nanosecond; time in ticks would be to 10 ms."""
    return time.clock_gettime(~pid << 3 | PROCESSOR_TIME)


@contextmanager
def millrace(
    directory: Path,
    name: str = "Millrace",
    *,
    properties: Mapping[str, str] | None = None,
    listeners: Mapping[str, str] | None = None,
    program: Sequence[str] = ("-m", "millrace_broker"),
) -> Iterator[Subject]:
    """Yields a standalone Millrace; `listeners` has the security protocols of further listeners, by name."""
    addresses = {one: f"{LOOPBACK}:{free_port()}" for one in listeners or {}}
    given = DELETE_AT_ONCE | dict(properties or {})
    if listeners:
        plain = {"listeners": f"PLAINTEXT://{LOOPBACK}:{free_port()}"}
        given |= with_listeners(plain, listeners, addresses)
    started = time.perf_counter()
    with BrokerProcess(directory / name, properties=given, program=program) as broker:
        ready_s = time.perf_counter() - started
        assert broker.admin_url  # all of the broker is up
        yield Subject(name, broker.bootstrap, broker.pid, broker.data_dir, ready_s, addresses)


@contextmanager
def apache_kafka(
    peer: Peer,
    directory: Path,
    *,
    properties: Mapping[str, str] | None = None,
    listeners: Mapping[str, str] | None = None,
) -> Iterator[Subject]:
    """Yields an Apache Kafka of the peer's version, with further listeners.

    Raises SetupError where its jars are missing.
    """
    version = VERSIONS[peer]
    kafka = replace(find_kafka(version), java_flags=KAFKA_FLAGS)
    given = KAFKA_PROPERTIES | dict(properties or {})
    with ExitStack() as stack:
        zookeeper = None
        if peer is Peer.KAFKA_3_9:
            zookeeper = stack.enter_context(EmbeddedZooKeeper(directory / "zookeeper")).address
        started = time.perf_counter()
        broker = KafkaBroker(
            kafka, directory / f"kafka-{version}", zookeeper=zookeeper, properties=given, listeners=listeners
        )
        stack.enter_context(broker)
        ready_s = time.perf_counter() - started
        name = f"Apache Kafka {version}"
        yield Subject(name, broker.bootstrap, broker.pid, broker.data_dir, ready_s, broker.addresses)


@contextmanager
def subjects(
    place: Path,
    peer: Peer | None = None,
    *,
    properties: Mapping[str, str] | None = None,
    listeners: Mapping[str, str] | None = None,
) -> Iterator[list[Subject]]:
    """Yields Millrace, and beside it the peer if there is one."""
    with ExitStack() as stack:
        started = [stack.enter_context(millrace(place, properties=properties, listeners=listeners))]
        if peer is not None:
            beside = apache_kafka(peer, place, properties=properties, listeners=listeners)
            started.append(stack.enter_context(beside))
        yield started


@contextmanager
def pinned() -> Iterator[None]:
    """Keeps this process, and the threads and processes that it starts meanwhile, on the client's core."""
    before = os.sched_getaffinity(0)
    if len(before) > 1:
        os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
