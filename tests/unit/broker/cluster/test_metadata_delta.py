"""What differs between images, and what a standalone broker does about it."""

from dataclasses import replace
from uuid import UUID

import pytest

from millrace.wire.controller_apis import EPOCH_DURING_DELETE
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.cluster.metadata_update import RoleChanges, new_topic_configs, removed_topics, standalone_roles
from millrace_broker.replication.roles import PartitionState, StopState
from millrace_broker.storage import TopicPartition

OWN_ID, OTHER_ID = 1, 2
NO_ROLES = RoleChanges((), ())


def partition(index, *, leader=OWN_ID, epoch=0, isr=(OWN_ID,)):
    return PartitionInfo(index, leader, epoch, (OWN_ID,), isr)


def topic(name="events", *partitions, number=1, **config):
    return TopicInfo(name, UUID(int=number), partitions or (partition(0), partition(1)), config)


def image(*topics, topic_configs=None, **fields):
    configs = {one.name: one.config for one in topics} if topic_configs is None else topic_configs
    return MetadataImage("c", OWN_ID, {}, {one.name: one for one in topics}, topic_configs=configs, **fields)


def roles(before, after, offline=()):
    return standalone_roles(before, after, OWN_ID, offline)


def led(changes):
    return [one.topic_partition for one in changes.to_lead]


EVENTS = topic()
BOTH = (TopicPartition("events", 0), TopicPartition("events", 1))
STOPPED = tuple(StopState(one, EPOCH_DURING_DELETE, deletes=True) for one in BOTH)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (image(), image()),
        (image(EVENTS), image(EVENTS)),
        (image(EVENTS), image(replace(EVENTS))),
        (
            image(EVENTS),
            replace(image(EVENTS), brokers={OTHER_ID: BrokerInfo(OTHER_ID, "h", 1)}, controller_id=OTHER_ID),
        ),
        (image(), image(topic("others", partition(0, leader=OTHER_ID)))),
        (image(), image(group_configs={"g": {"consumer.heartbeat.interval.ms": "1"}})),
        (image(), image(topic_configs={"later": {}})),
        (image(topic_configs={"events": {"x": "y"}}), image()),
    ],
)
def test_what_does_not_concern_a_broker_gives_it_nothing_to_do(before, after):
    found = new_topic_configs(before, after), removed_topics(before, after), roles(before, after)
    assert found == ({}, (), NO_ROLES)


def test_a_new_topic_is_led_where_this_broker_is_the_leader():
    new = topic("events", partition(0), partition(1, leader=OTHER_ID), partition(2, epoch=7), number=5)
    assert roles(image(), image(new)).to_lead == (
        PartitionState(TopicPartition("events", 0), UUID(int=5), OWN_ID, 0, (OWN_ID,), 0, (OWN_ID,)),
        PartitionState(TopicPartition("events", 2), UUID(int=5), OWN_ID, 7, (OWN_ID,), 7, (OWN_ID,)),
    )


def test_of_a_topic_that_grew_only_the_new_partitions_are_led():
    grown = topic("events", partition(0), partition(1), partition(2))
    assert led(roles(image(EVENTS), image(grown))) == [TopicPartition("events", 2)]


@pytest.mark.parametrize("changed", [partition(1, epoch=3), partition(1, isr=(OWN_ID, OTHER_ID))])
def test_a_partition_whose_state_changed_is_led_with_it(changed):
    (one,) = roles(image(EVENTS), image(topic("events", partition(0), changed))).to_lead
    assert (one.topic_partition, one.leader_epoch) == (BOTH[1], changed.leader_epoch)


def test_another_configuration_of_a_topic_changes_no_role():
    before, after = image(EVENTS), image(topic(**{"retention.ms": "1"}))
    assert new_topic_configs(before, after) == {"events": {"retention.ms": "1"}}
    assert roles(before, after) == NO_ROLES


def test_a_configuration_may_come_before_its_topic():
    after = image(topic_configs={"later": {"retention.ms": "1"}})
    assert new_topic_configs(image(), after) == {"later": {"retention.ms": "1"}}


def test_a_partition_that_comes_from_another_leader_is_led():
    before = image(topic("events", partition(0, leader=OTHER_ID), partition(1)))
    assert led(roles(before, image(EVENTS))) == [BOTH[0]]


def test_the_logs_of_a_topic_that_is_gone_are_deleted():
    before, after = image(EVENTS, topic("kept", number=2)), image(topic("kept", number=2))
    assert removed_topics(before, after) == ("events",)
    assert roles(before, after) == NO_ROLES._replace(to_stop=STOPPED)


def test_a_topic_that_was_created_again_is_deleted_and_led():
    before, after = image(EVENTS), image(topic("events", partition(0), number=2))
    assert removed_topics(before, after) == ("events",)
    changes = roles(before, after)
    assert (changes.to_stop, led(changes)) == (STOPPED, [BOTH[0]])
    assert changes.to_lead[0].topic_id == UUID(int=2)


def test_a_partition_that_is_offline_is_tried_again_without_any_change():
    assert led(roles(image(EVENTS), image(EVENTS), {BOTH[1]})) == [BOTH[1]]


def test_an_offline_partition_of_a_topic_that_is_gone_is_not():
    assert led(roles(image(EVENTS), image(), {BOTH[1]})) == []
