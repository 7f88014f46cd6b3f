"""`Producer` and stock clients read each other's records and agree on partitions, here and on Apache Kafka 3.9."""

import itertools
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as LibrdkafkaProducer

from millrace import Producer, SimpleConsumer, read_topic
from millrace.client import Admin, Cluster
from millrace.client.simple_consumer import EARLIEST, LATEST, FetchRequest, OffsetStorage
from millrace.errors import (
    OffsetOutOfRangeError,
    RecordTooLargeError,
    SetupError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from millrace_benchmarks.kafka_broker import KafkaBroker, find_kafka
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_support.await_brokers import await_coordinators
from millrace_support.kafka_tools import PATIENT_PRODUCER

KEYS = [
    "",
    "a",
    "ab",
    "abc",
    "abcd",
    "\x7f\u0080\u00ff",
    "ключ",
    "x" * 1000,
    *(f"key-{number}" for number in range(40)),
]
PARTITIONS = 7
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def kafka_39_broker(tmp_path_factory):
    try:
        found = find_kafka("3.9", Path(__file__).parents[2] / ".peers")
    except SetupError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("kafka-3.9")
    with (
        EmbeddedZooKeeper(folder / "zookeeper") as zookeeper,
        KafkaBroker(found, folder / "data", zookeeper=zookeeper.address) as broker,
    ):
        await_coordinators(broker)
        yield broker, zookeeper.address


def produced_by_librdkafka(bootstrap, topic):
    producer = LibrdkafkaProducer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for key in KEYS:
        producer.produce(topic, key.encode(), key.encode())
    assert producer.flush(60) == 0


def partitions_by_key(bootstrap, topic):
    with SimpleConsumer(bootstrap) as consumer:
        found = [(record.key, index) for index in range(PARTITIONS) for record in consumer.messages(topic, index)]
    assert len(found) == len(KEYS)
    return dict(found)


def librdkafka_reads(bootstrap, topic):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    messages = []
    while len(messages) < len(KEYS):
        found = consumer.consume(len(KEYS), 60)
        assert found
        messages += found
    consumer.close()
    return {(message.key(), message.value(), message.partition()) for message in messages}


def check_both_ways(bootstrap, name, **settings):
    with Cluster(bootstrap) as cluster:
        for topic in (f"{name}-ours", f"{name}-theirs"):
            Admin(cluster).create_topic(topic, PARTITIONS)
    with Producer(producer_type="async", **settings) as producer:
        for key in KEYS:
            producer.send(f"{name}-ours", key.encode(), key.encode())
    produced_by_librdkafka(bootstrap, f"{name}-theirs")
    ours, theirs = (partitions_by_key(bootstrap, f"{name}-{whose}") for whose in ("ours", "theirs"))
    assert ours == theirs
    assert librdkafka_reads(bootstrap, f"{name}-ours") == {(key, key, index) for key, index in ours.items()}


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_and_we_read_each_other(broker_session, codec):
    check_both_ways(
        broker_session.bootstrap, f"interop-{codec}", broker_list=broker_session.bootstrap, compression_codec=codec
    )


@pytest.mark.peers
def test_on_apache_kafka_found_through_zookeeper(kafka_39_broker):
    broker, zookeeper = kafka_39_broker
    for codec in CODECS:
        check_both_ways(broker.bootstrap, f"interop-{codec}", zk_connect=zookeeper, compression_codec=codec)


@pytest.mark.peers
def test_apache_kafka_takes_what_was_too_large_in_parts(kafka_39_broker):
    bootstrap = kafka_39_broker[0].bootstrap
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic("narrow", 1, config={"max.message.bytes": "2000"})
    values = [bytes(3000) if number == 100 else b"%0100d" % number for number in range(200)]
    with Producer(broker_list=bootstrap, producer_type="async", queue_time=60_000) as producer:
        deliveries = [producer.send("narrow", value, partition=0) for value in values]
        producer.flush()
    errors = [type(delivery.report().error) for delivery in deliveries]
    assert errors == [RecordTooLargeError if len(value) > 100 else type(None) for value in values]
    with SimpleConsumer(bootstrap) as consumer:
        assert [record.value for record in consumer.messages("narrow", 0)] == values[:100] + values[101:]


@pytest.mark.peers
def test_simple_consumer_on_apache_kafka(kafka_39_broker):
    bootstrap = kafka_39_broker[0].bootstrap
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic("simple", 2)
    with Producer(broker_list=bootstrap) as producer:
        for number in range(3):
            producer.send("simple", bytes(5000), partition=0, timestamp_ms=1000 * (number + 1))
    with SimpleConsumer(bootstrap) as consumer:
        assert [len(record.value) for record in consumer.messages("simple", 0, 1, max_bytes=10)] == [5000, 5000]
        requests = [FetchRequest("simple", 0, 2), FetchRequest("simple", 1, 0), FetchRequest("simple", 0, 9)]
        one, empty, beyond, absent = consumer.multifetch([*requests, FetchRequest("simple", 7, 0)])
        assert [record.offset for record in one.messages(2)] == [2]
        assert empty.records == b""
        assert isinstance(beyond, OffsetOutOfRangeError)
        assert isinstance(absent, UnknownTopicError)
        assert read_topic("simple", bootstrap, from_offset=1).arrow().column("offset").to_pylist() == [1, 2]
        assert consumer.get_offsets_before("simple", 0, LATEST, 2) == [3, 0]
        assert consumer.get_offsets_before("simple", 0, 2000, 2) == [], "its segment was written to today"
        assert consumer.get_offsets_before("simple", 0, 2**62, 9) == [3, 0]
        for storage in OffsetStorage:
            consumer.commit_offsets("readers", {("simple", 0): 2}, storage=storage)
            found = consumer.fetch_offsets("readers", [("simple", 0), ("simple", 1)], storage=storage)
            assert found == {("simple", 0): 2, ("simple", 1): None}


@pytest.mark.peers
def test_simple_consumer_on_an_apache_kafka_without_version_zero(find_peer, tmp_path):
    with KafkaBroker(find_peer("4.1"), tmp_path / "kraft") as broker, SimpleConsumer(broker.bootstrap) as consumer:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("simple", 1)
        await_coordinators(broker)
        with Producer(broker_list=broker.bootstrap) as producer:
            for number in range(3):
                producer.send("simple", b"v", partition=0, timestamp_ms=1000 * (number + 1))
                producer.flush()
        rows = read_topic("simple", broker.bootstrap, from_time="1970-01-01T00:00:02", until_offset=9)
        assert rows.arrow().column("offset").to_pylist() == [1, 2]
        assert consumer.get_offsets_before("simple", 0, LATEST, 9) == [3, 0]
        assert consumer.get_offsets_before("simple", 0, EARLIEST, 9) == [0]
        assert consumer.get_offsets_before("simple", 0, 2000, 9) == [1, 0]
        consumer.commit_offsets("readers", {("simple", 0): 2})
        assert consumer.fetch_offsets("readers", [("simple", 0)]) == {("simple", 0): 2}
        with pytest.raises(UnsupportedVersionError, match="keeps no offsets in ZooKeeper"):
            consumer.commit_offsets("readers", {("simple", 0): 2}, storage="zookeeper")
        with pytest.raises(UnsupportedVersionError, match="keeps no offsets in ZooKeeper"):
            consumer.fetch_offsets("readers", [("simple", 0)], storage="zookeeper")


@pytest.fixture(scope="module")
def java():
    try:
        return find_kafka("3.9", Path(__file__).parents[2] / ".peers")
    except SetupError as error:
        pytest.skip(str(error))


@pytest.mark.peers
def test_java_agrees_on_partitions(java, broker_session):
    bootstrap = broker_session.bootstrap
    with Cluster(bootstrap) as cluster:
        for topic in ("java-ours", "java-theirs"):
            Admin(cluster).create_topic(topic, PARTITIONS)
    lines = "".join(f"{key}\t{key}\n" for key in KEYS if key)
    java.run(
        "kafka.tools.ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", "java-theirs",
        "--property", "parse.key=true", *PATIENT_PRODUCER, stdin=lines.encode(),
    )  # fmt: skip
    with Producer(broker_list=bootstrap) as producer:
        ours = {key.encode(): producer.send("java-ours", b"v", key.encode()).result().partition for key in KEYS if key}
    with SimpleConsumer(bootstrap) as consumer:
        theirs = {
            record.key: index for index in range(PARTITIONS) for record in consumer.messages("java-theirs", index)
        }
    assert ours == theirs


SAID = [
    (None, b"a value without a key", ()),
    (b"a key without a value", None, ()),
    (b"", b"", (("name", b"value"), ("name", b"again"), ("null", None), ("", b""))),
    (b"key", b"x" * 5000, ()),
]


def shown(offset, key, value, headers):
    """A record as Java's console consumer prints it."""
    text = [f"{name}:{'null' if data is None else data.decode()}" for name, data in headers]
    ends = ("null" if data is None else data.decode() for data in (key, value))
    return "|".join([f"CreateTime:{1_000 + offset}", f"Offset:{offset}", ",".join(text) or "NO_HEADERS", *ends])


@pytest.mark.peers
def test_java_reads_all_that_a_producer_can_say(java, broker_session):
    topic, bootstrap, expected = "java-reads", broker_session.bootstrap, []
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(topic, 1)
    for codec, is_idempotent in itertools.product(CODECS, (True, False)):
        with Producer(
            broker_list=bootstrap, producer_type="async", compression_codec=codec, enable_idempotence=is_idempotent
        ) as producer:
            for key, value, headers in SAID:
                producer.send(topic, value, key, headers=headers, timestamp_ms=1_000 + len(expected))
                expected.append(shown(len(expected), key, value, headers))
    properties = [
        "print.timestamp=true",
        "print.offset=true",
        "print.headers=true",
        "print.key=true",
        "key.separator=|",
    ]
    said = java.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", topic,
        "--from-beginning", "--max-messages", str(len(expected)), "--isolation-level", "read_committed",
        *(word for one in properties for word in ("--property", one)),
    )  # fmt: skip
    assert [line for line in said.splitlines() if line.startswith("CreateTime")] == expected
