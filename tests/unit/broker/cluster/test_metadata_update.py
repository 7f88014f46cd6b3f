"""What an image becomes by the controller's updates and by changed configurations."""

from dataclasses import replace
from uuid import UUID

import pytest

from millrace.leader_states import LEADER_DURING_DELETE, NO_LEADER
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, offline_replicas
from millrace_broker.cluster.metadata_update import (
    MetadataUpdate,
    TopicUpdate,
    brokers_by_id,
    configured_image,
    updated_image,
)

ONE, TWO = UUID(int=1), UUID(int=2)
BROKERS = brokers_by_id([BrokerInfo(2, "b", 9092), BrokerInfo(1, "a", 9092)])
EMPTY = MetadataImage("c", -1, {}, {}, topic_configs={"t": {"retention.ms": "7"}})


def led(index, leader=1, epoch=0):
    return PartitionInfo(index, leader, epoch, (1, 2), (1, 2))


def told(image, *partitions, topic_id=ONE, name="t"):
    return updated_image(image, MetadataUpdate(1, BROKERS, [TopicUpdate(name, topic_id, partitions)]))


def test_the_first_update_brings_brokers_controller_and_topics_with_their_configuration():
    image = told(EMPTY, led(0), led(1, leader=2))
    assert (list(image.brokers), image.controller_id) == ([1, 2], 1)
    assert image.topics["t"].partitions == (led(0), led(1, leader=2))
    assert image.topics["t"].config == {"retention.ms": "7"}


def test_partitions_that_are_not_named_stay():
    image = told(told(EMPTY, led(0), led(1)), led(1, leader=2, epoch=3))
    assert image.topics["t"].partitions == (led(0), led(1, leader=2, epoch=3))


def test_a_topic_that_has_not_changed_is_the_same_object():
    before = told(told(EMPTY, led(0)), led(0), name="other")
    after = told(before, led(0, epoch=1))
    assert after.topics["other"] is before.topics["other"]
    assert told(before, led(0)).topics["t"] is before.topics["t"]


def test_a_partition_below_one_that_was_told_has_no_leader_yet():
    first, second = told(EMPTY, led(1)).topics["t"].partitions
    assert (first.leader, first.replicas, second) == (NO_LEADER, (), led(1))
    assert told(told(EMPTY, led(1)), led(0)).topics["t"].partitions == (led(0), led(1))


def test_another_id_is_another_topic():
    image = told(told(EMPTY, led(0), led(1)), led(0, leader=2), topic_id=TWO)
    assert (image.topics["t"].topic_id, image.topics["t"].partitions) == (TWO, (led(0, leader=2),))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_topic_that_is_deleted_goes_with_its_last_partition(order):
    image = told(EMPTY, led(0), led(1))
    first, second = order
    image = told(image, led(first, leader=LEADER_DURING_DELETE))
    assert led(second) in image.topics["t"].partitions
    image = told(image, led(second, leader=LEADER_DURING_DELETE))
    assert "t" not in image.topics
    assert "t" not in told(image, led(0, leader=LEADER_DURING_DELETE)).topics


def test_configurations_come_before_and_after_their_topics():
    image = configured_image(told(EMPTY, led(0)), {"t": {"retention.ms": "8"}, "later": {"a": "b"}})
    assert image.topics["t"].config == {"retention.ms": "8"}
    assert told(image, led(0), name="later").topics["later"].config == {"a": "b"}
    assert configured_image(image, {}).topics["t"].config == {}
    assert configured_image(image, image.topic_configs).topics["t"] is image.topics["t"]


def test_replicas_are_offline_with_their_broker_or_with_their_data_directory():
    image = told(EMPTY, led(0))
    on_lost_disk = replace(led(0), replicas=(1, 2, 3), offline_replicas=(2,))
    assert offline_replicas(on_lost_disk, image) == [2, 3]
