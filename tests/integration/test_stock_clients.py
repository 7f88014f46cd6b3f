"""Clients that no one here wrote: what one produces the other consumes, byte for byte."""

import kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millrace.records.batch import walk
from millrace.records.compression import Codec
from millrace.testing.broker import BrokerProcess
from millrace_support.broker_properties import KEEPS_ALL

RECORDS = {None: 100_000, "gzip": 20_000, "snappy": 20_000, "lz4": 20_000, "zstd": 20_000}
BASE_TIMESTAMP_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker"), properties=KEEPS_ALL) as process:
        yield process


def record(index):
    """(key, value, timestamp, headers): different in every place, null where null may be."""
    key = None if index % 7 == 0 else b"key-%d" % (index % 100)
    value = None if index % 11 == 0 and key is not None else b"value-%d-" % index + b"x" * (index % 50)
    headers = [("trace", b"%d" % index), ("empty", b"")] if index % 3 == 0 else []
    return key, value, BASE_TIMESTAMP_MS + index, headers


def produce_with_confluent(bootstrap, topic, codec):
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec or "none", "linger.ms": 5,
         "queue.buffering.max.messages": RECORDS[codec]}
    )  # fmt: skip
    failures = []
    for index in range(RECORDS[codec]):
        key, value, timestamp, headers = record(index)
        producer.produce(
            topic, value, key, 0, timestamp=timestamp, headers=headers,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )  # fmt: skip
        if index % 1000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0
    assert failures == []


def produce_with_kafka_python(bootstrap, topic, codec):
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=5)  # idempotent
    futures = []
    for index in range(RECORDS[codec]):
        key, value, timestamp, headers = record(index)
        futures.append(producer.send(topic, value, key, partition=0, timestamp_ms=timestamp, headers=headers))
    producer.flush(300)
    assert [future.get().offset for future in futures] == list(range(RECORDS[codec]))
    producer.close()


def consume_with_confluent(bootstrap, topic, wanted):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = 0
    while count < wanted:
        messages = consumer.consume(10_000, timeout=60)
        assert messages, f"nothing after {count} records"
        for message in messages:
            assert message.error() is None
            headers = [(name, value) for name, value in message.headers() or []]
            yield message.offset(), message.key(), message.value(), message.timestamp()[1], headers
        count += len(messages)
    consumer.close()


def consume_with_kafka_python(bootstrap, topic, wanted):
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, consumer_timeout_ms=60_000
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    for count, message in enumerate(consumer, 1):
        yield message.offset, message.key, message.value, message.timestamp, list(message.headers)
        if count == wanted:
            break
    consumer.close()


def codecs_in_log(broker, topic):
    """The codecs of the batches as they are stored: the clients compressed, and the broker left it so."""
    segments = (broker.data_dir / f"{topic}-0").glob("*.log")
    return {header.codec_id for segment in segments for _, header in walk(segment.read_bytes())}


@pytest.mark.parametrize("codec", RECORDS, ids=lambda codec: codec or "none")
@pytest.mark.parametrize(
    ("produce", "consume"),
    [
        (produce_with_confluent, consume_with_kafka_python),
        (produce_with_kafka_python, consume_with_confluent),
    ],
    ids=["confluent to kafka-python", "kafka-python to confluent"],
)
def test_many_records_come_back(shared_broker, produce, consume, codec):
    topic = f"{produce.__name__}-{codec}"
    produce(shared_broker.bootstrap, topic, codec)
    count = 0
    for got in consume(shared_broker.bootstrap, topic, RECORDS[codec]):
        assert got == (count, *record(count))
        count += 1
    assert count == RECORDS[codec]
    asked = Codec[(codec or "none").upper()]
    assert {asked} <= codecs_in_log(shared_broker, topic) <= {asked, Codec.NONE}  # what would not shrink stays as it is
