"""Groups are moved between two clusters of Millrace, also ZooKeeper's: each by itself, and none that is in use."""

from contextlib import ExitStack, contextmanager
from uuid import uuid4

import pytest

from millrace.client import Admin, Cluster, Groups, SyncProducer
from millrace.client.consumer import ConsumerConnector
from millrace.client.groups import GroupOffset
from millrace.client.metadata import AbsentTopicError
from millrace.errors import DamagedNodeError, GroupHasMembersError
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.zk import paths
from millrace_pipelines.mirror.group_side import GroupSide
from millrace_pipelines.mirror.groups import GroupMoves, Outcome
from millrace_pipelines.mirror.offset_map_topic import create_offset_map_topic
from millrace_pipelines.mirror.translation import Fit, MirroredTopic, TranslatedOffset
from millrace_support.connector_streams import BOUNDS, SESSION_TIMEOUT_MS, read, stream_of
from millrace_support.mirrored_groups import Copier, Source
from millrace_support.zookeeper_sessions import started

FEW_PARTITIONS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
PARTITIONS = 2


@pytest.fixture(scope="module")
def sides(zookeeper, tmp_path_factory):
    """Two clusters, each with its ZooKeeper: (address of ZooKeeper, address of the broker, side)."""
    with ExitStack() as stack:
        found = []
        for name in ("mirror-source", "mirror-target"):
            address = f"{zookeeper.address}/{name}"
            broker = stack.enter_context(
                BrokerProcess(tmp_path_factory.mktemp(name), zookeeper=address, properties=FEW_PARTITIONS)
            )
            session = stack.enter_context(started(address, session_timeout_ms=SESSION_TIMEOUT_MS))
            side = GroupSide(stack.enter_context(Cluster(broker.bootstrap)), session)
            found.append((address, broker.bootstrap, side))
        create_offset_map_topic(found[1][2].cluster)
        yield found


@pytest.fixture
def topic(sides):
    """A topic of both clusters with ten records in each partition, the same ones: followed."""
    name = f"t{uuid4().hex}"
    for _, _, side in sides:
        Admin(side.cluster).create_topic(name, PARTITIONS)
        write(side, name, 10)
    return MirroredTopic(name, name, is_followed=True)


def write(side, topic, count):
    for partition in range(PARTITIONS):
        SyncProducer(side.cluster).send(topic, partition, [NewRecord(b"%d" % number) for number in range(count)])


def commit(side, group, topic, *offsets):
    found = {(topic, partition): GroupOffset(offset, "") for partition, offset in enumerate(offsets)}
    Groups(side.cluster).commit(group, found)


def committed(side, group, topic):
    found = Groups(side.cluster).offsets(group)
    return [found[topic, partition].offset for partition in range(PARTITIONS) if (topic, partition) in found]


@pytest.fixture
def moves(sides, topic):
    (_, _, source), (_, _, target) = sides
    return GroupMoves("east", source, target, is_chosen=lambda group: group.startswith(topic.topic))


@contextmanager
def member(address, group, topic, **properties):
    given = BOUNDS | {"group.id": group, "zookeeper.connect": address, "auto.offset.reset": "smallest"} | properties
    connector = ConsumerConnector(given | {"auto.commit.enable": "false"})
    try:
        yield connector, stream_of(connector, topic)
    finally:
        connector.shutdown()


STORES = {
    "zookeeper": {"offsets.storage": "zookeeper"},
    "kafka": {"offsets.storage": "kafka", "dual.commit.enabled": "false"},
    "both": {"offsets.storage": "kafka", "dual.commit.enabled": "true"},
}


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_a_group_that_zookeeper_coordinates_moves_over_and_back(sides, store, request):
    (from_address, from_broker, source), (to_address, to_broker, target) = sides
    name = f"zk-{request.node.callspec.id}"
    topic = MirroredTopic(name, f"east.{name}", is_followed=False)
    Admin(source.cluster).create_topic(topic.topic, PARTITIONS)
    Admin(target.cluster).create_topic(topic.target_topic, PARTITIONS)
    filled, copier = Source(from_broker, name, PARTITIONS, 5), Copier("east", source.cluster, to_broker, *topic[:2])
    moves = GroupMoves("east", source, target, is_chosen=name.__eq__)
    found = {one: [] for one in range(PARTITIONS)}

    def go_on(address, where, count):
        with member(address, name, where, **store) as (connector, stream):
            for message in read(stream, count):
                found[message.partition].append(int(message.value))
            connector.commit_offsets()

    for _ in range(3):
        filled.fill(6)
        go_on(from_address, topic.topic, 3)
        copier.copy(PARTITIONS)
        assert [one.outcome for one in moves.move([topic], is_last=True)] == [Outcome.MOVED]
        go_on(to_address, topic.target_topic, 4)
        assert [one.outcome for one in moves.move([topic], is_last=True)] == [Outcome.GONE_ON]
        assert [one.outcome for one in moves.move_back([topic])] == [Outcome.MOVED]
    go_on(from_address, topic.topic, sum(map(len, filled.written.values())) - 21)
    assert found == filled.written
    filled.close()
    copier.close()


def test_offsets_of_a_followed_topic_stay_and_are_never_ahead_of_what_is_mirrored(sides, topic, moves):
    (_, _, source), (_, _, target) = sides
    name = topic.topic
    write(source, name, 10)
    Admin(target.cluster).delete_records(name, 1, 5)
    commit(source, name, name, 14, 3)
    [result] = moves.move([topic])
    assert result.offsets == {(name, 0): TranslatedOffset(10, Fit.AHEAD), (name, 1): TranslatedOffset(5, Fit.DELETED)}
    assert committed(target, name, name) == [10, 5]
    write(target, name, 10)
    assert [one.outcome for one in moves.move([topic])] == [Outcome.MOVED], "nothing but the mirror has moved on"
    assert committed(target, name, name) == [14, 5]
    assert moves.move([topic]) == [], "all is done"
    commit(source, name, name, 14, 8)
    assert [one.outcome for one in moves.move([topic])] == [Outcome.MOVED]
    assert committed(target, name, name) == [14, 8]
    commit(source, name, name, 2, 2)
    assert [one.outcome for one in moves.move([topic])] == [Outcome.UNCHANGED], "never backwards"
    assert committed(target, name, name) == [14, 8]


def test_a_group_that_has_gone_on_or_has_members_or_is_damaged_stops_no_other(sides, topic, moves):
    (_, _, source), (to_address, _, target) = sides
    name = topic.topic
    damaged, gone_on, reading, well = (f"{name}-{one}" for one in ("damaged", "gone-on", "reading", "well"))
    for group in (damaged, gone_on, reading, well):
        commit(source, group, name, 4, 5)
    source.zookeeper.put(paths.consumer_offset(damaged, name, 0), b"four")
    commit(target, gone_on, name, 2)
    with member(to_address, reading, name):
        results = {one.group_id: one for one in moves.move([topic])}
    assert {group: one.outcome for group, one in results.items()} == {
        damaged: Outcome.FAILED, gone_on: Outcome.GONE_ON, reading: Outcome.HAS_MEMBERS, well: Outcome.MOVED
    }  # fmt: skip
    assert isinstance(results[damaged].errors[0], DamagedNodeError)
    assert isinstance(results[reading].errors[0], GroupHasMembersError)
    assert [committed(target, one, name) for one in (damaged, gone_on, reading, well)] == [[], [2], [], [4, 5]]
    assert {one.group_id: one.outcome for one in moves.move([topic])}[reading] is Outcome.MOVED, "once it has stopped"


def test_a_group_that_still_reads_at_the_source_is_carried_but_not_for_the_last_time(sides, topic, moves):
    (from_address, *_), (_, _, target) = sides
    name = topic.topic
    with member(from_address, name, name) as (connector, stream):
        read(stream, 3)
        connector.commit_offsets()
        [result] = moves.move([topic], is_last=True)
        assert (result.outcome, committed(target, name, name)) == (Outcome.HAS_MEMBERS, [])
        assert [one.outcome for one in moves.move([topic])] == [Outcome.MOVED]
    assert sum(committed(target, name, name)) == 3


def test_a_partition_that_is_missing_at_the_target_stops_no_other(sides, topic, moves):
    (_, _, source), (_, _, target) = sides
    name = topic.topic
    Admin(source.cluster).create_partitions(name, PARTITIONS + 1)
    commit(source, name, name, 4, 5, 0)
    [result] = moves.move([topic])
    assert (result.outcome, committed(target, name, name)) == (Outcome.MOVED, [4, 5])
    assert [type(one) for one in result.errors] == [AbsentTopicError]
    Admin(target.cluster).create_partitions(name, PARTITIONS + 1)
    [result] = moves.move([topic])
    assert (result.outcome, result.errors) == (Outcome.MOVED, ())


def test_groups_that_are_not_chosen_or_read_nothing_mirrored_are_passed_over(sides, topic, moves):
    (_, _, source), (_, _, target) = sides
    name = topic.topic
    Admin(source.cluster).create_topic(f"{name}-own", PARTITIONS)
    commit(source, f"not-{name}", name, 4, 5)
    commit(source, f"{name}-elsewhere", f"{name}-own", 0, 0)
    assert moves.move([topic], is_last=True) == moves.move_back([topic]) == []
    assert committed(target, f"not-{name}", name) == []


def test_a_group_moves_back_only_once_it_has_stopped_and_only_forwards(sides, topic, moves):
    (_, _, source), (to_address, _, target) = sides
    name = topic.topic
    commit(source, name, name, 4, 5)
    moves.move([topic])
    assert moves.move_back([topic]) == [], "it has read nothing at the target"
    commit(target, name, name, 7, 3)
    with member(to_address, name, name):
        assert [one.outcome for one in moves.move_back([topic])] == [Outcome.HAS_MEMBERS]
    assert committed(source, name, name) == [4, 5]
    assert [one.outcome for one in moves.move_back([topic])] == [Outcome.MOVED]
    assert committed(source, name, name) == [7, 5]
    assert moves.move_back([topic]) == []
