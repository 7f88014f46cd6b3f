"""Several real brokers of one cluster, for tests of what they do together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Generic, Protocol, TypeVar
from uuid import uuid4

from millrace.client import Admin, Cluster
from millrace.client.metadata import Partition, PartitionMetadata
from millrace.errors import InvalidReplicationFactorError, MillraceError
from millrace.security.client_security import ClientSecurity
from millrace.testing.broker import BrokerProcess
from millrace_support.await_brokers import Serving, await_brokers
from millrace_support.log_differences import describe_difference
from millrace_support.waiting import awaited
from millrace_support.zookeeper_sessions import end_session

B = TypeVar("B", bound="ServingFromDisk")
SESSION_TIMEOUT_MS = 4000
QUICK = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.wait.max.ms": "100",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
PATIENT = {"zookeeper.session.timeout.ms": "30000", "replica.lag.time.max.ms": "30000"}
"""For tests that kill brokers only by `crash`: on a busy machine no live broker loses its session or leaves the ISR."""


class ServingFromDisk(Serving, Protocol):
    """A broker whose logs a test may read."""

    data_dir: Path


def create_replicated(cluster: Cluster, topic: str, partitions: int, replicas: int) -> None:
    """Creates a topic once enough brokers are alive; on a busy machine one of them may lose its session for a while."""

    def create() -> bool | None:
        with contextlib.suppress(InvalidReplicationFactorError):
            Admin(cluster).create_topic(topic, partitions, replicas)
            return True
        return None

    awaited(create, f"{topic} is created with {replicas} replicas")


class BrokerCluster(Generic[B]):
    """Brokers by id, under one ZooKeeper; a broker that a test kills is started again by `brokers[id].start()`.

    Attributes:
        security: How this process reaches the brokers.
    """

    def __init__(self, brokers: Mapping[int, B], security: ClientSecurity = ClientSecurity.PLAINTEXT) -> None:
        self.brokers = dict(brokers)
        self.security = security

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for any client."""
        return ",".join(each.bootstrap for each in self.brokers.values())

    def connect(self, broker: B | None = None) -> Cluster:
        """Returns a client that bootstraps from all brokers, or from the given one."""
        return Cluster(self.bootstrap if broker is None else broker.bootstrap, security=self.security)

    def partition(self, topic: str, index: int = 0) -> PartitionMetadata:
        """Returns a partition as the first broker that answers describes it."""
        with self.connect() as cluster:
            return cluster.metadata([topic]).topic(topic).partitions[index]

    def until(self, holds: Callable[[PartitionMetadata], bool], topic: str, index: int = 0) -> PartitionMetadata:
        """Waits until `holds` is true of a partition, and returns the partition."""

        def look() -> PartitionMetadata | None:
            with contextlib.suppress(MillraceError, LookupError):
                found = self.partition(topic, index)
                return found if holds(found) else None
            return None

        return awaited(look, f"{topic}-{index} becomes as it should be")

    def until_known(self, topic: str) -> None:
        """Waits until every broker has heard of a topic: a client may ask any of them."""

        def is_known(broker: B) -> bool:
            with contextlib.suppress(MillraceError), self.connect(broker) as cluster:
                return topic in cluster.metadata().topics
            return False

        awaited(lambda: all(map(is_known, self.brokers.values())) or None, f"all brokers know of {topic}")

    def all_in_sync(self) -> list[Partition]:
        """Waits until every replica of every partition is in sync, and returns the partitions."""
        return awaited(self._all_in_sync, "all replicas are in sync")

    def _all_in_sync(self) -> list[Partition] | None:
        with contextlib.suppress(MillraceError), self.connect() as cluster:
            topics = cluster.metadata().topics.values()
            found = {(topic.name, index): one for topic in topics for index, one in topic.partitions.items()}
            return list(found) if all(set(one.isr) == set(one.replicas) for one in found.values()) else None
        return None

    def log_bytes(self, broker_id: int, topic: str, index: int = 0) -> bytes:
        """Returns all bytes of a broker's log."""
        folder = self.brokers[broker_id].data_dir / f"{topic}-{index}"
        return b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))

    def equal_logs(self, topic: str, index: int = 0) -> bytes:
        """Waits until all brokers have the same log of a partition, and returns its bytes."""

        def logs() -> dict[int, bytes]:
            return {each: self.log_bytes(each, topic, index) for each in self.brokers}

        def look() -> bytes | None:
            contents = set(logs().values())
            return contents.pop() if len(contents) == 1 else None

        def describe() -> str:
            return f"{self.partition(topic, index)}\n{describe_difference(logs())}"

        return awaited(look, f"all replicas of {topic}-{index} have the same bytes", describe)

    def controller(self) -> int:
        """Returns the id of the controller, once there is one."""
        return awaited(self._controller, "there is a controller")

    def _controller(self) -> int | None:
        with contextlib.suppress(MillraceError), self.connect() as cluster:
            found = cluster.metadata([]).controller_id
            return found if found in self.brokers else None
        return None


class CrashingCluster(BrokerCluster[BrokerProcess]):
    """Brokers whose sessions a test can end, too.

    Attributes:
        zookeeper: Their ZooKeeper's address, with the chroot.
    """

    def __init__(self, brokers: Mapping[int, BrokerProcess], zookeeper: str) -> None:
        super().__init__(brokers)
        self.zookeeper = zookeeper

    def crash(self, *broker_ids: int) -> None:
        """Kills all of these brokers first, and then ends their sessions, so that no test waits for an expiry."""
        for each in broker_ids:
            self.brokers[each].kill()
        for each in broker_ids:
            end_session(self.zookeeper, each)


def end(broker: BrokerProcess) -> None:
    """Kills a broker for good: the last ones of a cluster have no other broker to hand their partitions to."""
    broker.kill()
    broker.close()


@contextlib.contextmanager
def broker_cluster(
    folder: Path, zookeeper: str, ids: Sequence[int] = (1, 2, 3), properties: Mapping[str, str] | None = None
) -> Iterator[CrashingCluster]:
    """Starts brokers in a chroot of their own, at the same time, and yields once each knows of all others.

    Broker 1 is in the rack rack-1, and so on.
    """
    chroot = f"{zookeeper}/{uuid4().hex}"
    settings = {**QUICK, **(properties or {})}

    def start(broker_id: int) -> BrokerProcess:
        own = {**settings, "broker.rack": f"rack-{broker_id}"}
        return BrokerProcess(folder / str(broker_id), zookeeper=chroot, broker_id=broker_id, properties=own)

    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(ids)) as starting:
        brokers = dict(zip(ids, starting.map(start, ids), strict=True))
        for each in brokers.values():
            stack.callback(end, each)
        await_brokers(set(ids), *brokers.values())
        yield CrashingCluster(brokers, chroot)
