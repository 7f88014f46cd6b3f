"""Consume, transform, produce, while the broker and the clients are killed: the output is the input, exactly once.

With aiokafka: librdkafka 2.x can wait for ever in `send_offsets_to_transaction` when its coordinator has restarted.
"""

import asyncio

import aiokafka
import pytest
from aiokafka.errors import KafkaError

from millrace.client import Admin, Cluster
from millrace.testing.broker import BrokerProcess

RECORDS = 60
IN_ONE = 5
PARTITIONS = 2
DEADLINE_S = 480
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
PATIENT = {"request_timeout_ms": 60_000, "retry_backoff_ms": 50}


class ClientDiesError(Exception):
    """An instance of the client ends without ending its transaction."""


class Copier:
    """A client that copies, in one instance after another; `on_step` is called at each step of a transaction."""

    def __init__(self, broker, name, on_step):
        self.source, self.destination = f"{name}-in", f"{name}-out"
        self.settings = {"bootstrap_servers": broker.bootstrap, **PATIENT}
        self.name = name
        self.places = [aiokafka.TopicPartition(self.source, index) for index in range(PARTITIONS)]
        self.on_step = on_step

    async def run(self):
        """Copies, by further instances after errors, until all is copied."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    return await self.instance()
                except (ClientDiesError, KafkaError):
                    await asyncio.sleep(0)
                except asyncio.CancelledError:  # of a fetch that waits for its next try when the consumer is stopped
                    if asyncio.current_task().cancelling():
                        raise

    async def instance(self):
        producer = aiokafka.AIOKafkaProducer(**self.settings, transactional_id=self.name)
        consumer = aiokafka.AIOKafkaConsumer(
            **self.settings, group_id=self.name, enable_auto_commit=False, isolation_level="read_committed"
        )
        consumer.assign(self.places)
        async with consumer, producer:
            at = {place: await consumer.committed(place) or 0 for place in self.places}
            for place in self.places:
                consumer.seek(place, at[place])
            while sum(at.values()) < RECORDS:
                await self.copy_some(producer, consumer, at)

    async def copy_some(self, producer, consumer, at):
        messages = await consumer.getmany(timeout_ms=500, max_records=IN_ONE)
        if not messages:
            return
        await producer.begin_transaction()
        await self.on_step("begin")
        for place, some in messages.items():
            for one in some:
                await producer.send(self.destination, one.value, partition=place.partition)
            at[place] = some[-1].offset + 1
        await self.on_step("produce")
        await producer.send_offsets_to_transaction(at, self.name)
        await self.on_step("offsets")
        await producer.commit_transaction()
        await self.on_step("commit")


async def write(broker, topic):
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    async with producer:
        for index in range(RECORDS):
            await producer.send(topic, b"%d" % index, partition=index % PARTITIONS)


async def committed(broker, topic):
    """Returns the committed values of a topic, in a list for each partition."""
    places = [aiokafka.TopicPartition(topic, index) for index in range(PARTITIONS)]
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, isolation_level="read_committed")
    consumer.assign(places)
    found = {place: [] for place in places}
    async with consumer:
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(places)
        while any([await consumer.position(place) < ends[place] for place in places]):
            for place, some in (await consumer.getmany(timeout_ms=200)).items():
                found[place] += [int(one.value) for one in some]
    return list(found.values())


@pytest.mark.soak(rounds=1, minutes=5)
def test_a_copy_is_exact_though_all_are_killed(tmp_path, rounds, record_property):
    """At every step in turn the broker is killed, or the client ends and another instance goes on."""
    kills = 0
    with BrokerProcess(tmp_path / "data", properties=PROPERTIES) as broker:
        for number in rounds:
            name = f"copy-{number}"
            with Cluster(broker.bootstrap) as cluster:
                for topic in (f"{name}-in", f"{name}-out"):
                    Admin(cluster).create_topic(topic, PARTITIONS)
            steps = []

            async def on_step(step, steps=steps):
                steps.append(step)
                match len(steps) % 13:
                    case 5:
                        await asyncio.to_thread(broker.kill)
                        await asyncio.to_thread(broker.restart)
                    case 10:
                        raise ClientDiesError(step)

            async def play(name=name, on_step=on_step):
                await write(broker, f"{name}-in")
                await Copier(broker, name, on_step).run()
                return await committed(broker, f"{name}-out")

            expected = [list(range(partition, RECORDS, PARTITIONS)) for partition in range(PARTITIONS)]
            assert asyncio.run(play()) == expected
            kills += sum(count % 13 == 5 for count in range(1, len(steps) + 1))
    assert kills
    record_property("kills", kills)
