"""What a simulation holds its brokers to once disks and power are lost: as long as somebody certainly has all."""

from uuid import UUID

import pytest

from millrace.zk import codec, paths
from millrace_broker.storage import TopicPartition
from millrace_support.model_zookeeper import ModelZooKeeper
from millrace_support.simulation.assignments import Assignments
from millrace_support.simulation.promises import Promises

KEY = TopicPartition("t", 0)


class Scene:
    """A partition on brokers 1, 2 and 3 with a min ISR of 2."""

    def __init__(self):
        self.zookeeper = ModelZooKeeper()
        self.promises = Promises(self.zookeeper, Assignments(self.zookeeper), min_isr=2)
        self.assign(1, 2, 3)
        for broker in (1, 2, 3):
            self.register(broker)
        self.in_sync(1, 2, 3)

    def assign(self, *replicas):
        topic = codec.TopicAssignment(topic_id=UUID(int=1), replicas=(replicas,))
        self.zookeeper.put(paths.topic(KEY.topic), codec.encode_topic(topic))

    def register(self, broker):
        if paths.broker(broker) in self.zookeeper.nodes:
            self.zookeeper.delete(paths.broker(broker))
        self.zookeeper.put(paths.broker(broker), b"")

    def in_sync(self, *isr):
        state = codec.PartitionState(leader=isr[0], leader_epoch=0, isr=isr, controller_epoch=1)
        self.zookeeper.put(paths.partition_state(*KEY), codec.encode_partition_state(state))

    def strike(self, *brokers):
        for broker in brokers:
            self.promises.strike(broker, is_synced=False)


@pytest.fixture
def scene():
    return Scene()


def test_it_holds_as_long_as_one_that_is_in_sync_has_lost_nothing(scene):
    scene.strike(1, 3)
    assert not scene.promises.is_void(KEY)
    assert scene.promises.strike(2, is_synced=False) == [KEY]
    assert scene.promises.is_void(KEY)


def test_it_holds_as_long_as_one_has_that_left_below_the_min_isr(scene):
    scene.in_sync(1, 2)
    scene.in_sync(1)
    scene.strike(1)
    assert scene.promises.unscathed(KEY) == {2}
    scene.strike(2)
    assert scene.promises.is_void(KEY)


def test_who_left_below_the_min_isr_lacks_what_was_committed_once_enough_are_in_sync(scene):
    scene.in_sync(1)
    scene.in_sync(1, 2)
    scene.strike(1, 2)
    assert scene.promises.is_void(KEY)


@pytest.mark.parametrize("registers", [True, False])
def test_who_was_struck_counts_again_once_it_has_come_back_into_the_isr(scene, registers):
    scene.strike(1)
    scene.in_sync(2)
    if registers:
        scene.register(1)
    scene.in_sync(2, 1)
    scene.strike(2, 3)
    assert scene.promises.is_void(KEY) is not registers


def test_who_was_struck_and_is_still_in_the_isr_does_not_count(scene):
    scene.strike(1)
    scene.register(1)
    scene.in_sync(1, 2)
    scene.strike(2, 3)
    assert scene.promises.is_void(KEY)


def test_a_replica_that_a_reassignment_removes_does_not_count(scene):
    scene.in_sync(1)
    scene.assign(1, 2)
    scene.strike(1, 2)
    assert scene.promises.is_void(KEY)


def test_a_reassignment_that_ends_at_a_broker_whose_disk_was_just_lost_leaves_no_promise(scene):
    scene.strike(1)
    scene.in_sync(1)
    assert not scene.promises.is_void(KEY)
    scene.assign(1)
    assert scene.promises.is_void(KEY)


def test_power_takes_nothing_that_is_synced(scene):
    for broker in (1, 2, 3):
        assert scene.promises.strike(broker, is_synced=True) == []
    assert not scene.promises.is_void(KEY)
    assert scene.promises.unscathed(KEY) == set()
    assert scene.promises.was_struck(1, scene.promises.now_zxid)
    assert not scene.promises.was_struck(1, scene.promises.now_zxid + 1)


def test_the_next_topic_of_the_name_begins_with_a_promise(scene):
    scene.strike(1, 2, 3)
    scene.zookeeper.delete(paths.partition_state(*KEY))
    assert not scene.promises.is_void(KEY)


def test_who_is_struck_before_a_partition_begins_has_all_of_it_until_it_is_struck_again(scene):
    scene.zookeeper.delete(paths.partition_state(*KEY))
    scene.strike(1)
    scene.in_sync(1)
    assert not scene.promises.is_void(KEY)
    assert scene.promises.strike(1, is_synced=False) == [KEY]
    assert scene.promises.is_void(KEY)
