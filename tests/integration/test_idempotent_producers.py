"""Idempotent producers that no one here wrote, as they come: nothing twice, nothing lost, whatever happens."""

import asyncio
import subprocess

import aiokafka
import kafka
import pytest
from confluent_kafka import KafkaException, Producer

from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.records.batch import NO_PRODUCER_ID, walk
from millrace.records.record import decode_records
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_support.raw import RawConnection

COUNT = 2000


@pytest.fixture(scope="module")
def idempotent_broker(tmp_path_factory):
    with BrokerProcess(
        tmp_path_factory.mktemp("idempotent"), properties={"log.flush.interval.messages": "1"}
    ) as process:
        yield process


def values_in(broker, topic):
    """(values in their order, producer ids of the batches)."""
    with Cluster(broker.bootstrap) as cluster:
        consumer = SimpleConsumer(cluster)
        offset, values, producers = 0, [], set()
        while offset < consumer.latest(topic, 0):
            records = bytes(consumer.fetch(topic, 0, offset).records)
            got = [one for one in decode_records(records) if one.offset >= offset]
            values += [one.value for one in got]
            producers |= {header.producer_id for _, header in walk(records)}
            offset = got[-1].offset + 1
    return values, producers


def expected(count=COUNT):
    return [b"%d" % index for index in range(count)]


def test_librdkafka(idempotent_broker):
    producer = Producer(
        {"bootstrap.servers": idempotent_broker.bootstrap, "enable.idempotence": True, "batch.num.messages": 50}
    )
    for value in expected():
        producer.produce("librdkafka", value)
    assert producer.flush(60) == 0
    values, producers = values_in(idempotent_broker, "librdkafka")
    assert values == expected()
    assert len(producers) == 1
    assert NO_PRODUCER_ID not in producers


def test_kafka_python_as_it_comes(idempotent_broker):
    producer = kafka.KafkaProducer(bootstrap_servers=idempotent_broker.bootstrap, batch_size=500)
    futures = [producer.send("kafka-python", value, partition=0) for value in expected()]
    producer.flush(60)
    assert [future.get().offset for future in futures] == list(range(COUNT))
    producer.close()
    values, producers = values_in(idempotent_broker, "kafka-python")
    assert values == expected()
    assert NO_PRODUCER_ID not in producers


def test_aiokafka_produces_and_reads(idempotent_broker):
    async def run():
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=idempotent_broker.bootstrap, enable_idempotence=True, max_batch_size=500
        ) as producer:
            futures = [await producer.send("aiokafka", value, partition=0) for value in expected()]
            offsets = [(await future).offset for future in futures]
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=idempotent_broker.bootstrap, isolation_level="read_committed"
        )
        await consumer.start()
        partition = aiokafka.TopicPartition("aiokafka", 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        got = [(await consumer.getone()).value for _ in range(COUNT)]
        await consumer.stop()
        return offsets, got

    offsets, got = asyncio.run(asyncio.wait_for(run(), 120))
    assert offsets == list(range(COUNT))
    assert got == expected()
    assert NO_PRODUCER_ID not in values_in(idempotent_broker, "aiokafka")[1]


def new_id(raw):
    fields = {"transactional_id": None, "transaction_timeout": 0, "producer_id": -1, "producer_epoch": -1}
    return raw.request(ApiKey.INIT_PRODUCER_ID, 4, fields).producer_id


@pytest.mark.parametrize("coordination", ["standalone", "ZooKeeper"])
def test_ids_are_never_given_twice_though_the_broker_ends(tmp_path, request, coordination):
    zookeeper = None
    if coordination == "ZooKeeper":
        zookeeper = f"{request.getfixturevalue('zookeeper').address}/{tmp_path.name}"
    with BrokerProcess(tmp_path / "data", zookeeper=zookeeper) as broker:
        taken = []
        for _ in range(2):
            with RawConnection(broker.bootstrap) as raw:
                taken += [new_id(raw) for _ in range(3)]
            # A killed broker's registration in ZooKeeper would be waited for; its block lies there before it is used.
            broker.stop() if zookeeper else broker.kill()
            broker.start()
        with RawConnection(broker.bootstrap) as raw:
            assert len({*taken, new_id(raw)}) == 7


def test_ids_lie_above_those_that_the_logs_know_already(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        producer.produce("events", b"v")
        assert producer.flush(60) == 0
        used = max(values_in(broker, "events")[1])
        broker.stop()
        (tmp_path / "data" / "latest_producer_id_block").unlink()  # as in a folder that another cluster wrote
        broker.start()
        with RawConnection(broker.bootstrap) as raw:
            assert new_id(raw) > used


def test_a_killed_broker_makes_an_idempotent_producer_neither_lose_nor_repeat(idempotent_broker):
    failures = []
    producer = Producer(
        {"bootstrap.servers": idempotent_broker.bootstrap, "enable.idempotence": True, "batch.num.messages": 20,
         "log_level": 0, "error_cb": lambda error: None, "reconnect.backoff.max.ms": 100, "linger.ms": 1}
    )  # fmt: skip
    acknowledged = []

    def delivered(error, message):
        (failures if error else acknowledged).append(message.value())

    for index, value in enumerate(expected()):
        producer.produce("killed", value, on_delivery=delivered)
        producer.poll(0)
        if index in (500, 1200):
            while not len(acknowledged) > index // 2:
                producer.poll(0.05)
            idempotent_broker.kill()
            idempotent_broker.start()
    assert producer.flush(60) == 0
    assert failures == []
    assert values_in(idempotent_broker, "killed")[0] == expected()


@pytest.mark.parametrize("version", ["0.8.2.0", "0.9.0.0", "0.10.0.0", "0.10.2.0"])
def test_librdkafka_that_takes_the_broker_for_an_old_one(idempotent_broker, version):
    old = {"bootstrap.servers": idempotent_broker.bootstrap, "api.version.request": False,
           "broker.version.fallback": version}  # fmt: skip
    codec = "snappy" if version.startswith("0.8") else "lz4"
    try:
        producer = Producer(old | {"compression.type": codec, "batch.num.messages": 100})
    except KafkaException as error:
        pytest.skip(f"this librdkafka knows no such broker: {error}")
    for value in expected(500):
        producer.produce(f"old-{version}", value, partition=0)
    assert producer.flush(60) == 0
    assert values_in(idempotent_broker, f"old-{version}")[0] == expected(500)


@pytest.mark.parametrize("version", ["0.9.0.0", "0.10.0.0", "2.0.0"])
def test_kcat(idempotent_broker, version):
    topic = f"kcat-{version}"
    settings = ["-X", "api.version.request=false", "-X", f"broker.version.fallback={version}"]
    try:
        subprocess.run(["kcat", "-V"], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("kcat is not installed")
    command = ["kcat", "-b", idempotent_broker.bootstrap, "-t", topic, "-p", "0", *settings]
    lines = b"".join(b"line %d\n" % index for index in range(300))
    subprocess.run([*command, "-P", "-z", "gzip"], input=lines, check=True, timeout=120, capture_output=True)
    read = subprocess.run([*command, "-C", "-o", "beginning", "-e"], check=True, timeout=120, capture_output=True)
    assert read.stdout == lines
