"""What a controller's requests make of a partition: every row of the tables, at its edges."""

from contextlib import nullcontext
from uuid import UUID

import pytest

from millrace.errors import ErrorCode, MillraceError
from millrace.leader_states import NO_LEADER
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.wire.controller_apis import EPOCH_DURING_DELETE
from millrace_broker.replication.roles import (
    ControllerFence,
    Hosted,
    PartitionState,
    Role,
    StopState,
    new_role,
    stop_refusal,
)
from millrace_broker.storage import TopicPartition

PARTITION = TopicPartition("t", 0)
OLD, NEW = UUID(int=1), UUID(int=2)
DRAWN, DAMAGED = UUID("3e3b1d8f-7a92-48de-9e49-d816ba8ea299"), UUID("3e3b1d8f-7b92-48de-9e49-d816ba8ea299")
ME = 1


def state(leader, epoch, *, topic_id=OLD, replicas=(1, 2)):
    return PartitionState(PARTITION, topic_id, leader, epoch, replicas, 0, replicas)


@pytest.mark.parametrize(
    ("controller_epoch", "broker_epoch", "expected"),
    [
        (5, 100, ErrorCode.NONE),
        (6, 101, ErrorCode.NONE),
        (5, -1, ErrorCode.NONE),
        (4, 100, ErrorCode.STALE_CONTROLLER_EPOCH),
        (4, -1, ErrorCode.STALE_CONTROLLER_EPOCH),
        (5, 99, ErrorCode.STALE_BROKER_EPOCH),
        (4, 99, ErrorCode.STALE_BROKER_EPOCH),
        (6, 0, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_a_request_of_a_former_controller_or_to_a_former_registration_is_refused(
    controller_epoch, broker_epoch, expected
):
    fence = ControllerFence(lambda: 100)
    fence.check(5, 100)
    refused = nullcontext() if expected is ErrorCode.NONE else pytest.raises(MillraceError)
    with refused as raised:
        fence.check(controller_epoch, broker_epoch)
    assert raised is None or raised.value.code is expected
    assert fence.controller_epoch == (controller_epoch if raised is None else 5)


@pytest.mark.parametrize(
    ("asked", "hosted", "expected"),
    [
        (state(1, 0), Hosted(), Role.LEADER),
        (state(2, 0), Hosted(), Role.FOLLOWER),
        (state(NO_LEADER, 0), Hosted(), Role.FOLLOWER),
        (state(1, 4), Hosted(3, OLD), Role.LEADER),
        (state(2, 4), Hosted(3, OLD), Role.FOLLOWER),
        (state(1, 3), Hosted(3, OLD), ErrorCode.STALE_CONTROLLER_EPOCH),
        (state(2, 2), Hosted(3, OLD), ErrorCode.STALE_CONTROLLER_EPOCH),
        (state(2, 4, replicas=(2, 3)), Hosted(3, OLD), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (state(2, 3, replicas=(2, 3)), Hosted(3, OLD), ErrorCode.STALE_CONTROLLER_EPOCH),
        (state(1, 4, topic_id=NEW), Hosted(3, OLD), ErrorCode.INCONSISTENT_TOPIC_ID),
        (state(1, 0, topic_id=NEW), Hosted(3, OLD), ErrorCode.INCONSISTENT_TOPIC_ID),
        (state(1, 0, topic_id=NEW), Hosted(NO_LEADER_EPOCH, OLD), ErrorCode.INCONSISTENT_TOPIC_ID),
        (state(1, 0, topic_id=DRAWN), Hosted(NO_LEADER_EPOCH, DAMAGED), Role.LEADER),
        (state(2, 0, topic_id=DRAWN), Hosted(NO_LEADER_EPOCH, DAMAGED), Role.FOLLOWER),
        (state(1, 4, topic_id=None), Hosted(3, OLD), Role.LEADER),
        (state(1, 4), Hosted(3, None), Role.LEADER),
        (state(1, 4), Hosted(3, OLD, is_offline=True), ErrorCode.KAFKA_STORAGE_ERROR),
        (state(1, 3, topic_id=NEW), Hosted(3, OLD, is_offline=True), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_leader_and_isr_makes_a_leader_or_a_follower_or_is_refused(asked, hosted, expected):
    assert new_role(asked, ME, hosted) is expected


@pytest.mark.parametrize(
    ("topic", "index"),
    [("", 0), (".", 0), ("..", 0), ("../t", 0), ("t/u", 0), ("t\0", 0), ("ä", 0), ("t" * 250, 0), ("t", -1)],
)
def test_a_name_that_no_partition_can_have_is_refused(topic, index):
    asked = state(ME, 4)._replace(topic_partition=TopicPartition(topic, index))
    assert new_role(asked, ME, Hosted()) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(("topic", "index"), [("t", 0), ("a.b_c-1", 12), ("t" * 249, 99_999)])
def test_names_that_partitions_have_pass(topic, index):
    asked = state(ME, 4)._replace(topic_partition=TopicPartition(topic, index))
    assert new_role(asked, ME, Hosted()) is Role.LEADER


@pytest.mark.parametrize(
    ("leader_epoch", "hosted", "expected"),
    [
        (3, Hosted(3, OLD), ErrorCode.NONE),
        (4, Hosted(3, OLD), ErrorCode.NONE),
        (2, Hosted(3, OLD), ErrorCode.FENCED_LEADER_EPOCH),
        (0, Hosted(3, OLD), ErrorCode.FENCED_LEADER_EPOCH),
        (EPOCH_DURING_DELETE, Hosted(3, OLD), ErrorCode.NONE),
        (NO_LEADER_EPOCH, Hosted(3, OLD), ErrorCode.NONE),
        (0, Hosted(), ErrorCode.NONE),
        (EPOCH_DURING_DELETE, Hosted(), ErrorCode.NONE),
        (4, Hosted(3, OLD, is_offline=True), ErrorCode.KAFKA_STORAGE_ERROR),
        (EPOCH_DURING_DELETE, Hosted(is_offline=True), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
@pytest.mark.parametrize("deletes", [True, False])
def test_stop_replica_stops_unless_a_newer_leader_is_known(leader_epoch, hosted, expected, deletes):
    assert stop_refusal(StopState(PARTITION, leader_epoch, deletes), hosted) is expected
