"""Clusters whose brokers are stopped and started as another software while clients go on, and what holds at the end.

with mixed_cluster(…) as brokers, RolledCluster(brokers) as rolled:
    rolled.become(1, Software.MILLRACE)
    rolled.judge()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from millrace.errors import MillraceError
from millrace_benchmarks.kafka_broker import await_markers
from millrace_support.broker_clusters import BrokerCluster, create_replicated
from millrace_support.mixed_clusters import MixedBroker, Software
from millrace_support.rolling_load import RollingLoad, Sent, Users, read_topic
from millrace_support.waiting import awaited

PLAIN, TRANSACTIONAL = "plain", "transactional"
INTERNAL = ("__consumer_offsets", "__transaction_state")
PARTITIONS = 4


def replicated(replicas: int, in_sync: int) -> Mapping[str, str]:
    """Returns the properties by which topics have `replicas` replicas, of which `in_sync` have to be in sync."""
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
    }


class RolledCluster:
    """Brokers, topics with a replica on each of them, and clients that write and read these.

    Args:
        brokers: The cluster.
        users: How the clients log in.
        others: Topics beside those of the load.

    Attributes:
        topics: All topics, Kafka's own ones, too.
        load: The clients.
    """

    def __init__(
        self, brokers: BrokerCluster[MixedBroker], users: Users | None = None, others: tuple[str, ...] = ()
    ) -> None:
        self._brokers = brokers
        self._users = users or Users()
        self._created = (PLAIN, TRANSACTIONAL, *others)
        self.topics = (*self._created, *INTERNAL)
        self.load = RollingLoad(brokers.bootstrap, PLAIN, TRANSACTIONAL, PARTITIONS, self._users)

    def __enter__(self) -> Self:
        """Creates the topics, and starts the clients."""
        with self._brokers.connect() as cluster:
            for each in self._created:
                create_replicated(cluster, each, PARTITIONS, len(self._brokers.brokers))
        self.load.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.load.__exit__(kind, error, traceback)

    def become(self, number: int, software: Software) -> None:
        """Stops a broker, and starts it with this software, once the load has gone on without it."""
        self._await_in_sync()
        self._brokers.brokers[number].stop()
        self.load.await_progress()
        self._brokers.brokers[number].start(software)
        self._await_in_sync()
        self.load.await_progress()

    def judge(self) -> None:
        """Ends the load; what was acknowledged is there, once, on all replicas with the same bytes."""
        self.load.finish()
        found, acknowledged = Counter(self.read(PLAIN)), Counter(self.load.acknowledged)
        assert (acknowledged - found, found - acknowledged) == (Counter(), Counter()), "lost, and not acknowledged"
        committed = [Sent(partition, number) for partition in range(PARTITIONS) for number in self.load.committed]
        assert self.read_once_complete(TRANSACTIONAL) == sorted(committed)
        self._await_in_sync()
        self._await_equal_logs()

    def read(self, topic: str) -> list[Sent]:
        """Returns all committed records of a topic, sorted."""
        return sorted(read_topic(self._brokers.bootstrap, topic, PARTITIONS, self._users.reader))

    def read_once_complete(self, topic: str) -> list[Sent]:
        """Returns all committed records of a topic once no transaction of it is open."""
        await_markers(self._brokers.bootstrap, topic, range(PARTITIONS), security=self._brokers.security)
        return self.read(topic)

    def _await_in_sync(self) -> None:
        """Waits until every replica of every partition is in sync."""
        count = len(self._brokers.brokers)

        def look() -> bool | None:
            with suppress(MillraceError), self._brokers.connect() as cluster:
                topics = [cluster.metadata().topic(each) for each in self.topics]
                partitions = [one for topic in topics for one in topic.partitions.values()]
                return True if all(len(one.isr) == count for one in partitions) else None
            return None

        awaited(look, "all replicas are in sync")

    def _await_equal_logs(self) -> None:
        for topic in self.topics:
            for partition in range(PARTITIONS):
                self._brokers.equal_logs(topic, partition)
