"""Clusters of three brokers that are measured: Millrace, and Apache Kafka 3.9 beside it, both under one ZooKeeper.

Each topic has a replica on each broker, and a write with acks=all needs two of them. Sessions with ZooKeeper are as
long on both sides, and leaders stay where failures have brought them. Apache Kafka has the collector and the threads of
its own scripts, and 512 MB of heap for each broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection
from millrace.client.metadata import PartitionMetadata
from millrace.clock import SystemClock
from millrace.errors import ClientError, MillraceError
from millrace.testing.broker import BrokerProcess
from millrace.wire.messages import CREATE_TOPICS
from millrace.zk import paths
from millrace.zk.session import ZooKeeperSession
from millrace_benchmarks.kafka_broker import Kafka, KafkaBroker, find_kafka
from millrace_benchmarks.subjects import DELETE_AT_ONCE, KAFKA_FLAGS, KAFKA_PROPERTIES, processor_time

if TYPE_CHECKING:
    from millrace.wire.messages.create_topics import CreatableReplicaAssignmentFields, CreateTopicsRequestFields

IDS = (1, 2, 3)
KAFKA_HEAP = ("-Xms512m", "-Xmx512m")
PROPERTIES = {
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.replication.factor": "3",
}
TIMEOUT_S = 300.0
PAUSE_S = 0.02

Partitions = Mapping[int, PartitionMetadata]


class Broker(AbstractContextManager["Broker"], Protocol):
    """A broker of either kind as a process."""

    bootstrap: str
    data_dir: Path

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        ...

    def start(self) -> None:
        """Starts it at the same address as before."""
        ...

    def stop(self) -> int:
        """Ends it by SIGTERM, unless it has ended, and returns the exit status."""
        ...

    def kill(self) -> int:
        """Ends the broker by SIGKILL."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterSubject:
    """A running cluster under measurement: its brokers by id, and a session in its part of ZooKeeper."""

    name: str
    brokers: Mapping[int, Broker]
    zookeeper: ZooKeeperSession

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(one.bootstrap for one in self.brokers.values())

    @property
    def cpu_s(self) -> float:
        """The processor time of all brokers so far; they have to be running."""
        return sum(processor_time(one.pid) for one in self.brokers.values())

    def is_registered(self, broker_id: int) -> bool:
        """Returns whether the session of a broker with ZooKeeper goes on."""
        return self.zookeeper.exists(paths.broker(broker_id))

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Creates a topic whose partitions have the same replicas in the same order, and waits until all serve."""
        replicas: list[CreatableReplicaAssignmentFields] = [
            {"partition_index": index, "broker_ids": IDS} for index in range(partitions)
        ]
        fields: CreateTopicsRequestFields = {
            "topics": [
                {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": replicas, "configs": ()}
            ],
            "timeout": int(TIMEOUT_S * 1000),
            "validate_only": False,
        }

        def create(connection: Connection) -> None:
            answer = connection.request(CREATE_TOPICS, fields).topics[0]
            check(answer.error_code, f"topic {name}", answer.error_message)

        with Cluster(self.bootstrap, timeout_s=TIMEOUT_S) as cluster:
            cluster.on_controller(create)
        self.await_partitions(name, lambda found: len(found) == partitions and _all_in_sync(found, len(IDS)))

    def await_in_sync(self, topic: str, count: int = len(IDS)) -> None:
        """Waits until each partition of a topic has exactly `count` replicas in sync."""
        self.await_partitions(topic, lambda found: _all_in_sync(found, count))

    def await_partitions(self, topic: str, are_so: Callable[[Partitions], bool]) -> Partitions:
        """Returns the partitions of a topic, as one broker reports them, once `are_so` accepts them."""
        deadline = time.monotonic() + TIMEOUT_S
        with Cluster(self.bootstrap, timeout_s=TIMEOUT_S) as cluster:
            while time.monotonic() < deadline:
                with suppress(MillraceError):
                    found = cluster.metadata([topic]).topic(topic).partitions
                    if are_so(found):
                        return found
                time.sleep(PAUSE_S)
        raise ClientError(f"{self.name}: {topic} has not become as it should be")

    def leader(self, topic: str) -> int:
        """Returns the leader of the first partition."""
        return self.await_partitions(topic, lambda found: found[0].leader in self.brokers)[0].leader


def _all_in_sync(found: Partitions, count: int) -> bool:
    return all(len(one.isr) == count and one.leader in one.isr for one in found.values())


@contextmanager
def millrace_cluster(directory: Path, zookeeper: str, session_timeout_ms: int) -> Iterator[ClusterSubject]:
    """Yields three brokers of Millrace."""
    properties = DELETE_AT_ONCE | _properties(session_timeout_ms)

    def start(broker_id: int, chroot: str) -> BrokerProcess:
        folder = directory / f"millrace-{broker_id}"
        return BrokerProcess(folder, zookeeper=chroot, broker_id=broker_id, properties=properties)

    with _cluster("Millrace", f"{zookeeper}/millrace", start) as subject:
        yield subject


@contextmanager
def kafka_cluster(directory: Path, zookeeper: str, session_timeout_ms: int) -> Iterator[ClusterSubject]:
    """Yields three brokers of Apache Kafka 3.9; raises SetupError where its jars are missing."""
    kafka: Kafka = replace(find_kafka("3.9"), java_flags=(*KAFKA_FLAGS, *KAFKA_HEAP))
    properties = KAFKA_PROPERTIES | _properties(session_timeout_ms)

    def start(broker_id: int, chroot: str) -> KafkaBroker:
        folder = directory / f"kafka-{broker_id}"
        return KafkaBroker(kafka, folder, zookeeper=chroot, broker_id=broker_id, properties=properties)

    with _cluster("Apache Kafka 3.9", f"{zookeeper}/kafka", start) as subject:
        yield subject


def _properties(session_timeout_ms: int) -> dict[str, str]:
    return PROPERTIES | {"zookeeper.session.timeout.ms": str(session_timeout_ms)}


@contextmanager
def _cluster(name: str, chroot: str, start: Callable[[int, str], Broker]) -> Iterator[ClusterSubject]:
    """Yields a cluster once each broker knows of all others."""
    session = ZooKeeperSession(
        chroot, session_timeout_ms=60_000, connection_timeout_ms=60_000, on_change=lambda _: None, clock=SystemClock()
    )
    with ExitStack() as stack, ThreadPoolExecutor(len(IDS)) as threads:
        stack.enter_context(closing(session))
        session.start()
        brokers = dict(zip(IDS, threads.map(start, IDS, [chroot] * len(IDS)), strict=True))
        for one in brokers.values():
            stack.enter_context(one)
            stack.callback(one.kill)
        for one in brokers.values():
            _await_all(one)
        yield ClusterSubject(name, brokers, session)


def _await_all(broker: Broker) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    with Cluster(broker.bootstrap) as cluster:
        while set(cluster.metadata([]).brokers) != set(IDS):
            if time.monotonic() > deadline:
                raise ClientError(f"{broker.bootstrap} does not know of all brokers")
            time.sleep(PAUSE_S)
