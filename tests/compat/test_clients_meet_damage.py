"""Clients that read a damaged log get every record once: an error that has them ask again, until the log has healed.

The leader of three replicas does not know yet that a closed segment of its log is damaged. The first fetch finds it.
"""

import asyncio
import json
import urllib.request
from itertools import islice

import aiokafka
import confluent_kafka
import kafka as kafka_python
import pytest

from millrace.client import Admin, SyncProducer
from millrace.records.batch import walk
from millrace.records.record import NewRecord
from millrace_benchmarks.kafka_broker import find_kafka
from millrace_support.admin_requests import change_request
from millrace_support.broker_clusters import PATIENT, broker_cluster
from millrace_support.waiting import until

pytestmark = [pytest.mark.peers, pytest.mark.broker_errors(r"segments\.damage_search: ")]

BATCHES, RECORDS = 60, 10
SETTINGS = {**PATIENT, "log.segment.bytes": "4000", "log.index.interval.bytes": "500", "log.retention.ms": "-1"}
VALUES = [f"{offset}:{'v' * 30}" for offset in range(BATCHES * RECORDS)]
PLACES = {"offset": 6, "length": 11, "CRC": 18, "record": 80}
LONGEST_MS = 120_000


def java(version, bootstrap, topic):
    output = find_kafka(version).run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", topic,
        "--partition", "0", "--offset", "earliest", "--max-messages", str(len(VALUES)), "--timeout-ms", str(LONGEST_MS),
    )  # fmt: skip
    return output.split()[: len(VALUES)]


def java_3_9(bootstrap, topic):
    return java("3.9", bootstrap, topic)


def java_4_1(bootstrap, topic):
    return java("4.1", bootstrap, topic)


def librdkafka(bootstrap, topic):
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "error"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    read = []
    while len(read) < len(VALUES):
        message = consumer.poll(LONGEST_MS / 1000)
        assert message is not None, "nothing comes any more"
        assert message.error() is None, message.error()
        read.append(message.value().decode())
    consumer.close()
    return read


def with_kafka_python(bootstrap, topic):
    consumer = kafka_python.KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=LONGEST_MS)
    partition = kafka_python.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    read = [record.value.decode() for record in islice(consumer, len(VALUES))]
    consumer.close()
    return read


def with_aiokafka(bootstrap, topic):
    async def read():
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            return [(await consumer.getone()).value.decode() for _ in VALUES]
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(read(), LONGEST_MS / 1000))


CLIENTS = [java_3_9, java_4_1, librdkafka, with_kafka_python, with_aiokafka]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory, zookeeper):
    with broker_cluster(tmp_path_factory.mktemp("damage"), zookeeper.address, properties=SETTINGS) as cluster:
        yield cluster


def filled(brokers, topic):
    """Makes a topic with all values; returns the broker that leads it."""
    with brokers.connect() as client:
        Admin(client).create_topic(topic, 1, replication_factor=3)
        leader = brokers.until(lambda one: len(one.isr) == 3, topic).leader
        producer = SyncProducer(client)
        for first in range(0, len(VALUES), RECORDS):
            producer.send(topic, 0, [NewRecord(value.encode()) for value in VALUES[first : first + RECORDS]])
    brokers.equal_logs(topic)
    return brokers.brokers[leader]


def findings(broker, topic):
    with urllib.request.urlopen(change_request(broker, "maintenance/verify"), timeout=60) as answer:
        return next(one["findings"] for one in json.load(answer)["partitions"] if one["topic"] == topic)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("client", CLIENTS, ids=lambda one: one.__name__)
def test_a_client_reads_every_record_once(brokers, client, place):
    topic = f"{client.__name__}-{place}"
    leader = filled(brokers, topic)
    segment = sorted((leader.data_dir / f"{topic}-0").glob("*.log"))[2]
    content = bytearray(segment.read_bytes())
    position, _ = list(walk(bytes(content)))[1]
    content[position + PLACES[place]] ^= 1
    segment.write_bytes(content)
    assert client(brokers.bootstrap, topic) == VALUES
    assert f"{topic}-0: offsets" in leader.read_log(), "nothing had to heal"
    until(lambda: not findings(leader, topic))
    brokers.equal_logs(topic)
