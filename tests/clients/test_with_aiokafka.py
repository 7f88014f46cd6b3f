"""aiokafka: producer, consumer group, admin client, each in an event loop of its own."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

RECORDS = 300
TIMEOUT_S = 120
SESSION_MS = 30_000  # by itself a member is expelled after ten seconds


def in_a_loop(test):
    """Run a coroutine of a test to its end."""
    asyncio.run(asyncio.wait_for(test, TIMEOUT_S))


@asynccontextmanager
async def running(client):
    await client.start()
    try:
        yield client
    finally:
        stop = getattr(client, "stop", None) or client.close
        await stop()


@asynccontextmanager
async def admin_with_topic(target, topic):
    async with running(AIOKafkaAdminClient(bootstrap_servers=target.bootstrap)) as admin:
        await admin.create_topics([NewTopic(topic, 2, target.replicas)])
        await asyncio.to_thread(target.until_known, topic)
        yield admin


async def produce(target, topic, **settings):
    async with running(AIOKafkaProducer(bootstrap_servers=target.bootstrap, acks="all", **settings)) as producer:
        sent = [await producer.send(topic, b"value-%d" % index, partition=index % 2) for index in range(RECORDS)]
        placed = {(one.partition, one.offset) for one in await asyncio.gather(*sent)}
        assert len(placed) == RECORDS


async def consume(target, topic, **settings):
    reader = AIOKafkaConsumer(
        topic, bootstrap_servers=target.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=SESSION_MS, **settings,
    )  # fmt: skip
    async with running(reader) as consumer:
        taken = [(await consumer.getone()).value for _ in range(RECORDS)]
        if settings.get("group_id"):
            await consumer.commit()
        return sorted(taken)


def member(target, name):
    return AIOKafkaConsumer(
        name, bootstrap_servers=target.bootstrap, group_id=name, heartbeat_interval_ms=300,
        session_timeout_ms=SESSION_MS,
    )  # fmt: skip


def values():
    return sorted(b"value-%d" % index for index in range(RECORDS))


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_aiokafka_round_trip(target, name, codec):
    topic = f"{name}-{codec}"

    async def run():
        async with admin_with_topic(target, topic):
            await produce(target, topic, compression_type=codec)
            assert await consume(target, topic) == values()

    in_a_loop(run())


@pytest.mark.needs("InitProducerId", "JoinGroup")
def test_aiokafka_idempotent_and_group(target, name):
    async def run():
        async with admin_with_topic(target, name) as admin:
            await produce(target, name, enable_idempotence=True)
            assert await consume(target, name, group_id=name) == values()
            await produce(target, name, enable_idempotence=True)
            assert await consume(target, name, group_id=name) == values()
            offsets = await admin.list_consumer_group_offsets(name)
            assert {one.partition: at.offset for one, at in offsets.items()} == {0: RECORDS, 1: RECORDS}

    in_a_loop(run())


@pytest.mark.needs("JoinGroup", "ListGroups", "DescribeGroups")
def test_aiokafka_two_members(target, name):
    async def run():
        async with (
            admin_with_topic(target, name) as admin,
            running(member(target, name)) as first,
            running(member(target, name)) as second,
        ):
            while not (first.assignment() and second.assignment()):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.05)
            assert first.assignment() | second.assignment() == {TopicPartition(name, 0), TopicPartition(name, 1)}
            assert (name, "consumer") in await admin.list_consumer_groups()
            (answer,) = await admin.describe_consumer_groups([name])
            assert len(answer.groups[0][5]) == 2

    in_a_loop(run())


def test_aiokafka_offsets(target, name):
    async def run():
        async with (
            admin_with_topic(target, name),
            running(AIOKafkaConsumer(bootstrap_servers=target.bootstrap)) as consumer,
        ):
            await produce(target, name)
            partition = TopicPartition(name, 1)
            assert await consumer.end_offsets([partition]) == {partition: RECORDS // 2}
            (found,) = (await consumer.offsets_for_times({partition: 0})).values()
            assert found.offset == 0

    in_a_loop(run())


@pytest.mark.needs("CreatePartitions", "DescribeConfigs", "DeleteRecords", "AlterConfigs")
def test_aiokafka_admin(target, name):
    async def run():
        async with admin_with_topic(target, name) as admin:
            await produce(target, name)
            await admin.create_partitions({name: NewPartitions(3)})
            while len((await admin.describe_topics([name]))[0]["partitions"]) < 3:
                pass  # a broker learns of new partitions a little after its controller has made them
            resource = ConfigResource(ConfigResourceType.TOPIC, name, configs={"segment.ms": "60000"})
            await admin.alter_configs([resource])
            (configs,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
            assert configs.resources[0][0] == 0
            partition = TopicPartition(name, 0)
            assert await admin.delete_records({partition: RecordsToDelete(before_offset=20)}) == {partition: 20}
            await admin.delete_topics([name])
            while name in await admin.list_topics():
                pass

    in_a_loop(run())
