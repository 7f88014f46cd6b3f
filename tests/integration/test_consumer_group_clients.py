"""The consumer group protocol with librdkafka: shared, rebalanced, fenced, killed, restarted, migrated."""

import subprocess
import sys
import time

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from millrace.client import Admin, Cluster, Configs, Groups, ResourceKind, SyncProducer
from millrace.errors import ErrorCode
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess

PARTITIONS = 4
RECORDS_EACH = 5
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "45000",
}
LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
DEADLINE_S = 120


@pytest.fixture(scope="module")
def consumer_group_broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("consumer-groups"), properties=PROPERTIES) as process:
        yield process


@pytest.fixture
def topic(consumer_group_broker, request):
    name = "".join(one if one.isalnum() else "-" for one in request.node.name)
    fill(consumer_group_broker, name)
    return name


def fill(broker, name):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(name, PARTITIONS)
        producer = SyncProducer(cluster)
        for partition in range(PARTITIONS):
            producer.send(name, partition, [NewRecord(b"%d" % index) for index in range(RECORDS_EACH)])


def member(broker, group, *topics, protocol="consumer", **settings):
    own = {} if protocol == "consumer" else {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 100}
    made = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
            **own,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    made.subscribe(list(topics))
    return made


def poll_until(holds, *members):
    """Everyone polls until it holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, [partitions_of(one) for one in members]
        for one in members:
            one.poll(0.02)


def partitions_of(one):
    return {partition.partition for partition in one.assignment()}


def share(*members):
    """Whether the partitions are divided among all, each to one, evenly."""
    shares = [partitions_of(one) for one in members]
    return set().union(*shares) == set(range(PARTITIONS)) and {len(one) for one in shares} == {
        PARTITIONS // len(members)
    }


def describe(broker, group):
    """Returns a group as its coordinator describes it, once that has loaded it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
        except KafkaException as error:
            if error.args[0].code() not in LOADING or time.monotonic() > deadline:
                raise


def until_it_is(broker, group, state, *members):
    """Waits until the coordinator tells of a state, which it may do later than the clients; returns the group."""
    poll_until(lambda: describe(broker, group).state is state, *members)
    return describe(broker, group)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_a_topic_as_they_come_and_go(consumer_group_broker, topic, assignor):
    first = member(consumer_group_broker, topic, topic, group_remote_assignor=assignor)
    poll_until(lambda: share(first), first)
    second = member(consumer_group_broker, topic, topic, group_remote_assignor=assignor)
    poll_until(lambda: share(first, second), first, second)
    described = until_it_is(consumer_group_broker, topic, ConsumerGroupState.STABLE, first, second)
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert described.partition_assignor == assignor
    shares = [{one.partition for one in each.assignment.topic_partitions} for each in described.members]
    assert sorted(map(sorted, shares)) == sorted(map(sorted, (partitions_of(first), partitions_of(second))))
    first.close()
    poll_until(lambda: share(second), second)
    second.close()
    until_it_is(consumer_group_broker, topic, ConsumerGroupState.EMPTY)


def test_a_pattern_follows_the_topics(consumer_group_broker, topic):
    one = member(consumer_group_broker, topic, f"^{topic}.*")
    poll_until(lambda: share(one), one)
    one.close()


def test_new_partitions_are_shared_too(consumer_group_broker, topic):
    one = member(consumer_group_broker, topic, topic, f"{topic}-2")
    poll_until(lambda: share(one), one)
    fill(consumer_group_broker, f"{topic}-2")
    poll_until(lambda: len(one.assignment()) == 2 * PARTITIONS, one)
    one.close()


def test_a_static_consumer_that_restarts_gets_its_partitions_back(consumer_group_broker, topic):
    first = member(consumer_group_broker, topic, topic, group_instance_id="one")
    second = member(consumer_group_broker, topic, topic, group_instance_id="two")
    poll_until(lambda: share(first, second), first, second)
    had = partitions_of(second)
    second.close()
    assert len(describe(consumer_group_broker, topic).members) == 2
    again = member(consumer_group_broker, topic, topic, group_instance_id="two")
    poll_until(lambda: partitions_of(again), first, again)
    assert partitions_of(again) == had
    first.close()
    again.close()


def test_our_own_client_describes_a_consumer_group(consumer_group_broker, topic):
    one = member(consumer_group_broker, topic, topic, group_instance_id="one")
    poll_until(lambda: share(one), one)
    with Cluster(consumer_group_broker.bootstrap) as cluster:
        described = Groups(cluster).describe(topic)
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "uniform")
    (known,) = described.members
    assert (known.instance_id, known.client_host) == ("one", "/127.0.0.1")
    assert set(known.partitions) == {(topic, partition) for partition in range(PARTITIONS)}
    one.close()


DYING = """
import sys
from confluent_kafka import Consumer
bootstrap, group, topic = sys.argv[1:]
one = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"})
one.subscribe([topic], on_assign=lambda _, partitions: partitions and print("assigned", flush=True))
while True:
    one.poll(0.1)
"""


def test_a_consumer_that_is_killed_gives_its_partitions_back(consumer_group_broker, topic):
    with Cluster(consumer_group_broker.bootstrap) as cluster:
        Configs(cluster).change(ResourceKind.GROUP, topic, {"consumer.session.timeout.ms": "4000"})
    survivor = member(consumer_group_broker, topic, topic)
    poll_until(lambda: share(survivor), survivor)
    command = [sys.executable, "-c", DYING, consumer_group_broker.bootstrap, topic, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as dying:
        poll_until(lambda: len(partitions_of(survivor)) == PARTITIONS // 2, survivor)
        assert dying.stdout.readline() == b"assigned\n"
        dying.kill()
    poll_until(lambda: share(survivor), survivor)
    survivor.close()


def commit_after_reconnecting(one, offset):
    """librdkafka fails what it is asked while it finds its way back to the broker."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            one.commit(offsets=[offset], asynchronous=False)
        except KafkaException:
            assert time.monotonic() < deadline
            one.poll(0.05)
        else:
            return


def test_members_go_on_after_a_kill_of_the_broker(tmp_path):
    with BrokerProcess(tmp_path / "broker", properties=PROPERTIES) as broker:
        fill(broker, "events")
        first, second = member(broker, "g", "events"), member(broker, "g", "events")
        poll_until(lambda: share(first, second), first, second)
        before = {each.member_id for each in until_it_is(broker, "g", ConsumerGroupState.STABLE, first, second).members}
        mine = partitions_of(first)
        offsets = [TopicPartition("events", partition, 3, metadata="kept") for partition in mine]
        first.commit(offsets=offsets, asynchronous=False)
        broker.kill()
        broker.start()
        assert {each.member_id for each in describe(broker, "g").members} == before
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        asked = ConsumerGroupTopicPartitions("g", [TopicPartition("events", min(mine))])
        (kept,) = admin.list_consumer_group_offsets([asked])["g"].result(DEADLINE_S).topic_partitions
        assert (kept.offset, kept.metadata) == (3, "kept")
        commit_after_reconnecting(first, TopicPartition("events", min(mine), 4))  # still at its epoch
        assert share(first, second)
        second.close()
        poll_until(lambda: share(first), first)
        first.close()


def test_groups_of_both_types_are_listed_and_deleted(consumer_group_broker, topic):
    one = member(consumer_group_broker, topic, topic)
    poll_until(lambda: share(one), one)
    one.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": consumer_group_broker.bootstrap})
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(DEADLINE_S).valid
    assert topic in {each.group_id for each in listed}
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([topic])[topic].result(DEADLINE_S)
    one.close()
    until_it_is(consumer_group_broker, topic, ConsumerGroupState.EMPTY)
    asked = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0)])
    (found,) = admin.list_consumer_group_offsets([asked])[topic].result(DEADLINE_S).topic_partitions
    assert found.offset == 5
    admin.delete_consumer_groups([topic])[topic].result(DEADLINE_S)
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_groups([topic])[topic].result(DEADLINE_S)


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_a_group_moves_to_the_new_protocol_and_back_member_by_member(consumer_group_broker, topic, strategy):
    """No member stops: each is replaced by one of the other protocol, and what was committed stays."""
    classic = {"protocol": "classic", "partition_assignment_strategy": strategy}
    old = [member(consumer_group_broker, topic, topic, **classic) for _ in range(2)]
    poll_until(lambda: share(*old), *old)
    mine = min(partitions_of(old[0]))
    old[0].commit(offsets=[TopicPartition(topic, mine, 2)], asynchronous=False)
    assert describe(consumer_group_broker, topic).type is ConsumerGroupType.CLASSIC

    old[1].close()
    new = member(consumer_group_broker, topic, topic)
    poll_until(lambda: share(old[0], new), old[0], new)
    assert describe(consumer_group_broker, topic).type is ConsumerGroupType.CONSUMER
    old[0].close()
    poll_until(lambda: share(new), new)
    (kept,) = new.committed([TopicPartition(topic, mine)], timeout=DEADLINE_S)
    assert kept.offset == 2

    again = member(consumer_group_broker, topic, topic, **classic)
    poll_until(lambda: share(new, again), new, again)
    new.close()
    poll_until(lambda: share(again), again)
    assert describe(consumer_group_broker, topic).type is ConsumerGroupType.CLASSIC
    again.close()
