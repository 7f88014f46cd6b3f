"""A consumer group of members of both protocols: any order of requests, lost answers, time-outs and restarts.

Classic members do what their clients do: an eager one gives up everything before it joins again, a cooperative one
says what it owns and gives back what it is no longer assigned; both fetch their assignment by SyncGroup.
"""

import struct
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millrace.errors import ErrorCode
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.groups.consumer.classic_members import read_assignment
from millrace_broker.groups.consumer.consumer_groups import ConsumerGroup, GroupContext
from millrace_broker.groups.consumer.events import Heartbeat, Refusal, Timer, TimerKind
from millrace_broker.groups.consumer.member import NOTHING
from millrace_broker.groups.consumer.records import GroupRecord, decode_key, decode_value
from millrace_broker.groups.group import Join, JoinProtocol, Respond, StoreRecords, Sync
from millrace_broker.properties.coordinator_config import ConsumerGroupConfig, GroupConfig

PARTITIONS = 5
TOPIC = TopicInfo("a", UUID(int=1), tuple(PartitionInfo(index, 1, 0, (1,), (1,)) for index in range(PARTITIONS)), {})
VIEW = MetadataImage("c", 1, {1: BrokerInfo(1, "h", 1)}, {"a": TOPIC})
HOME = GroupContext(ConsumerGroupConfig(group_consumer_migration_policy="upgrade"), GroupConfig(), lambda: VIEW)


class Coordinator:
    """A group and its log; nothing waits."""

    def __init__(self):
        self.log = []
        self.group = ConsumerGroup("g", HOME)

    def perform(self, effects):
        """Do what the group asks; the last response."""
        answer = None
        for effect in effects:
            if isinstance(effect, Respond):
                answer = effect.result
            elif isinstance(effect, StoreRecords):
                self.log += effect.records
                answer = self.perform(self.group.stored(effect.outcome, ErrorCode.NONE, 0)) or answer
        return answer

    def restart(self):
        newest = {}
        for key, value in self.log:
            newest.pop(key, None)
            newest[key] = value
        self.log = list(newest.items())
        self.group = ConsumerGroup("g", HOME)
        for raw_key, raw_value in self.log:
            key = decode_key(raw_key)
            value = None if raw_value is None else decode_value(key.kind, raw_value)
            self.group.state.replay(GroupRecord(key, value))
        self.group.loaded(0)


class NewMember:
    """A consumer with the new protocol."""

    def __init__(self, number):
        self.member_id = f"new-{number}"
        self.stop()

    def stop(self):
        self.epoch, self.owned, self.told, self.says_all = 0, frozenset(), frozenset(), True

    def step(self, coordinator, *, answer_lost):
        said = {"rebalance_timeout_ms": 9, "topic_names": frozenset("a")} if self.says_all else {}
        owned = frozenset((TOPIC.topic_id, index) for index in self.owned) if self.epoch else NOTHING
        request = Heartbeat(group_id="g", member_id=self.member_id, member_epoch=self.epoch, owned=owned, **said)
        answer = coordinator.perform(coordinator.group.consumer_heartbeat(request, None, 0))
        if answer_lost:
            self.says_all = True
        elif isinstance(answer, Refusal):
            self.stop()
        else:
            self.epoch, self.says_all = answer.member_epoch, False
            if answer.assignment is not None:
                self.told = frozenset(one.partition for one in answer.assignment)
            if self.owned <= self.told:  # noqa: PLR1730  # of sets
                self.owned = self.told

    def give_back(self):
        self.owned &= self.told


class ClassicMember:
    """A consumer with the classic protocol, eager or cooperative."""

    def __init__(self, number, *, eager):
        self.number, self.eager, self.lives = number, eager, 0
        self.stop()

    def stop(self):
        self.lives += 1
        self.member_id, self.generation, self.owned = "", -1, frozenset()
        self.next = self.join

    def step(self, coordinator, *, answer_lost):
        self.next(coordinator, answer_lost=answer_lost)

    def join(self, coordinator, *, answer_lost):
        if self.eager:
            self.owned = frozenset()
        join = Join(
            None, self.member_id, None, "c", "/h", 9, 9, "consumer", (JoinProtocol("p", subscription(self.owned)),),
            f"classic-{self.number}-{self.lives}", False, False,
        )  # fmt: skip
        result = coordinator.perform(coordinator.group.join(join, 0))
        if answer_lost:
            # Without an id of its own it will join as somebody else; its former self times out.
            self.lives += not self.member_id
        elif result.error:
            self.stop()
        else:
            self.member_id, self.generation = result.member_id, result.generation
            self.next = self.sync

    def sync(self, coordinator, *, answer_lost):
        sync = Sync(None, self.member_id, None, self.generation, "consumer", "p", {})
        result = coordinator.perform(coordinator.group.sync(sync, 0))
        if answer_lost:
            return
        if result.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.next = self.join
        elif result.error:
            self.stop()
        else:
            self.owned = frozenset(read_assignment(result.assignment)[0].get("a", ()))
            self.next = self.beat

    def beat(self, coordinator, *, answer_lost):
        error, effects = coordinator.group.heartbeat(self.member_id, None, self.generation)
        coordinator.perform(effects)
        if answer_lost or not error:
            return
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.next = self.join
        else:
            self.stop()

    def give_back(self):
        """It does so when it joins."""


def subscription(owned):
    data = struct.pack(">hih1siih1si", 3, 1, 1, b"a", -1, 1, 1, b"a", len(owned))
    return data + struct.pack(f">{len(owned)}i", *sorted(owned)) + struct.pack(">ih", -1, -1)


class MixedGroup(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.coordinator = Coordinator()
        self.clients = [
            NewMember(0),
            NewMember(1),
            ClassicMember(2, eager=True),
            ClassicMember(3, eager=False),
        ]
        self.clients[0].step(self.coordinator, answer_lost=False)  # it stays: the group is a consumer group throughout

    def put_out(self, member_id):
        coordinator = self.coordinator
        coordinator.perform(coordinator.group.timer_expired(Timer(TimerKind.SESSION, member_id), 0))

    @rule(number=st.integers(0, 3), answer_lost=st.booleans())
    def client_asks(self, number, answer_lost):
        self.clients[number].step(self.coordinator, answer_lost=answer_lost)

    @rule(number=st.integers(0, 1))
    def client_gives_back(self, number):
        self.clients[number].give_back()

    @rule(number=st.integers(1, 3))
    def client_times_out(self, number):
        self.put_out(self.clients[number].member_id)
        self.clients[number].stop()

    @rule()
    def coordinator_restarts(self):
        self.coordinator.restart()

    @invariant()
    def nobody_shares_a_partition(self):
        owned = [index for client in self.clients for index in client.owned]
        assert len(owned) == len(set(owned))

    def teardown(self):
        """Nothing is lost any more, and those who went without a word have timed out."""
        for _ in range(30):
            known = {client.member_id for client in self.clients if not isinstance(client, NewMember) or client.epoch}
            for member_id in self.coordinator.group.state.members.keys() - known:
                self.put_out(member_id)
            for client in self.clients:
                client.give_back()
                client.step(self.coordinator, answer_lost=False)
        assert self.coordinator.group.state_name == "Stable"
        shares = sorted(len(client.owned) for client in self.clients)
        assert shares == [1, 1, 1, 2]
        assert frozenset().union(*(client.owned for client in self.clients)) == set(range(PARTITIONS))


TestConsumerGroupWithClassicMembers = MixedGroup.TestCase
TestConsumerGroupWithClassicMembers.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
