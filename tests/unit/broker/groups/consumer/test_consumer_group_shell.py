"""Consumer groups in their shard: stored before answered, one change at a time, timed out, loaded, migrated."""

import struct
from types import SimpleNamespace
from uuid import UUID

import pytest

from millrace.errors import ErrorCode, StorageError
from millrace_broker.cluster.view import BrokerInfo, ClusterView, PartitionInfo, TopicInfo
from millrace_broker.groups import membership
from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.consumer.consumer_group import ConsumerGroup
from millrace_broker.groups.consumer.consumer_groups import ConsumerGroups
from millrace_broker.groups.consumer.embedded_protocol import (
    read_assignment,
    read_subscription,
    subscription_version,
    write_assignment,
)
from millrace_broker.groups.consumer.events import Heartbeat, Refusal
from millrace_broker.groups.consumer.member import NOTHING
from millrace_broker.groups.events import Join, JoinProtocol, JoinResult, Leaving, Sync
from millrace_broker.groups.group import Committer
from millrace_broker.groups.records import CommittedOffset, OffsetKey
from millrace_broker.groups.replay import REPLAYERS
from millrace_broker.groups.shard import Shard
from millrace_broker.metrics import GroupCounts
from millrace_broker.properties.group_config import ConsumerGroupConfig, GroupConfig
from millrace_broker.storage import LogConfig, TopicPartition
from millrace_support.clock import ManualClock

TOPIC = UUID(int=7)


class Ticket:
    """Who waits for an answer."""

    result = None

    def done(self):
        return self.result is not None

    def set_result(self, result):
        self.result = result


class Log:
    """A partition of the offsets topic, whose in-sync replicas follow when the test says so."""

    def __init__(self):
        self.batches = []
        self.log = SimpleNamespace(config=LogConfig())
        self.partitions = {TopicPartition("__consumer_offsets", 0): self}
        self.purgatory = self
        self.follows = True
        self.fails = False
        self.held = []
        self.high_watermark = 0
        self.leader_epoch = 0

    def partition(self, topic_partition):
        return self.partitions[topic_partition]

    def check_in_sync_replicas(self):
        """Raises nothing: enough replicas are in sync."""

    def append(self, topic_partition, batch):
        if self.fails:
            raise StorageError("the disk is gone")
        self.batches.append(batch)
        if self.follows:
            self.high_watermark = len(self.batches)
        return self, SimpleNamespace(last_offset=len(self.batches) - 1)

    def has_kept(self, offset, leader_epoch):
        return True

    def hold(self, waiting, keys, timeout_ms):
        self.held.append(waiting)

    def catch_up(self):
        self.high_watermark = len(self.batches)
        held, self.held = self.held, []
        for waiting in held:
            assert waiting.try_complete()

    def time_out(self):
        self.held.pop(0).expire()


class Broker:
    """One shard and what is around it; timers run out when the test says so."""

    def __init__(self, log=None, **properties):
        self.log = log or Log()
        self.config = GroupConfig(group_initial_rebalance_delay_ms=0)
        self.clock = ManualClock()
        self.timers = {}
        self.view = view_of(4)
        consumer = ConsumerGroupConfig.from_properties(properties)
        self.consumer_groups = ConsumerGroups(consumer, self.config, lambda: self.view)
        self._shard = Shard(
            0,
            self.config,
            self.log,
            clock=self.clock,
            call_later=self.call_later,
            replayers=REPLAYERS | self.consumer_groups.replayers,
            counts=GroupCounts(),
        )
        for batch in self.log.batches:
            self._shard.replay(batch)
        self._shard.loaded()

    def call_later(self, delay_s, callback):
        key = object()
        self.timers[key] = (round(delay_s * 1000), callback)
        return SimpleNamespace(cancel=lambda: self.timers.pop(key, None))

    def run_out(self, delay_ms):
        """Let the only timer of this delay run out."""
        ((key, callback),) = [(key, timer[1]) for key, timer in self.timers.items() if timer[0] == delay_ms]
        del self.timers[key]
        callback()

    def shard(self, group_id):
        return self._shard

    @property
    def group(self):
        return self._shard.groups.get("g")

    @property
    def offsets(self):
        return self._shard.offsets

    def heartbeat(self, member_id, epoch, **said):
        if epoch == 0:
            said = {"rebalance_timeout_ms": 900, "topic_names": frozenset(("a",)), "owned": NOTHING} | said
        ticket = Ticket()
        request = Heartbeat(group_id="g", member_id=member_id, member_epoch=epoch, **said)
        self.consumer_groups.heartbeat(self, request, ticket)
        return ticket

    def join(
        self, member_id="", *, instance_id=None, owned=(), protocol="range", version=3, user_data=None, timeout_ms=7000
    ):
        ticket = Ticket()
        metadata = subscription(owned, version, user_data)
        join = Join(
            ticket,
            member_id,
            instance_id,
            "client",
            "/host",
            800,
            timeout_ms,
            "consumer",
            (JoinProtocol(protocol, metadata),),
            f"fresh-{len(self.log.batches)}",
            False,
            True,
        )
        membership.join(self, "g", join)
        for key, (delay_ms, callback) in tuple(self.timers.items()):
            if not delay_ms and self.timers.pop(key, None):  # the initial delay of a classic group
                callback()
        return ticket

    def sync(self, member_id, generation, assignments=None):
        ticket = Ticket()
        membership.sync(self, "g", Sync(ticket, member_id, None, generation, "consumer", "range", assignments or {}))
        return ticket

    def beat(self, member_id, generation):
        return membership.heartbeat(self, "g", member_id, None, generation)

    def restarted(self):
        return Broker(self.log)


def view_of(count):
    partitions = tuple(PartitionInfo(index, 1, 0, (1,), (1,)) for index in range(count))
    return ClusterView("c", 1, {1: BrokerInfo(1, "h", 1)}, {"a": TopicInfo("a", TOPIC, partitions, {})})


def subscription(owned, version, user_data=None):
    data = struct.pack(">hih1s", version, 1, 1, b"a")
    data += struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data
    if version >= 1:
        data += struct.pack(">ih1si", 1, 1, b"a", len(owned)) + struct.pack(f">{len(owned)}i", *owned)
    return data + (struct.pack(">ih", 1, -1) if version >= 3 else b"")


def indexes(assignment):
    return sorted(one.partition for one in assignment)


def classic_pair(broker):
    """Two classic members, in sync: each with two partitions."""
    first = broker.join().result.member_id
    broker.sync(first, 1)
    second = broker.join(timeout_ms=8000)
    broker.join(first)
    generation = second.result.generation
    assert generation == 2
    plan = {first: write_assignment({"a": [0, 1]}, 3), second.result.member_id: write_assignment({"a": [2, 3]}, 3)}
    broker.sync(first, generation, plan)
    broker.sync(second.result.member_id, generation)
    assert broker.group.state_name == "Stable"
    return first, second.result.member_id


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
    assert broker.group is None


def test_a_group_comes_back_from_its_log():
    broker = Broker()
    broker.heartbeat("m1", 0, topic_regex="a.*", instance_id="i1", rack_id="r")
    broker.heartbeat("m2", 0, server_assignor="range")
    again = broker.restarted()
    for name in (
        "epoch",
        "metadata_hash",
        "target_epoch",
        "members",
        "targets",
        "patterns",
        "owners",
        "static_members",
    ):
        assert getattr(again.group.state, name) == getattr(broker.group.state, name)
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


def test_a_group_whose_first_member_is_on_the_way_is_not_deleted():
    broker = Broker()
    broker.log.follows = False
    broker.heartbeat("m", 0)
    assert broker.group.check_delete() is ErrorCode.NON_EMPTY_GROUP
    broker.log.catch_up()
    assert set(broker.group.state.members) == {"m"}


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
