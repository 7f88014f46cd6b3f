"""Clients that no one here wrote pass over the batch that ends a mirroring; Apache Kafka takes it, too."""

import asyncio
from contextlib import ExitStack
from itertools import islice

import aiokafka
import confluent_kafka
import kafka as kafka_python
import pytest

from millrace.client import Cluster, SyncProducer
from millrace.client.configs import Configs, ResourceKind
from millrace.client.mirrored_appends import MIRROR_SOURCE, can_be_followed_into, end_mirroring
from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker, find_kafka
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_support.mirrored_topics import append, create_mirrored

TOPIC = "ended"
COMMITTED = ["first", "second", "third", "behind it"]
ALL = ["first", "second", "third", "never ended", "behind it"]
LONGEST_MS = 120_000
PROPERTIES = {"zookeeper.session.timeout.ms": "45000", "log.retention.ms": "-1"}


def fill(bootstrap: str) -> None:
    """Some records of a source, one in a transaction that was open, the end of mirroring, and a record of its own."""
    with Cluster(bootstrap) as cluster:
        create_mirrored(cluster, TOPIC)
        for offset, value in enumerate((b"first", b"second", b"third")):
            producer = BatchProducer(500, 0, offset)
            append(cluster, TOPIC, offset, encode_batch([NewRecord(value)], base_offset=offset, producer=producer))
        in_transaction = encode_batch(
            [NewRecord(b"never ended")], base_offset=3, producer=BatchProducer(501, 0, 0), flags=TRANSACTIONAL_FLAG
        )
        assert append(cluster, TOPIC, 3, in_transaction).error is None
        assert end_mirroring(cluster, TOPIC, 0) == 6
        Configs(cluster).change(ResourceKind.TOPIC, TOPIC, {}, unset=[MIRROR_SOURCE])
        SyncProducer(cluster).send(TOPIC, 0, [NewRecord(b"behind it")])


def java(version, bootstrap, isolation, count):
    output = find_kafka(version).run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", TOPIC,
        "--partition", "0", "--offset", "earliest", "--max-messages", str(count), "--timeout-ms", str(LONGEST_MS),
        "--isolation-level", isolation,
    )  # fmt: skip
    return output.split("\n")[:count]


def java_3_9(bootstrap, isolation, count):
    return java("3.9", bootstrap, isolation, count)


def java_4_1(bootstrap, isolation, count):
    return java("4.1", bootstrap, isolation, count)


def librdkafka(bootstrap, isolation, count):
    settings = {"bootstrap.servers": bootstrap, "group.id": TOPIC, "isolation.level": isolation}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    read = []
    while len(read) < count:
        message = consumer.poll(LONGEST_MS / 1000)
        assert message is not None, "nothing comes any more"
        assert message.error() is None, message.error()
        read.append(message.value().decode())
    consumer.close()
    return read


def with_kafka_python(bootstrap, isolation, count):
    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=bootstrap, consumer_timeout_ms=LONGEST_MS, isolation_level=isolation
    )
    partition = kafka_python.TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    read = [record.value.decode() for record in islice(consumer, count)]
    consumer.close()
    return read


def with_aiokafka(bootstrap, isolation, count):
    async def read():
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(TOPIC, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            return [(await consumer.getone()).value.decode() for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(read(), LONGEST_MS / 1000))


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("ended")) as broker:
        fill(broker.bootstrap)
        yield broker


@pytest.mark.parametrize(("isolation", "values"), [("read_committed", COMMITTED), ("read_uncommitted", ALL)])
@pytest.mark.parametrize("client", [java_3_9, java_4_1, librdkafka, with_kafka_python, with_aiokafka])
def test_a_client_passes_over_it(ended, client, isolation, values):
    assert client(ended.bootstrap, isolation, len(values)) == values


@pytest.mark.parametrize("version", ["3.9", "4.1"])
def test_kafka_has_no_mirrored_topics(find_peer, tmp_path, version):
    with ExitStack() as closing:
        kafka, zookeeper = find_peer(version), None
        if version == "3.9":
            zookeeper = closing.enter_context(EmbeddedZooKeeper(tmp_path / "zookeeper")).address
        broker = closing.enter_context(KafkaBroker(kafka, tmp_path / "data", zookeeper=zookeeper))
        with Cluster(broker.bootstrap) as cluster:
            assert not can_be_followed_into(cluster)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_kafka_broker_opens_such_a_log(find_peer, tmp_path, is_clean):
    kafka = find_peer("3.9")
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper:
        with BrokerProcess(tmp_path / "data", zookeeper=zookeeper.address, properties=PROPERTIES) as broker:
            fill(broker.bootstrap)
            assert broker.stop() == 0
        if not is_clean:
            (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
            for snapshot in (tmp_path / "data").glob(f"{TOPIC}-0/*.snapshot"):
                snapshot.unlink()
        with KafkaBroker(kafka, tmp_path / "data", zookeeper=zookeeper.address, properties=PROPERTIES) as broker:
            assert librdkafka(broker.bootstrap, "read_committed", len(COMMITTED)) == COMMITTED
            assert librdkafka(broker.bootstrap, "read_uncommitted", len(ALL)) == ALL
