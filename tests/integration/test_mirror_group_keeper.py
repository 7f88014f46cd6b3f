"""What is kept for all instances of a mirror: the offsets of groups, by settings and states, and the size of maps."""

import logging

import pytest

from millrace.client import Admin, Cluster, Groups
from millrace.client.groups import GroupOffset
from millrace.client.producer import Producer
from millrace.testing.broker import BrokerProcess
from millrace.zk import paths
from millrace_pipelines.mirror.group_keeper import GroupKeeper
from millrace_pipelines.mirror.offset_map_keeper import remove_deleted_runs
from millrace_pipelines.mirror.offset_map_topic import OffsetMaps, create_offset_map_topic
from millrace_pipelines.mirror.settings import MirrorSettings, Side, Source, Way
from millrace_pipelines.mirror.states import State, States, TopicState
from millrace_pipelines.mirror.translation import mirrored_topics
from millrace_support.mirrored_groups import Copier
from millrace_support.zookeeper_sessions import started

COPIED, FOLLOWED, SWITCHED = STATES = [
    TopicState(source="east", topic="clicks", target_topic="east.clicks", way=Way.COPY),
    TopicState(source="east", topic="views", target_topic="views", way=Way.FOLLOW),
    TopicState(source="east", topic="sales", target_topic="sales", way=Way.FOLLOW, state=State.SWITCHED),
]


@pytest.fixture(scope="module")
def addresses(zookeeper, tmp_path_factory):
    """Two clusters, the first one's topics mirrored in the second: (ZooKeeper, broker) of each."""
    found = [f"{zookeeper.address}/kept-{name}" for name in ("source", "target")]
    folders = [tmp_path_factory.mktemp(name) for name in ("source", "target")]
    properties = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
    with (
        BrokerProcess(folders[0], zookeeper=found[0], properties=properties) as source,
        BrokerProcess(folders[1], zookeeper=found[1], properties=properties) as target,
        Cluster(source.bootstrap) as at_source,
        Cluster(target.bootstrap) as at_target,
        Producer(broker_list=source.bootstrap) as at_home,
        Producer(broker_list=target.bootstrap) as abroad,
    ):
        for state in STATES:
            Admin(at_source).create_topic(state.topic, 1)
            Admin(at_target).create_topic(state.target_topic, 1)
            for number in range(10):
                at_home.send(state.topic, b"%d" % number, partition=0)
                if state.way is Way.FOLLOW:
                    abroad.send(state.target_topic, b"%d" % number, partition=0)
        create_offset_map_topic(at_target)
        copier = Copier("east", at_source, target.bootstrap, "clicks", "east.clicks")
        for _ in range(3):
            copier.copy(1, at_most=3)
        copier.close()
        States(at_target).create()
        States(at_target, abroad).write(*STATES)
        yield (found[0], source.bootstrap), (found[1], target.bootstrap)


@pytest.fixture
def kept(addresses):
    (from_zookeeper, from_broker), (to_zookeeper, to_broker) = addresses
    source = Source(bootstrap=from_broker, zookeeper=from_zookeeper, name="east", topics=(".*",), groups=("billing.*",))
    settings = MirrorSettings(target=Side(bootstrap=to_broker, zookeeper=to_zookeeper), sources=(source,))
    with (
        Cluster(from_broker) as at_source,
        Cluster(to_broker) as at_target,
        GroupKeeper(settings, source, at_source, at_target, States(at_target)) as keeper,
    ):
        yield keeper, at_source, at_target


def commit(cluster, group, **offsets):
    found = {(topic.replace("_", "."), 0): GroupOffset(offset, "") for topic, offset in offsets.items()}
    Groups(cluster).commit(group, found)


def committed(cluster, group):
    return {topic: at.offset for (topic, _), at in Groups(cluster).offsets(group).items()}


def test_groups_that_are_chosen_go_along_in_topics_that_are_mirrored(kept):
    keeper, at_source, at_target = kept
    for group in ("billing", "billing-2", "other"):
        commit(at_source, group, clicks=5, views=6, sales=7)
    keeper.keep()
    assert [committed(at_target, one) for one in ("billing", "billing-2", "other")] == [
        {"east.clicks": 6, "views": 6}, {"east.clicks": 6, "views": 6}, {}
    ]  # fmt: skip
    commit(at_target, "billing", east_clicks=8, views=9)
    assert {one.group_id: one.outcome.value for one in keeper.keep_last()} == {
        "billing": "gone on", "billing-2": "unchanged"
    }  # fmt: skip
    keeper.keep_back()
    assert committed(at_source, "billing") == {"clicks": 6, "views": 9, "sales": 7}
    assert committed(at_source, "billing-2") == {"clicks": 5, "views": 6, "sales": 7}


def test_trouble_of_a_group_is_logged_once(kept, addresses, caplog):
    keeper, at_source, at_target = kept
    commit(at_source, "billing-zk", clicks=5)
    with started(addresses[0][0]) as session:
        session.put(paths.consumer_offset("billing-zk", "views", 0), b"six")
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                keeper.keep()
        [line] = [one.message for one in caplog.records if one.name.endswith("group_keeper")]
        assert line == "group billing-zk of east: the offset of views-0 is b'six', not a number"
        session.put(paths.consumer_offset("billing-zk", "views", 0), b"6")
    keeper.keep()
    assert committed(at_target, "billing-zk") == {"east.clicks": 6, "views": 6}
    with started(addresses[1][0]) as session:
        assert session.get(paths.consumer_offset("billing-zk", "views", 0)) == b"6"


def test_runs_that_the_target_has_deleted_are_removed(kept):
    _, _, at_target = kept
    topics = mirrored_topics(STATES, "east")
    assert remove_deleted_runs(at_target, "east", topics) == 0
    [first, *_] = OffsetMaps(at_target, "east").read([("clicks", 0)])["clicks", 0]
    Admin(at_target).delete_records("east.clicks", 0, first.target_end)
    assert remove_deleted_runs(at_target, "east", topics) == 1
    assert remove_deleted_runs(at_target, "east", topics[1:]) == 0
