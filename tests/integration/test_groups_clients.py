"""Groups with clients that no one here wrote: they share partitions, commit, come, go, die, go on after a crash."""

import asyncio
import select
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import aiokafka
import kafka
import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPythonPartition
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess

PARTITIONS = 4
RECORDS_EACH = 5
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "3",
}
DEADLINE_S = 120
KAFKA_PYTHON_POLL_MS = 120_000  # it never takes up an assignment that comes after the poll that asked for it gave up


@pytest.fixture(scope="module")
def group_broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("groups"), properties=PROPERTIES) as process:
        yield process


@pytest.fixture
def topic(group_broker, request):
    name = "".join(one if one.isalnum() else "-" for one in request.node.name)
    fill(group_broker, name)
    return name


def fill(broker, name):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(name, PARTITIONS)
    send(broker, name)


def send(broker, name):
    with Cluster(broker.bootstrap) as cluster:
        producer = SyncProducer(cluster)
        for partition in range(PARTITIONS):
            producer.send(name, partition, [NewRecord(b"%d" % index) for index in range(RECORDS_EACH)])


def consumer(broker, topic, *, on_revoke=None, **settings):
    made = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"{topic}-g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
            "session.timeout.ms": 120_000,
            "heartbeat.interval.ms": 100,
            "topic.metadata.refresh.interval.ms": 500,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    made.subscribe([topic], **({} if on_revoke is None else {"on_revoke": on_revoke}))
    return made


def admin_of(broker):
    """To be kept until its answers are there."""
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@retry(retry=retry_if_exception_type(KafkaException), stop=stop_after_delay(60), wait=wait_fixed(0.05), reraise=True)
def described_by(broker, group):
    """The group as an administrator sees it, once the coordinator has loaded it."""
    admin = admin_of(broker)
    return admin.describe_consumer_groups([group])[group].result(DEADLINE_S)


def poll_until(holds, *consumers):
    """Everyone polls until it holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, [partitions_of(one) for one in consumers]
        for one in consumers:
            one.poll(0.02)


def partitions_of(one):
    return {partition.partition for partition in one.assignment()}


def share(*consumers):
    """Whether the partitions are divided among all, each to one, evenly."""
    shares = [partitions_of(one) for one in consumers]
    sizes = {len(partitions) for partitions in shares}
    return set().union(*shares) == set(range(PARTITIONS)) and sizes == {PARTITIONS // len(consumers)}


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_consumers_share_a_topic_as_they_come_and_go(group_broker, topic, strategy):
    first = consumer(group_broker, topic, partition_assignment_strategy=strategy)
    poll_until(lambda: share(first), first)
    second = consumer(group_broker, topic, partition_assignment_strategy=strategy)
    poll_until(lambda: share(first, second), first, second)
    first.close()
    poll_until(lambda: share(second), second)
    admin = admin_of(group_broker)
    (member,) = admin.describe_consumer_groups([f"{topic}-g"])[f"{topic}-g"].result(DEADLINE_S).members
    assert {one.partition for one in member.assignment.topic_partitions} == set(range(PARTITIONS))
    second.close()


def test_a_static_member_that_restarts_disturbs_nobody(group_broker, topic):
    rebalances = []
    first = consumer(group_broker, topic, group_instance_id="one", on_revoke=lambda *_: rebalances.append("revoked"))
    second = consumer(group_broker, topic, group_instance_id="two")
    poll_until(lambda: share(first, second), first, second)
    had = partitions_of(second)
    rebalances.clear()
    second.close()
    again = consumer(group_broker, topic, group_instance_id="two")
    poll_until(lambda: partitions_of(again), first, again)
    assert partitions_of(again) == had
    assert rebalances == []
    first.close()
    again.close()


DYING = """
import sys
import threading
from confluent_kafka import Consumer
bootstrap, group, topic = sys.argv[1:]
one = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": 1000,
                "heartbeat.interval.ms": 100})
one.subscribe([topic], on_assign=lambda *_: print("assigned", flush=True))
while True:
    one.poll(0.1)
"""


def test_a_member_that_dies_gives_its_partitions_back(group_broker, topic):
    survivor = consumer(group_broker, topic)
    poll_until(lambda: share(survivor), survivor)
    command = [sys.executable, "-c", DYING, group_broker.bootstrap, f"{topic}-g", topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as dying:
        poll_until(lambda: select.select([dying.stdout], [], [], 0)[0], survivor)
        assert dying.stdout.readline() == b"assigned\n"
        poll_until(lambda: len(partitions_of(survivor)) == PARTITIONS // 2, survivor)
        dying.kill()
    poll_until(lambda: share(survivor), survivor)
    survivor.close()


def test_commits_of_kafka_python_keep_their_metadata(group_broker, topic):
    mine = KafkaPythonPartition(topic, 1)
    settings = {"bootstrap_servers": group_broker.bootstrap, "group_id": f"{topic}-g", "enable_auto_commit": False}
    first = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", **settings)
    seen = 0
    while seen < PARTITIONS * RECORDS_EACH:
        seen += sum(map(len, first.poll(KAFKA_PYTHON_POLL_MS).values()))
    first.commit({mine: OffsetAndMetadata(3, "a note: ü", 0)})
    first.close(autocommit=False)
    second = kafka.KafkaConsumer(**settings)
    second.assign([mine])
    assert second.committed(mine, metadata=True) == OffsetAndMetadata(3, "a note: ü", 0)
    assert second.position(mine) == 3
    second.close(autocommit=False)


def test_aiokafka_resumes_where_its_group_is(group_broker, topic):
    async def consume(count):
        async with aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=group_broker.bootstrap, group_id=f"{topic}-g", auto_offset_reset="earliest",
            enable_auto_commit=False, session_timeout_ms=60_000,
        ) as one:  # fmt: skip
            messages = [await asyncio.wait_for(one.getone(), DEADLINE_S) for _ in range(count)]
            await one.commit()
            return {(message.partition, message.offset) for message in messages}

    async def both():
        return await consume(7), await consume(PARTITIONS * RECORDS_EACH - 7)

    first, second = asyncio.run(both())
    assert len(first) == 7
    assert first.isdisjoint(second)
    assert len(first | second) == PARTITIONS * RECORDS_EACH


def test_a_group_survives_a_kill_of_the_broker(tmp_path):
    with BrokerProcess(tmp_path / "broker", properties=PROPERTIES) as broker:
        fill(broker, "events")
        one = consumer(broker, "events")
        assert len(one.consume(PARTITIONS * RECORDS_EACH, DEADLINE_S)) == PARTITIONS * RECORDS_EACH
        one.commit(offsets=[TopicPartition("events", 2, 4, metadata="kept")], asynchronous=False)
        admin = admin_of(broker)
        before = admin.describe_consumer_groups(["events-g"])["events-g"].result(DEADLINE_S)
        broker.kill()
        broker.start()
        after = described_by(broker, "events-g")
        assert [member.member_id for member in after.members] == [member.member_id for member in before.members]
        assert after.state == ConsumerGroupState.STABLE
        (kept,) = one.committed([TopicPartition("events", 2)], timeout=DEADLINE_S)
        assert (kept.offset, kept.metadata) == (4, "kept")
        one.commit(offsets=[TopicPartition("events", 2, 5)], asynchronous=False)  # still a member of its generation
        one.close()


def test_groups_are_listed_reset_and_deleted(group_broker, topic):
    group = f"{topic}-g"
    admin = admin_of(group_broker)
    member = consumer(group_broker, topic)
    poll_until(lambda: share(member), member)
    member.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(DEADLINE_S).valid
    assert group in {one.group_id for one in stable}
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    member.close()
    assert group not in {
        one.group_id for one in admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(DEADLINE_S).valid
    }
    reset = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
    admin.alter_consumer_group_offsets([reset])[group].result(DEADLINE_S)
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0), TopicPartition(topic, 1)])
    found = admin.list_consumer_group_offsets([asked])[group].result(DEADLINE_S).topic_partitions
    assert [one.offset for one in found] == [2, OFFSET_INVALID]
    admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_groups([group])[group].result(DEADLINE_S)


def test_offsets_of_a_deleted_topic_are_forgotten(group_broker, topic):
    group = f"{topic}-g"
    member = consumer(group_broker, topic)
    poll_until(lambda: share(member), member)
    member.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    member.close()
    with Cluster(group_broker.bootstrap) as cluster:
        Admin(cluster).delete_topic(topic)
    fill(group_broker, topic)
    admin = admin_of(group_broker)
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    (found,) = admin.list_consumer_group_offsets([asked])[group].result(DEADLINE_S).topic_partitions
    assert found.offset == OFFSET_INVALID


def test_clients_of_different_libraries_share_a_group(group_broker, topic):
    """Either may lead, so each reads the subscriptions and assignments that the other wrote."""
    other = kafka.KafkaConsumer(
        topic, bootstrap_servers=group_broker.bootstrap, group_id=f"{topic}-g", enable_auto_commit=False,
        partition_assignment_strategy=[RangePartitionAssignor], heartbeat_interval_ms=100,
    )  # fmt: skip
    done = threading.Event()

    def poll_other():
        while not done.is_set():
            other.poll(KAFKA_PYTHON_POLL_MS)

    with ThreadPoolExecutor(1) as pool:
        polling = pool.submit(poll_other)
        one = consumer(group_broker, topic, partition_assignment_strategy="range")
        try:
            poll_until(lambda: polling.done() or len(partitions_of(one)) == PARTITIONS // 2, one)
            rest = set(range(PARTITIONS)) - partitions_of(one)
            poll_until(lambda: polling.done() or {each.partition for each in other.assignment()} == rest, one)
            assert not polling.done()
        finally:
            done.set()
            send(group_broker, topic)  # which ends the poll that waits
            polling.result()
            one.close()
            other.close(autocommit=False)
