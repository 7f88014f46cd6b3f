"""Groups and transactions under load while their coordinators move: nothing is lost, and no member stays behind.

Three brokers keep three replicas of everything. One partition coordinates all groups and one all transactions; both go
from broker to broker, by an election of preferred leaders or by a broker that restarts. Meanwhile records are sent, one
client copies them in transactions, and classic groups and consumer groups take them: in each, one member stays, and
another comes and goes.
"""

import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from copying import PARTITIONS, PATIENCE_S, Copier, Reader
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import KafkaAdminClient
from kafka.protocol.admin.topics import ElectionType

from millrace.client import Cluster
from millrace.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from millrace_support.broker_clusters import broker_cluster, create_replicated
from millrace_support.coordinating_brokers import REPLICATED
from millrace_support.waiting import until

COPIER = Path(__file__).parent / "copiers" / "copy_with_confluent.py"
NAME = "events"
PROPERTIES = REPLICATED | {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
PROTOCOLS = {"classic": {"heartbeat.interval.ms": 300}, "consumer": {"group.protocol": "consumer"}}
GROUPS = 2  # of each protocol
MOVES = 9  # three to each broker; every third begins with a restart of the present coordinator
BETWEEN = 100  # records that everyone has taken between two moves
ALL = set(range(PARTITIONS))
WHILE_IT_MOVES = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._WAIT_COORD,
}  # fmt: skip
WHILE_IT_REBALANCES = {
    KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.UNKNOWN_MEMBER_ID, KafkaError._ASSIGNMENT_LOST, KafkaError._NO_OFFSET,
}  # fmt: skip


class Sender(threading.Thread):
    """Sends numbers, a few at a time and not far ahead of the copies, until `stop` is called."""

    def __init__(self, bootstrap, reader):
        super().__init__(daemon=True)
        self.reader = reader
        self.producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self.sent, self.stopping = 0, threading.Event()

    def run(self):
        while not self.stopping.wait(0.02):
            if self.sent > self.reader.counts[NAME] + BETWEEN:
                continue
            for number in range(self.sent, self.sent + 2 * PARTITIONS):
                self.producer.produce(f"{NAME}-in", b"%d" % number, partition=number % PARTITIONS)
            if self.producer.flush(PATIENCE_S) == 0:
                self.sent += 2 * PARTITIONS

    def stop(self):
        self.stopping.set()
        self.join()


class Member(threading.Thread):
    """Takes records and commits what it has taken, until `leave` is called; what went wrong is in `failures`."""

    def __init__(self, bootstrap, group, protocol, taken):
        super().__init__(name=group, daemon=True)
        self.consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "reconnect.backoff.max.ms": 500, **PROTOCOLS[protocol],
        })  # fmt: skip
        self.consumer.subscribe([f"{NAME}-in"])
        self.taken, self.failures, self.owned = taken, [], set()
        self.is_dirty, self.leaving, self.stopping = False, threading.Event(), threading.Event()
        self.start()

    def run(self):
        while not (self.leaving.is_set() and self.owned):  # librdkafka waits for ever where it closes in a rebalance
            if self.stopping.is_set():
                return
            for message in self.consumer.consume(100, timeout=0.1):
                if message.error() is None:
                    self.taken.add((message.partition(), int(message.value())))
                    self.is_dirty = True
                elif message.error().code() not in WHILE_IT_MOVES:
                    self.failures.append(message.error())
            self.owned = {one.partition for one in self.consumer.assignment()}
            self.commit()
        self.consumer.close()

    def commit(self):
        try:
            if self.is_dirty:
                self.consumer.commit(asynchronous=False)
        except KafkaException as failed:
            error = failed.args[0]
            if error.code() in WHILE_IT_REBALANCES:
                self.is_dirty = False  # what it had taken is another's now, or is taken again
            elif error.code() not in WHILE_IT_MOVES:
                self.failures.append(error)
        else:
            self.is_dirty = False

    def leave(self):
        self.leaving.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), f"a member of {self.name} does not leave: it owns {self.owned}, {self.failures}"
        assert self.failures == [], f"a member of {self.name}: {self.failures}"


class Group:
    """A group of one protocol: a member that stays, another that comes and goes, and what both have taken."""

    def __init__(self, bootstrap, protocol, number):
        self.bootstrap, self.protocol, self.name, self.taken = bootstrap, protocol, f"{protocol}-{number}", set()
        self.members = [self.member()]

    def member(self):
        return Member(self.bootstrap, self.name, self.protocol, self.taken)

    def come_or_go(self):
        if len(self.members) == 2:
            self.members.pop().leave()
        else:
            self.members.append(self.member())

    def await_shared(self):
        until(lambda: [one.owned for one in self.members], self.is_shared)

    def is_shared(self, owned):
        return all(owned) and sum(map(len, owned)) == PARTITIONS and set().union(*owned) == ALL

    def stop(self):
        for member in self.members:
            member.stopping.set()
            member.join()

    def committed(self):
        """The offsets that are committed, by partition."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        asked = ConsumerGroupTopicPartitions(self.name, [TopicPartition(f"{NAME}-in", one) for one in ALL])
        found = admin.list_consumer_group_offsets([asked])[self.name].result(PATIENCE_S)
        return {one.partition: one.offset for one in found.topic_partitions}


def move(brokers, number):
    """Lets the next broker coordinate everything."""
    first = number % 3 + 1
    order = [first, first % 3 + 1, (first + 1) % 3 + 1]
    if number % 3 == 2:
        brokers.brokers[brokers.partition(OFFSETS_TOPIC).leader].restart()
        brokers.all_in_sync()
    admin = KafkaAdminClient(bootstrap_servers=brokers.bootstrap.split(","))
    admin.alter_partition_reassignments(
        {KafkaPythonPartition(topic, 0): order for topic in (OFFSETS_TOPIC, TRANSACTION_TOPIC)}
    )
    for topic in (OFFSETS_TOPIC, TRANSACTION_TOPIC):
        brokers.until(lambda one: list(one.replicas) == order and len(one.isr) == 3, topic)
        admin.elect_leaders(ElectionType.PREFERRED, {topic: [0]}, raise_errors=False)
        brokers.until(lambda one: one.leader == first, topic)
    admin.close()


def play(brokers, folder):
    """Moves the coordinators under load, and returns how many records there were."""
    with Cluster(brokers.bootstrap) as cluster:
        for end in ("in", "out"):
            create_replicated(cluster, f"{NAME}-{end}", PARTITIONS, 3)
    reader = Reader(brokers.bootstrap, [NAME])
    sender = Sender(brokers.bootstrap, reader)
    copier = Copier(NAME, [sys.executable, str(COPIER), brokers.bootstrap, NAME, str(BETWEEN)], folder / "copier.log")
    for thread in (sender, reader, copier):
        thread.start()
    groups = [Group(brokers.bootstrap, protocol, number) for protocol in PROTOCOLS for number in range(GROUPS)]
    try:
        reader.await_counts({NAME: BETWEEN})
        for number in range(MOVES):
            move(brokers, number)
            for group in groups:
                group.come_or_go()
            for group in groups:
                group.await_shared()
            wanted = sender.sent + BETWEEN
            until(lambda: min(len(one.taken) for one in groups), lambda taken: taken >= wanted)  # noqa: B023
            reader.await_counts({NAME: wanted})
        sender.stop()
        reader.await_counts({NAME: sender.sent})
        expected = [list(range(partition, sender.sent, PARTITIONS)) for partition in range(PARTITIONS)]
        for group in groups:
            until(group.committed, lambda found: found == {one: len(expected[one]) for one in ALL})
            assert {number for _, number in group.taken} == set(range(sender.sent))
            for member in group.members:
                member.leave()
    finally:
        for thread in (sender, copier, reader, *groups):
            thread.stop()
    assert reader.copied(NAME) == expected
    return sender.sent


@pytest.mark.timeout(3000)
@pytest.mark.soak(rounds=1, soak_rounds=20)
def test_groups_and_transactions_go_on_while_their_coordinators_move(zookeeper, tmp_path, rounds, record_property):
    records = 0
    for number in rounds:
        folder = tmp_path / str(number)
        folder.mkdir()
        with broker_cluster(folder, zookeeper.address, properties=PROPERTIES) as brokers:
            records += play(brokers, folder)
            logs = "".join(broker.read_log() for broker in brokers.brokers.values())
        assert "Traceback" not in logs, logs
    record_property("records", records)
