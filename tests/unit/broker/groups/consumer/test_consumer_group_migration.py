"""Classic groups become consumer groups and the other way round, while members of both kinds go on."""

import struct

import pytest

from millrace.errors import ErrorCode
from millrace_broker.groups import membership
from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.consumer.classic_members import (
    read_assignment,
    read_subscription,
    subscription_version,
    write_assignment,
)
from millrace_broker.groups.consumer.consumer_groups import ConsumerGroup
from millrace_broker.groups.consumer.member import NOTHING
from millrace_broker.groups.group import Committer, Join, JoinProtocol, JoinResult, Leaving
from millrace_broker.groups.records import CommittedOffset, OffsetKey
from millrace_support.shard_of_groups import Broker, Ticket, classic_pair, indexes, subscription


def test_an_empty_classic_group_becomes_a_consumer_group_with_its_offsets():
    broker = Broker()
    key = OffsetKey("g", "a", 0)
    member_id = broker.join().result.member_id
    broker.sync(member_id, 1)
    broker.shard("g").commit([(key, CommittedOffset(5))], lambda error: None)
    membership.leave(broker, "g", [Leaving(member_id)])
    assert isinstance(broker.group, ClassicGroup)
    assert broker.heartbeat("m1", 0).result.member_epoch == 1
    for one in (broker, broker.restarted()):
        assert isinstance(one.group, ConsumerGroup)
        assert one.offsets.get(key).offset == 5


def test_an_empty_consumer_group_becomes_a_classic_group_with_its_offsets():
    broker = Broker()
    key = OffsetKey("g", "a", 0)
    broker.heartbeat("m1", 0)
    broker.shard("g").commit([(key, CommittedOffset(5))], lambda error: None)
    broker.heartbeat("m1", -1)
    joined = broker.join().result
    assert (joined.error, joined.generation) == (ErrorCode.NONE, 1)
    broker.sync(joined.member_id, 1)
    for one in (broker, broker.restarted()):
        assert isinstance(one.group, ClassicGroup)
        assert one.offsets.get(key).offset == 5


def test_a_classic_group_is_upgraded_and_downgraded_while_its_members_go_on():
    broker = Broker()
    first, second = classic_pair(broker)

    # A member with the new protocol joins; it has to wait for what the classic ones give back.
    joined = broker.heartbeat("m", 0).result
    assert (joined.member_epoch, joined.assignment) == (3, NOTHING)
    assert isinstance(broker.group, ConsumerGroup)
    target = indexes(broker.group.state.targets["m"])
    assert len(target) == 1

    # The classic ones learn by their heartbeats that they have to join again. An eager one owns nothing then.
    assert {broker.beat(one, 2) for one in (first, second)} == {ErrorCode.REBALANCE_IN_PROGRESS}
    rejoined = broker.join(first).result
    assert (rejoined.error, rejoined.generation, rejoined.leader, rejoined.members) == (ErrorCode.NONE, 3, "", ())
    broker.join(second, timeout_ms=8000)
    for one in (first, second):
        synced = broker.sync(one, 3).result
        assert synced.error is ErrorCode.NONE
        assert sorted(read_assignment(synced.assignment)[0].get("a", [])) == indexes(broker.group.state.targets[one])
        assert broker.beat(one, 3) is ErrorCode.NONE
    assert indexes(broker.heartbeat("m", 3).result.assignment) == target
    assert broker.group.state_name == "Stable"
    again = broker.restarted()
    assert again.beat(first, 3) is ErrorCode.NONE

    # The last member with the new protocol leaves: a classic group again, which rebalances.
    assert again.heartbeat("m", -1).result.member_epoch == -1
    assert isinstance(again.group, ClassicGroup)
    assert (again.group.state_name, len(again.group.members)) == ("PreparingRebalance", 2)
    assert again.beat(first, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    ticket = again.join(first)
    again.join(second, timeout_ms=8000)
    assert ticket.result.generation == 4
    assert isinstance(again.restarted().group, ClassicGroup)


def test_a_cooperative_classic_member_keeps_what_it_owns():
    broker = Broker()
    broker.heartbeat("m", 0)
    kept = broker.join(owned=(), protocol="cooperative-sticky").result
    assert broker.sync(kept.member_id, kept.generation).result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    member = broker.group.state.members[kept.member_id]
    assert member.metadata.classic.protocols[0].name == "cooperative-sticky"
    everything = broker.group.state.members["m"].current.assigned
    broker.heartbeat("m", 1)
    broker.heartbeat("m", 1, owned=broker.group.state.targets["m"] & everything)
    assert broker.beat(kept.member_id, kept.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    again = broker.join(kept.member_id, protocol="cooperative-sticky").result
    assert len(broker.group.state.members[kept.member_id].current.assigned) == 2
    assert again.protocol_name == "cooperative-sticky"


def test_a_classic_member_that_does_not_rejoin_in_time_is_put_out():
    broker = Broker()
    first, second = classic_pair(broker)
    broker.heartbeat("m", 0)
    broker.beat(first, 2)
    broker.beat(first, 2)
    broker.run_out(800)
    assert set(broker.group.state.members) == {second, "m"}


def test_a_classic_member_that_does_not_sync_in_time_is_put_out():
    broker = Broker()
    broker.heartbeat("m", 0)
    member_id = broker.join().result.member_id
    broker.run_out(800)
    assert set(broker.group.state.members) == {"m"}
    assert broker.beat(member_id, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_members_session_is_its_own():
    broker = Broker()
    broker.heartbeat("m", 0)
    joined = broker.join().result
    broker.sync(joined.member_id, joined.generation)
    broker.run_out(7000)
    assert set(broker.group.state.members) == {"m"}


def test_a_classic_member_leaves():
    broker = Broker()
    broker.heartbeat("m", 0)
    joined = broker.join().result
    errors = membership.leave(broker, "g", [Leaving(joined.member_id), Leaving("m"), Leaving("nobody")])
    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert set(broker.group.state.members) == {"m"}


def test_a_classic_member_of_another_generation_or_protocol():
    broker = Broker()
    broker.heartbeat("m", 0)
    joined = broker.join().result
    assert broker.beat(joined.member_id, 77) is ErrorCode.ILLEGAL_GENERATION
    assert broker.sync(joined.member_id, 77).result.error is ErrorCode.ILLEGAL_GENERATION
    assert broker.beat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.join(protocol="mine").result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert broker.group.check_commit(Committer(joined.member_id, None, 77, 8)) is ErrorCode.ILLEGAL_GENERATION
    assert broker.group.check_commit(Committer(joined.member_id, None, joined.generation, 8)) is ErrorCode.NONE


def test_those_who_wait_in_a_classic_rebalance_are_sent_back_when_it_is_upgraded():
    broker = Broker()
    first, second = classic_pair(broker)
    waits = broker.join(first)
    assert waits.result is None
    broker.heartbeat("m", 0)
    assert waits.result == JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, first)
    assert set(broker.group.state.members) == {first, second, "m"}


def test_an_upgrade_that_cant_be_stored_leaves_the_classic_group():
    broker = Broker()
    first, _ = classic_pair(broker)
    broker.log.fails = True
    assert broker.heartbeat("m", 0).result.error is ErrorCode.NOT_COORDINATOR
    assert isinstance(broker.group, ClassicGroup)
    assert broker.beat(first, 2) is ErrorCode.NONE


def test_the_last_static_member_comes_back_with_the_classic_protocol():
    broker = Broker()
    broker.heartbeat("m", 0, instance_id="i1")
    joined = broker.join().result
    broker.heartbeat("m", 1, instance_id="i1", owned=frozenset())
    other = broker.join(joined.member_id).result
    broker.sync(other.member_id, 2)
    broker.heartbeat("m", -2, instance_id="i1")
    again = broker.join(instance_id="i1").result
    assert (again.error, again.generation) == (ErrorCode.NONE, 2)
    assert isinstance(broker.group, ClassicGroup)
    assert broker.group.state_name == "Stable"
    shares = [
        read_assignment(broker.sync(one, 2).result.assignment)[0]["a"] for one in (again.member_id, other.member_id)
    ]
    assert sorted(index for share in shares for index in share) == [0, 1, 2, 3]
    assert isinstance(broker.restarted().group, ClassicGroup)


def test_a_member_id_that_cant_be_kept():
    broker = Broker()
    broker.heartbeat("m", 0)
    assert broker.join("x" * 32_768).result.error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\xff\xff\xff\xfe", b"\0\1\0\0\0\1\0\1a"])
def test_a_subscription_that_cant_be_read(data):
    broker = Broker()
    broker.heartbeat("m", 0)
    ticket = Ticket()
    join = Join(
        ticket, "", None, "c", "/h", 8, 7000, "consumer", (JoinProtocol("range", data),), "fresh", False, False
    )  # fmt: skip
    membership.join(broker, "g", join)
    assert ticket.result.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert set(broker.group.state.members) == {"m"}
    assert subscription_version(data) == 0


def test_those_who_wait_in_line_when_a_group_is_downgraded_ask_again():
    broker = Broker()
    first, _ = classic_pair(broker)
    broker.heartbeat("m", 0)
    broker.log.follows = False
    leaves, waits, joins = broker.heartbeat("m", -1), broker.heartbeat("m2", 0), broker.join(first)
    broker.log.catch_up()
    assert leaves.result.member_epoch == -1
    assert isinstance(broker.group, ClassicGroup)
    assert waits.result.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert joins.result.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(broker.log.batches) == broker.log.high_watermark


def test_an_upgrade_that_is_not_allowed():
    broker = Broker(**{"group.consumer.migration.policy": "downgrade"})
    first, _ = classic_pair(broker)
    refused = broker.heartbeat("m", 0).result
    assert (refused.error, refused.message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "classic group g can't become a consumer group: group.consumer.migration.policy does not allow it",
    )
    assert broker.beat(first, 2) is ErrorCode.NONE


def test_a_group_with_an_assignor_of_its_own_is_not_upgraded():
    broker = Broker()
    member_id = broker.join(user_data=b"sticky").result.member_id
    broker.sync(member_id, 1, {member_id: write_assignment({"a": [0]}, 3)[:-4] + b"\0\0\0\4mine"})
    refused = broker.heartbeat("m", 0).result
    assert refused.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert "an assignor of their own" in refused.message


def test_a_downgrade_that_is_not_allowed():
    broker = Broker(**{"group.consumer.migration.policy": "upgrade"})
    classic_pair(broker)
    broker.heartbeat("m", 0)
    broker.heartbeat("m", -1)
    assert isinstance(broker.group, ConsumerGroup)
    assert len(broker.group.state.members) == 2


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_every_version_of_the_embedded_protocol(version):
    data = subscription((1, 2), version) if version != 2 else subscription((1, 2), 1)[2:]
    if version == 2:
        data = struct.pack(">h", 2) + data + struct.pack(">i", 5)
    read = read_subscription(data)
    assert read.topic_names == {"a"}
    assert read.owned == ({"a": [1, 2]} if version else {})
    assert read_assignment(write_assignment({"a": [3]}, version)) == ({"a": [3]}, None)
