"""Consume, transform, produce, exactly once: each client's own transactions, and the tools that look at them."""

import asyncio
import json
import re

import aiokafka
import kafka
import pytest
from aiokafka.errors import ProducerFenced
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPythonPartition

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
RECORDS = 60
IN_ONE = 20
TIMEOUT_S = 120
LOOP = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "JoinGroup")


@pytest.fixture
def topics(target, name):
    """(source with records, destination), one partition each."""
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    names = f"{name}-in", f"{name}-out"
    for made in admin.create_topics([NewTopic(one, 1, -1) for one in names]).values():
        made.result(TIMEOUT_S)
    for one in names:
        target.until_known(one)
    producer = Producer({"bootstrap.servers": target.bootstrap})
    for index in range(RECORDS):
        producer.produce(names[0], b"value-%d" % index, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return names


def values():
    return [b"value-%d" % index for index in range(RECORDS)]


def committed(target, topic, count):
    """What a consumer of committed records gets, the first so many."""
    consumer = Consumer({
        "bootstrap.servers": target.bootstrap, "group.id": "reader", "isolation.level": "read_committed",
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    while len(found) < count:
        found += [message.value() for message in consumer.consume(count, timeout=0.2) if not message.error()]
    consumer.close()
    return found


def end_for_committed(target, topic):
    consumer = Consumer({
        "bootstrap.servers": target.bootstrap, "group.id": "ends", "isolation.level": "read_committed",
    })  # fmt: skip
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
    consumer.close()
    return high


@pytest.mark.needs(*LOOP)
def test_confluent_transactions(target, name, topics):
    """Every second transaction is aborted at first, and its records are consumed again."""
    source, destination = topics
    producer = Producer({"bootstrap.servers": target.bootstrap, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    consumer = Consumer({
        "bootstrap.servers": target.bootstrap, "group.id": name, "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "isolation.level": "read_committed",
    })  # fmt: skip
    consumer.subscribe([source])
    copied, aborts = 0, 0
    while copied < RECORDS:
        messages = []
        while len(messages) < IN_ONE:
            messages += consumer.consume(IN_ONE - len(messages), timeout=0.2)
        producer.begin_transaction()
        for message in messages:
            producer.produce(destination, message.value(), partition=0)
        if aborts * IN_ONE <= copied:
            aborts += 1
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
            consumer.seek(TopicPartition(source, 0, copied))
            continue
        ends = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(ends, consumer.consumer_group_metadata(), TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
        copied += IN_ONE
    (at,) = consumer.committed([TopicPartition(source, 0)], timeout=TIMEOUT_S)
    consumer.close()
    assert at.offset == RECORDS
    assert committed(target, destination, RECORDS) == values()


@pytest.mark.needs("InitProducerId", "AddPartitionsToTxn", "EndTxn")
def test_confluent_instances_fence(target, name, topics):
    """The transaction of the first instance is aborted when the second one comes, and it can't go on."""
    _, destination = topics
    first, second = (Producer({"bootstrap.servers": target.bootstrap, "transactional.id": name}) for _ in range(2))
    first.init_transactions(TIMEOUT_S)
    first.begin_transaction()
    first.produce(destination, b"of the first", partition=0)
    first.flush(TIMEOUT_S)
    assert end_for_committed(target, destination) == 0
    second.init_transactions(TIMEOUT_S)
    with pytest.raises(KafkaException, match="FENCED"):
        first.commit_transaction(TIMEOUT_S)
    second.begin_transaction()
    second.produce(destination, b"of the second", partition=0)
    second.commit_transaction(TIMEOUT_S)
    assert committed(target, destination, 1) == [b"of the second"]


@pytest.mark.needs(*LOOP)
def test_aiokafka_transactions(target, name, topics):
    source, destination = topics
    place = aiokafka.TopicPartition(source, 0)

    async def run():
        consumer = aiokafka.AIOKafkaConsumer(
            source, bootstrap_servers=target.bootstrap, group_id=name, enable_auto_commit=False,
            auto_offset_reset="earliest", isolation_level="read_committed", request_timeout_ms=60_000,
            session_timeout_ms=30_000,
        )  # fmt: skip
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=target.bootstrap, transactional_id=name)
        async with consumer, producer:
            copied = 0
            while copied < RECORDS:
                messages = (await consumer.getmany(place, timeout_ms=500, max_records=IN_ONE)).get(place, [])
                async with producer.transaction():
                    for message in messages:
                        await producer.send(destination, message.value, partition=0)
                    await producer.send_offsets_to_transaction({place: copied + len(messages)}, name)
                copied += len(messages)
            while await consumer.committed(place) < RECORDS:
                pass  # the markers, by which offsets count, are written behind the answer
            rival = aiokafka.AIOKafkaProducer(bootstrap_servers=target.bootstrap, transactional_id=name)
            async with rival:
                with pytest.raises(ProducerFenced):
                    async with producer.transaction():
                        await producer.send_and_wait(destination, b"fenced", partition=0)

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))
    assert committed(target, destination, RECORDS) == values()


@pytest.mark.needs(*LOOP)
def test_kafka_python_transactions(target, name, topics):
    source, destination = topics
    producer = kafka.KafkaProducer(bootstrap_servers=target.bootstrap, transactional_id=name)
    producer.init_transactions()
    for is_commit in (False, True):
        producer.begin_transaction()
        for value in values():
            producer.send(destination, value, partition=0)
        offsets = {KafkaPythonPartition(source, 0): OffsetAndMetadata(RECORDS, "", -1)}
        producer.send_offsets_to_transaction(offsets, name)
        producer.commit_transaction() if is_commit else producer.abort_transaction()
    producer.close()
    assert committed(target, destination, RECORDS) == values()


@pytest.mark.peers
@pytest.mark.needs(*LOOP)
def test_java_transactions(target, kafka_jars, name, topics):
    """Kafka's own program for its system tests, with aborts at random, by the protocol of KIP-890."""
    source, destination = topics
    said = kafka_jars.run(
        COPIER, "--broker-list", target.bootstrap, "--input-topic", source, "--input-partition", "0",
        "--output-topic", destination, "--max-messages", str(RECORDS), "--consumer-group", name,
        "--transaction-size", str(IN_ONE), "--transactional-id", name, "--enable-random-aborts",
        "--group-mode", "--use-group-metadata",
    )  # fmt: skip
    last = [json.loads(line) for line in said.splitlines() if line.startswith("{")][-1]
    assert (last["consumed"], last["remaining"]) == (RECORDS, 0), said
    assert committed(target, destination, RECORDS) == values()


@pytest.mark.peers
@pytest.mark.needs("DescribeTransactions", "ListTransactions", "DescribeProducers")
def test_java_tools_show_a_transaction(target, kafka_jars, name, topics):
    _, destination = topics

    def tool(*arguments):
        return kafka_jars.run(TRANSACTIONS, "--bootstrap-server", target.bootstrap, *arguments)

    settings = {"transactional.id": name, "transaction.timeout.ms": 900_000}
    producer = Producer({"bootstrap.servers": target.bootstrap, **settings})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(destination, b"value", partition=0)
    producer.flush(TIMEOUT_S)
    listed = tool("list")
    assert re.search(rf"^{name}\s+\d+\s+\d+\s+Ongoing", listed, re.MULTILINE), listed
    described = tool("describe", "--transactional-id", name)
    assert re.search(rf"{name}\s+\d+\s+\d+\s+Ongoing\s+900000\s.*{destination}-0", described), described
    producer.commit_transaction(TIMEOUT_S)
    while end_for_committed(target, destination) < 2:
        pass  # Kafka writes the marker behind its answer
