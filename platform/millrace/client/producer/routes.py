"""Knows which brokers there are, which partitions a topic has and who leads them.

Metadata is asked for when a topic is first named, when a broker turns out not to lead, when ZooKeeper tells of a
change, and after `topic.metadata.refresh.interval.ms`. One thread asks at a time.

With `zk.connect` ZooKeeper names the brokers, and tells of what changes there:

    new broker, lost broker               children of /brokers/ids
    new topic                             children of /brokers/topics
    a broker takes on a topic             data of /brokers/topics/[topic]

Each of the four makes the producer ask for brokers and leaders again, several times within seconds, since a broker may
hear of a change later than we do; connections to brokers that left are closed.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from time import sleep
from typing import SupportsIndex

from millrace.addresses import Address
from millrace.client.answers import is_retriable
from millrace.client.cluster import Cluster
from millrace.client.metadata import AbsentTopicError, ClusterMetadata
from millrace.client.producer.settings import ProducerSettings
from millrace.clock import Clock
from millrace.errors import BrokerUnreachableError, InvalidConfigError, MillraceError
from millrace.security.protocols import SecurityProtocol
from millrace.zk import paths
from millrace.zk.brokers import read_brokers
from millrace.zk.security import UNSECURED, ZooKeeperSecurity
from millrace.zk.session import ZooKeeperSession


class BrokerWatch:
    """Watches in ZooKeeper where the live brokers listen for a security protocol.

    After every change of brokers or topics `on_change(bootstrap)` is called on the ZooKeeper session's thread.
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int,
        on_change: Callable[[str], None],
        clock: Clock,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        security: ZooKeeperSecurity = UNSECURED,
    ) -> None:
        self._on_change = on_change
        self._protocol = protocol
        self._bootstrap = ""
        self._session = ZooKeeperSession(
            connect,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=session_timeout_ms,
            on_change=self._changed,
            clock=clock,
            security=security,
        )
        self._session.start()
        try:
            self._bootstrap = self._read()
        except BaseException:
            self._session.close()
            raise

    @property
    def bootstrap(self) -> str:
        """`HOST:PORT` of each live broker, with commas between; raises BrokerUnreachableError where there is none."""
        if not self._bootstrap:
            raise BrokerUnreachableError("no broker is registered in ZooKeeper")
        return self._bootstrap

    def close(self) -> None:
        """Ends the session with ZooKeeper."""
        self._session.close()

    def _changed(self, _: frozenset[str] | None) -> None:
        self._bootstrap = self._read()
        if self._bootstrap:
            self._on_change(self._bootstrap)

    def _read(self) -> str:
        """Returns `HOST:PORT,…` of the live brokers; sets watches on brokers, topics and their assignments."""
        brokers = read_brokers(self._session, watch=True, security_protocol=self._protocol.name)
        topics = self._session.children(paths.TOPICS, watch=True)
        self._session.get_many([paths.topic(name) for name in topics], watch=True)
        return ",".join(map(str, brokers))


METADATA_PAUSE_S = 0.05


class Routes:
    """A cache of the partition counts and leaders in the last metadata, refreshed on demand.

    `brokers` are the known addresses of live brokers; `cluster` is for requests to any of them, and needs `lock`.
    """

    def __init__(self, settings: ProducerSettings, bootstrap: str, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.lock = threading.Lock()
        self.cluster = self.cluster_of(bootstrap)
        self.partition_counts: dict[str, int] = {}
        self._leaders: dict[tuple[str, int], Address] = {}
        self.brokers: frozenset[Address] = frozenset()
        self._asked_s = 0.0

    def partition_count(self, topic: str) -> int:
        """Returns how many partitions a topic has, and waits for it up to `max.block.ms`.

        A topic that does not exist is created if the cluster is set up to.
        """
        count = self.partition_counts.get(topic)
        if count is not None:
            return count
        deadline_s = self._clock.monotonic_s() + self._settings.max_block_ms / 1000
        while True:
            try:
                with self.lock:
                    if topic not in self.partition_counts:
                        self._learn(self.cluster.metadata([topic], create_missing=True), (topic,))
                    return self.partition_counts[topic]
            except MillraceError as error:
                may_come = is_retriable(error) or isinstance(error, AbsentTopicError)
                if not may_come or self._clock.monotonic_s() > deadline_s:
                    raise
            sleep(METADATA_PAUSE_S)

    def leader(self, topic: str, partition: int) -> Address | None:
        """Returns the address of a partition's leader by the last metadata; None where it named none."""
        return self._leaders.get((topic, partition))

    def is_due(self, now_s: float) -> bool:
        """Returns whether the metadata is older than `topic.metadata.refresh.interval.ms`."""
        return now_s - self._asked_s > self._settings.topic_metadata_refresh_interval_ms / 1000

    def refresh(self, topics: tuple[str, ...]) -> None:
        """Asks a broker for these topics' metadata; a topic with an error in the response keeps its old leaders."""
        with self.lock:
            self._learn(self.cluster.metadata(topics), topics, must_be_there=False)

    def use_brokers(self, bootstrap: str) -> None:
        """Asks the brokers at these addresses for metadata from now on, in place of the former ones."""
        with self.lock:
            self.cluster.close()
            self.cluster = self.cluster_of(bootstrap)

    def close(self) -> None:
        """Closes the connections by which it asks for metadata."""
        with self.lock:
            self.cluster.close()

    def abandon(self) -> None:
        """Makes a new lock in a forked child, and closes the child's copies of the parent's connections."""
        self.lock = threading.Lock()
        self.cluster.close()

    def cluster_of(self, bootstrap: str) -> Cluster:
        """Returns a cluster that these brokers belong to, by the producer's settings; the caller closes it."""
        return Cluster(
            bootstrap,
            client_id=self._settings.client_id,
            timeout_s=self._settings.request_timeout_ms / 1000,
            clock=self._clock,
            security=self._settings.security,
        )

    def _learn(self, metadata: ClusterMetadata, topics: tuple[str, ...], *, must_be_there: bool = True) -> None:
        self._asked_s = self._clock.monotonic_s()
        self.brokers = frozenset(broker.address for broker in metadata.brokers.values())
        for name in topics:
            try:
                topic = metadata.topic(name)
            except MillraceError:
                if must_be_there:
                    raise
                continue
            for index, partition in topic.partitions.items():
                broker = metadata.brokers.get(partition.leader)
                if broker is None:
                    self._leaders.pop((name, index), None)
                else:
                    self._leaders[name, index] = broker.address
            if topic.partitions:
                self.partition_counts[name] = len(topic.partitions)
            elif must_be_there:
                raise AbsentTopicError(f"topic {name} has no partitions yet")


def check_partition(topic: str, partition: SupportsIndex, count: int) -> int:
    """Returns `partition` as an int; raises InvalidConfigError where the topic does not have that partition."""
    try:
        index = operator.index(partition)
    except TypeError:
        raise InvalidConfigError(f"topic {topic}: partition {partition!r} is no whole number") from None
    if not 0 <= index < count:
        raise InvalidConfigError(f"topic {topic} has no partition {partition}; it has {count}")
    return index
