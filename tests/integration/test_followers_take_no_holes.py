"""Damage in a leader's segments, on three real brokers: nobody is sent it, and nobody takes a hole from it.

One follower is wiped; each topic has another damage, in the logs of both other brokers, so that the leader can't heal
from the one in sync. The follower stays out of sync with what lies before the damage, and librdkafka, kafka-python and
aiokafka wait there. Once the bytes are right again, all have everything. What a leader has appended itself it doesn't
check again: the follower does, and tells it.
"""

import asyncio
import shutil
import threading
from collections import defaultdict

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, TopicPartition

from millrace.client import Admin, SyncProducer
from millrace.records.batch import walk
from millrace.records.record import NewRecord
from millrace_support.broker_clusters import PATIENT, broker_cluster
from millrace_support.waiting import awaited

WITH_LOGS = (1, 2)
WIPED = 3
BATCHES, RECORDS = 60, 20
END = BATCHES * RECORDS
DAMAGE = {  # segment, batch, byte (from the end if below 0)
    "length-first": (1, 0, 10),
    "offset-middle": (1, 3, 6),
    "record-last": (1, -1, -3),
    "crc-of-the-first-segment": (0, 1, 18),
}

IN_ACTIVE = {"record-of-the-active-segment": (-1, 2, -3), "offset-in-the-active-segment": (-1, 2, 7)}

pytestmark = pytest.mark.broker_errors(
    r"damage_search: \S+: offsets \d+ to \d+ are (damaged|missing)",
    r"followed_partition: \S+ is fetched again from broker \d: ",
)


class Confluent:
    """Reads a topic's offsets with librdkafka, on a thread of its own, until all have come."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.offsets: list[int] = []
        self.errors: list[object] = []
        self._bootstrap, self._topic = bootstrap, topic
        self.is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def is_done(self) -> bool:
        return self.is_stopped.is_set() or len(self.offsets) >= END

    def stop(self) -> None:
        self.is_stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self.read()
        except Exception as error:  # noqa: BLE001 -- the test fails by it
            self.errors.append(error)

    def read(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        while not self.is_done():
            for message in consumer.consume(1000, 0.2):
                if message.error():
                    self.errors.append(message.error())
                else:
                    self.offsets.append(message.offset())
        consumer.close()


class KafkaPython(Confluent):
    """The same with kafka-python."""

    def read(self) -> None:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self._bootstrap, group_id=None)
        consumer.assign([kafka.TopicPartition(self._topic, 0)])
        consumer.seek_to_beginning()
        while not self.is_done():
            for records in consumer.poll(200).values():
                self.offsets += [record.offset for record in records]
        consumer.close()


class AioKafka(Confluent):
    """The same with aiokafka."""

    def read(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        partition = aiokafka.TopicPartition(self._topic, 0)
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=self._bootstrap) as consumer:
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            while not self.is_done():
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    self.offsets += [record.offset for record in records]


@pytest.fixture
def brokers(tmp_path, zookeeper):
    with broker_cluster(tmp_path, zookeeper.address, properties={"log.segment.bytes": "20000", **PATIENT}) as started:
        yield started


def filled(brokers, topics=DAMAGE):
    with brokers.connect() as cluster:
        for topic in topics:
            Admin(cluster).create_topic(topic, 1, replication_factor=3)
        for topic in topics:
            brokers.until(lambda one: len(one.isr) == 3, topic)
        producer = SyncProducer(cluster)
        for topic in topics:
            for number in range(BATCHES):
                producer.send(topic, 0, [NewRecord(b"%d-%d" % (number, each) + b"x" * 50) for each in range(RECORDS)])


def damaged(brokers, topic):
    """Damages both logs of a topic; returns the leader, the files with their bytes before, and the offsets."""
    segment, place, at = (DAMAGE | IN_ACTIVE)[topic]
    leader = brokers.until(lambda one: one.leader in WITH_LOGS, topic).leader
    files = [sorted((brokers.brokers[one].data_dir / f"{topic}-0").glob("*.log"))[segment] for one in WITH_LOGS]
    contents = {path: path.read_bytes() for path in files}
    for path, content in contents.items():
        position, header = list(walk(content))[place]
        data = bytearray(content)
        data[(position if at >= 0 else position + header.size_bytes) + at] ^= 1
        write(path, data)
    return leader, contents, header.base_offset, header.next_offset


def write(path, content):
    """Writes other bytes into a file that a broker has open."""
    with path.open("r+b") as file:
        file.write(content)


def test_nobody_takes_a_hole_and_all_have_everything_once_the_bytes_are_right(brokers):
    filled(brokers)
    whole = {topic: brokers.equal_logs(topic) for topic in DAMAGE}
    brokers.crash(WIPED)
    found = {topic: damaged(brokers, topic) for topic in DAMAGE}
    for topic in DAMAGE:
        shutil.rmtree(brokers.brokers[WIPED].data_dir / f"{topic}-0")
    brokers.brokers[WIPED].start()
    readers = [make(brokers.bootstrap, topic) for topic in DAMAGE for make in (Confluent, KafkaPython, AioKafka)]
    by_topic = defaultdict(list)
    for one, topic in zip(readers, [topic for topic in DAMAGE for _ in range(3)], strict=True):
        by_topic[topic].append(one)
    try:
        for topic, (leader, _, start, end) in found.items():
            named = f"offsets {start} to {end - 1} are damaged"
            awaited(lambda named=named, leader=leader: named in brokers.brokers[leader].read_log() or None, named)
            prefix = awaited(lambda topic=topic, start=start: copied(brokers, topic, start), f"{topic}: a prefix")
            assert whole[topic].startswith(prefix)
            assert WIPED not in brokers.partition(topic).isr
            for one in by_topic[topic]:
                awaited(
                    lambda one=one, start=start: len(one.offsets) >= start or one.errors or None, f"{one} of {topic}"
                )
                assert (one.offsets, one.errors) == (list(range(start)), [])
        for _, contents, _, _ in found.values():
            for path, content in contents.items():
                write(path, content)
        for topic in DAMAGE:
            brokers.until(lambda one: len(one.isr) == 3, topic)
            assert brokers.equal_logs(topic) == whole[topic]
            for one in by_topic[topic]:
                awaited(lambda one=one: len(one.offsets) >= END or one.errors or None, f"all of {topic}")
                assert (one.offsets, one.errors) == (list(range(END)), [])
    finally:
        for one in readers:
            one.stop()


def test_a_follower_tells_its_leader_of_damage_that_the_leader_has_not_met(brokers):
    filled(brokers, IN_ACTIVE)
    whole = {topic: brokers.equal_logs(topic) for topic in IN_ACTIVE}
    brokers.crash(WIPED)
    found = {topic: damaged(brokers, topic) for topic in IN_ACTIVE}
    for topic in IN_ACTIVE:
        shutil.rmtree(brokers.brokers[WIPED].data_dir / f"{topic}-0")
    brokers.brokers[WIPED].start()
    for topic, (leader, contents, start, end) in found.items():
        named = f"offsets {start} to {end - 1} are damaged"
        awaited(lambda named=named, leader=leader: named in brokers.brokers[leader].read_log() or None, named)
        assert whole[topic].startswith(awaited(lambda topic=topic, start=start: copied(brokers, topic, start), topic))
        assert WIPED not in brokers.partition(topic).isr
        for path, content in contents.items():
            write(path, content)
        brokers.until(lambda one: len(one.isr) == 3, topic)
        assert brokers.equal_logs(topic) == whole[topic]


def copied(brokers, topic, start):
    """The log of the wiped follower once it ends at an offset; None before."""
    content = brokers.log_bytes(WIPED, topic)
    last = max((header.next_offset for _, header in walk(content)), default=0)
    return content if last == start else None
