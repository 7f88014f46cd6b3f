"""The clusters of a mirror under faults, and the faults: of its instances, of the source's brokers, of the target's.

A cluster of Millrace has two brokers and two replicas of each partition, so that leaders change. Apache Kafka is one
broker: what is in the page cache outlives its end.
"""

import contextlib
import os
import random
import signal
import threading
from dataclasses import replace
from typing import NamedTuple
from uuid import uuid4

from fault_plan import dealt

from millrace_benchmarks.kafka_broker import KafkaBroker, find_kafka
from millrace_support.broker_clusters import broker_cluster
from millrace_support.mixed_clusters import kafka_of_256_mb
from millrace_support.zookeeper_sessions import end_session

IDS = (1, 2)
SESSION_TIMEOUT_MS = 4000
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "auto.create.topics.enable": "false",
}
SOON_FORGOTTEN = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
"""For a KRaft controller, which takes no successor of a killed broker until that one's session has ended."""
REPLICATED = {
    "default.replication.factor": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "unclean.leader.election.enable": "false",
}
LOST_COORDINATOR = "is out of sync with the underlying log"
"""A broker of Apache Kafka 4.1 logs this when its group coordinator has stopped answering for good."""
VERSIONS = {"Kafka 3.9": "3.9", "Kafka 4.1": "4.1"}
MILLRACE = "Millrace"
PAUSES_S = (0.1, 0.5, 2)
LONG_PAUSE_S = 8
"""Longer than a member of the mirror's group may be silent, and than a session of a broker."""
LONG_ONE_IN = 10
PARTIES = ("mirror", "mirror", "mirror", "source", "target")
"""Most faults are the mirror's: a broker of Apache Kafka takes long to come back."""


class Fault(NamedTuple):
    """What happens: to which party, to which of its processes, and whether it is killed or paused, and how long.

    A process that is killed starts again after that time.
    """

    party: str
    number: int
    kind: str
    seconds: float

    def __str__(self):
        return f"{self.party} {self.number}: {self.kind}, {self.seconds} s"


def drawn(seed):
    """Yields faults without end; each party and kind comes before any of them comes again. One in ten is a long one."""
    chance = random.Random(seed)
    kinds = [(party, kind) for party in PARTIES for kind in ("killed", "paused")]
    is_long = dealt(chance, [True] + [False] * (LONG_ONE_IN - 1))
    for (party, kind), long in zip(dealt(chance, kinds), is_long, strict=False):
        yield Fault(party, chance.randrange(2), kind, LONG_PAUSE_S if long else chance.choice(PAUSES_S))


def happen(fault, processes):
    """Does what the fault says to one of the party's processes; it has ended when this returns."""
    process = processes[fault.number % len(processes)]
    if fault.kind == "paused":
        process.send_signal(signal.SIGSTOP)
        threading.Event().wait(fault.seconds)  # how long it hangs is a part of the fault
        process.send_signal(signal.SIGCONT)
    else:
        process.kill()
        threading.Event().wait(fault.seconds)
        process.start()


class OneKafka(KafkaBroker):
    """A broker of Apache Kafka, which is a cluster by itself, and starts again at once after a kill.

    The session that it had with ZooKeeper would keep it from starting until its end.
    """

    cluster_zookeeper = None

    def start(self):
        if self.cluster_zookeeper is not None:
            end_session(self.cluster_zookeeper, 1)
        super().start()

    def send_signal(self, number):
        os.kill(self.pid, number)

    def mend(self):
        """Starts the broker again if its group coordinator is lost, as an operator has to; returns whether it was."""
        is_lost = LOST_COORDINATOR in self.read_log()
        if is_lost:
            self.kill()
            self.start()
        return is_lost


class Cluster(NamedTuple):
    """A cluster under faults: its addresses, its processes, and how its topics are replicated."""

    bootstrap: str
    brokers: list
    replicas: int


@contextlib.contextmanager
def cluster_of(kind, folder, zookeeper):
    """Yields a cluster of this kind; raises SetupError where the jars of Apache Kafka are missing."""
    if kind == MILLRACE:
        with broker_cluster(folder, zookeeper, IDS, QUICK | REPLICATED) as cluster:
            yield Cluster(cluster.bootstrap, list(cluster.brokers.values()), len(IDS))
        return
    version = VERSIONS[kind]
    kafka = kafka_of_256_mb(find_kafka(version))
    kafka = replace(kafka, java_flags=tuple(one for one in kafka.java_flags if "TieredStop" not in one))
    chroot = f"{zookeeper}/{uuid4().hex}" if version == "3.9" else None
    with OneKafka(kafka, folder / "1", zookeeper=chroot, properties=QUICK | SOON_FORGOTTEN) as broker:
        broker.cluster_zookeeper = chroot
        yield Cluster(broker.bootstrap, [broker], 1)
