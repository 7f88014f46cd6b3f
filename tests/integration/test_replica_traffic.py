"""Three real brokers, each in its rack: consumers that read from followers, and a move that is throttled."""

import json
import subprocess
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.client import Admin, Cluster
from millrace_support.broker_clusters import PATIENT, broker_cluster
from millrace_support.waiting import awaited

RATE = 100_000
RECORD_BYTES = 5_000
PROPERTIES = {
    "num.replica.fetchers": "2",
    "replica.fetch.max.bytes": "5000",
    "replica.fetch.response.max.bytes": "5000",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    **PATIENT,
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory, zookeeper):
    with broker_cluster(tmp_path_factory.mktemp("brokers"), zookeeper.address, properties=PROPERTIES) as started:
        yield started


def produce(brokers, topic, values):
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(120) == 0


class RackConsumer:
    """A consumer of librdkafka in a rack, with the values that it has read and the broker that it reads from."""

    def __init__(self, brokers, topic, rack):
        self.values = []
        self.read_from = None
        self.topic = topic
        settings = {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": "g",
            "client.rack": rack,
            "statistics.interval.ms": 100,
            "stats_cb": self.take_statistics,
        }
        self.consumer = Consumer(settings)
        self.consumer.assign([TopicPartition(topic, 0, 0)])

    def take_statistics(self, text):
        partition = json.loads(text)["topics"].get(self.topic, {}).get("partitions", {}).get("0")
        if partition is not None:
            self.read_from = partition["broker"]

    def until(self, broker, count):
        """Reads until there are `count` values and the consumer reads from `broker`."""

        def look():
            message = self.consumer.poll(0.1)
            if message is not None:
                assert message.error() is None
                self.values.append(message.value())
            return True if self.read_from == broker and len(self.values) >= count else None

        awaited(look, f"{count} records come, in the end from broker {broker}")


def test_librdkafka_reads_from_the_follower_in_its_rack_and_from_the_leader_once_that_stops(brokers):
    with Cluster(brokers.bootstrap) as cluster:
        Admin(cluster).create_topic("near", 1, replication_factor=3)
    leader = brokers.until(lambda one: len(one.isr) == 3, "near").leader
    near = next(each for each in brokers.brokers if each != leader)
    expected = [b"%d" % number for number in range(200)]
    produce(brokers, "near", expected[:100])
    reader = RackConsumer(brokers, "near", f"rack-{near}")
    reader.until(near, 100)
    produce(brokers, "near", expected[100:150])
    reader.until(near, 150)
    assert brokers.brokers[near].stop() == 0
    produce(brokers, "near", expected[150:])
    reader.until(brokers.partition("near").leader, 200)
    assert reader.values == expected
    reader.consumer.close()
    brokers.brokers[near].start()
    brokers.until(lambda one: len(one.isr) == 3, "near")


def test_records_are_deleted_from_all_replicas(brokers):
    with Cluster(brokers.bootstrap) as cluster:
        Admin(cluster).create_topic("short", 1, replication_factor=3)
    brokers.until(lambda one: len(one.isr) == 3, "short")
    brokers.until_known("short")
    produce(brokers, "short", [b"%d" % number for number in range(10)])
    partition = TopicPartition("short", 0, 7)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    deleted = admin.delete_records([partition], request_timeout=60)[partition].result(120)
    assert deleted.low_watermark == 7


def filled_topic(brokers, name, seconds):
    """Makes a topic with one replica, which is copied in about `seconds` at the throttled rate; returns its leader."""
    with Cluster(brokers.bootstrap) as cluster:
        Admin(cluster).create_topic(name, 1)
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "linger.ms": 0, "batch.size": RECORD_BYTES})
    for _ in range(seconds * RATE // RECORD_BYTES):
        producer.produce(name, b"x" * RECORD_BYTES)
    assert producer.flush(120) == 0
    return brokers.until(lambda one: one.leader != -1, name).leader


def replicas_of(brokers, name):
    partition = brokers.partition(name)
    return set(partition.replicas), set(partition.isr)


@pytest.mark.soak(rounds=1, minutes=1)
def test_a_throttled_move_takes_about_its_estimate(brokers, warm_millrace, rounds, request, record_property):
    is_long = request.config.getoption("--soak")
    for number in rounds:
        name = f"t{number}"
        leader = filled_topic(brokers, name, 20 if is_long else 1)
        target = next(each for each in brokers.brokers if each != leader)
        move = ["topics", "reassign", name, "--brokers", str(target), "--throttle", str(RATE)]

        def millrace(*options, move=move):
            command = [warm_millrace, *move, *options, "--bootstrap", brokers.bootstrap]
            return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

        estimate_s = json.loads(millrace("--dry-run", "--json"))["duration_s"]
        begun_s = time.monotonic()
        millrace("--no-wait")
        at_target = ({target}, {target})
        awaited(lambda name=name, end=at_target: True if replicas_of(brokers, name) == end else None, "the move ends")
        took_s = time.monotonic() - begun_s
        record_property(f"seconds of {estimate_s:.1f} that were estimated", round(took_s, 1))
        if is_long:  # what a broker has copied before it hears of the throttle counts little
            assert 0.9 * estimate_s <= took_s <= 2 * estimate_s
