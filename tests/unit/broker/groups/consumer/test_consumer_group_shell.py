"""Consumer groups in their shard: stored before answered, one change at a time, timed out, loaded."""

import pytest

from millrace.errors import ErrorCode
from millrace_broker.groups.consumer.events import Refusal
from millrace_broker.groups.group import Committer
from millrace_support.shard_of_groups import Broker, indexes

STATE = (
    "epoch", "metadata_hash", "target_epoch", "members", "targets", "patterns", "owners", "static_members",
)  # fmt: skip


def _assert_same_state(broker):
    """Returns a coordinator that reads the log, whose group has to be the broker's."""
    again = broker.restarted()
    for name in STATE:
        assert getattr(again.group.state, name) == getattr(broker.group.state, name), name
    return again


def test_an_answer_waits_for_its_records():
    broker = Broker()
    broker.log.follows = False
    first, second = broker.heartbeat("m1", 0), broker.heartbeat("m2", 0)
    assert (first.result, second.result, len(broker.log.batches)) == (None, None, 1)
    broker.log.catch_up()
    assert (first.result.member_epoch, second.result, len(broker.log.batches)) == (1, None, 2)
    broker.log.catch_up()
    assert second.result.member_epoch == 2


def test_a_group_that_cant_be_stored_is_none():
    broker = Broker()
    broker.log.fails = True
    assert broker.heartbeat("m1", 0).result.error is ErrorCode.NOT_COORDINATOR
    assert broker.group is None
    broker.log.fails = False
    assert broker.heartbeat("m1", 0).result.member_epoch == 1


def test_a_change_that_cant_be_stored_did_not_happen():
    broker = Broker()
    broker.heartbeat("m1", 0)
    broker.log.fails = True
    assert isinstance(broker.heartbeat("m2", 0).result, Refusal)
    assert (broker.group.state.epoch, set(broker.group.state.members)) == (1, {"m1"})


def test_replicas_that_take_too_long():
    broker = Broker()
    broker.log.follows = False
    first, second = broker.heartbeat("m1", 0), broker.heartbeat("m2", 0)
    broker.log.time_out()
    assert first.result.error is second.result.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    third = broker.heartbeat("m3", 0)
    broker.log.time_out()
    assert third.result.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.log.catch_up()
    assert (broker.group.state.epoch, set(broker.group.state.members)) == (1, {"m1"})
    _assert_same_state(broker)


def test_a_removal_that_takes_too_long_happens_nevertheless():
    """The log has tombstones for the member, so a coordinator that kept it would differ from one that reads the log."""
    broker = Broker()
    broker.heartbeat("m1", 0)
    broker.heartbeat("m2", 0)
    broker.log.follows = False
    broker.heartbeat("m1", -1)
    broker.log.time_out()
    waiting = broker.heartbeat("m1", 1)
    broker.log.follows = True
    broker.log.catch_up()
    assert waiting.result.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert set(broker.group.state.members) == {"m2"}
    _assert_same_state(broker)


def test_a_member_whose_heartbeat_waits_is_not_silent():
    broker = Broker()
    broker.heartbeat("m1", 0)
    broker.log.follows = False
    broker.heartbeat("m2", 0)
    ((before, _),) = broker.timers.items()
    broker.heartbeat("m1", 1)
    ((after, _),) = broker.timers.items()
    assert after != before


@pytest.mark.parametrize("timeout_ms", [-2, 0, 900])
def test_a_removal_that_cant_be_stored_is_tried_again_after_a_pause(timeout_ms):
    broker = Broker()
    broker.heartbeat("m1", 0, rebalance_timeout_ms=timeout_ms)
    broker.heartbeat("m2", 0)
    broker.log.fails = True
    broker.heartbeat("m1", 1)
    broker.log.fails = False
    broker.heartbeat("m1", 1)
    broker.log.fails = True
    broker.run_out(timeout_ms)
    broker.run_out(500)
    assert set(broker.group.state.members) == {"m1", "m2"}
    broker.log.fails = False
    broker.run_out(500)
    assert set(broker.group.state.members) == {"m2"}


def test_a_group_comes_back_from_its_log():
    broker = Broker()
    broker.heartbeat("m1", 0, topic_regex="a.*", instance_id="i1", rack_id="r")
    broker.heartbeat("m2", 0, server_assignor="range")
    again = _assert_same_state(broker)
    assert sorted(delay_ms for delay_ms, _ in again.timers.values()) == [45_000, 45_000]
    assert again.heartbeat("m2", 2).result.member_epoch == 2


def test_a_silent_member_is_put_out():
    broker = Broker(**{"group.consumer.session.timeout.ms": "46000"})
    broker.heartbeat("m1", 0)
    broker.run_out(46_000)
    assert (broker.group.is_empty, broker.group.state_name, broker.timers) == (True, "Empty", {})
    refused = broker.heartbeat("m1", 1).result
    assert (refused.error, refused.message) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        "m1 is not a member of group g",
    )


def test_a_member_that_does_not_give_back_is_put_out():
    broker = Broker()
    broker.heartbeat("m1", 0)
    broker.heartbeat("m2", 0)
    broker.heartbeat("m1", 1)
    broker.run_out(900)
    assert set(broker.group.state.members) == {"m2"}
    assert indexes(broker.heartbeat("m2", 2).result.assignment) == [0, 1, 2, 3]


def test_a_member_that_gives_back_in_time_is_not():
    broker = Broker()
    everything = broker.heartbeat("m1", 0).result.assignment
    broker.heartbeat("m2", 0)
    kept = broker.heartbeat("m1", 1).result.assignment
    assert kept < everything
    broker.heartbeat("m1", 1, owned=kept)
    assert sorted(delay_ms for delay_ms, _ in broker.timers.values()) == [45_000, 45_000]


def test_timeouts_go_on_after_a_restart():
    broker = Broker()
    broker.heartbeat("m1", 0)
    broker.heartbeat("m2", 0)
    broker.heartbeat("m1", 1)
    again = broker.restarted()
    again.run_out(900)
    assert set(again.group.state.members) == {"m2"}


def test_offsets_of_members_and_of_others():
    broker = Broker()
    assert broker.heartbeat("m1", 0).result.member_epoch == 1
    check, fetch = broker.group.check_commit, broker.group.check_fetch
    assert check(Committer("m1", None, 1, 9)) is ErrorCode.NONE
    assert check(Committer("m1", None, 0, 9)) is ErrorCode.STALE_MEMBER_EPOCH
    assert check(Committer("m1", None, 1, 8)) is ErrorCode.UNSUPPORTED_VERSION
    assert check(Committer("m2", None, 1, 9)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check(Committer()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch(None, -1) is ErrorCode.NONE
    assert fetch("m1", 1) is ErrorCode.NONE
    assert fetch("m1", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch("m2", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.group.check_delete() is ErrorCode.NON_EMPTY_GROUP
    broker.heartbeat("m1", -1)
    assert broker.group.check_commit(Committer()) is ErrorCode.NONE
    assert broker.group.check_delete() is ErrorCode.NONE


def test_a_deleted_group_is_gone_from_the_log_too():
    broker = Broker()
    broker.heartbeat("m1", 0)
    broker.heartbeat("m1", -1)
    broker.shard("g").forget([], broker.group, lambda error: None)
    assert broker.group is None
    assert broker.restarted().group is None


def test_a_group_that_is_not_there():
    broker = Broker()
    for epoch in (1, -1):
        assert broker.heartbeat("m1", epoch).result.error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_protocol_that_is_not_served():
    broker = Broker(**{"group.coordinator.rebalance.protocols": "classic"})
    assert broker.heartbeat("m1", 0).result.error is ErrorCode.UNSUPPORTED_VERSION


def test_a_group_whose_first_member_is_on_the_way_is_not_deleted():
    broker = Broker()
    broker.log.follows = False
    broker.heartbeat("m", 0)
    assert broker.group.check_delete() is ErrorCode.NON_EMPTY_GROUP
    broker.log.catch_up()
    assert set(broker.group.state.members) == {"m"}
