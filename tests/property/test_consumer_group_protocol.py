"""The consumer group protocol under every interleaving of heartbeats, losses, time-outs, restarts and growth.

Clients here do what KIP-848 asks of one: give back, in their own time, what they are no longer told, take at once what
they are told besides, report what they own, send all again after an error, and join again when they are fenced.
Whatever is lost or late, no partition is ever with two of them; and once nothing is lost any more, all of it is with
someone, in equal shares.
"""

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millrace.errors import FencedMemberEpochError, UnknownMemberIdError
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.groups.consumer.change import Change, DecisionContext
from millrace_broker.groups.consumer.events import Heartbeat
from millrace_broker.groups.consumer.heartbeat import check_heartbeat, heartbeat, leave
from millrace_broker.groups.consumer.member import NOTHING
from millrace_broker.groups.consumer.records import GroupRecord, decode_key, decode_value, encode_key, encode_value
from millrace_broker.groups.consumer.state import GroupState
from millrace_broker.properties.coordinator_config import ConsumerGroupConfig

CONFIG = ConsumerGroupConfig()
NAMES = ("a", "b")
CLIENTS = 4


def image_of(counts):
    topics = {}
    for number, (name, count) in enumerate(sorted(counts.items())):
        partitions = tuple(PartitionInfo(index, 1, 0, (1,), (1,)) for index in range(count))
        topics[name] = TopicInfo(name, UUID(int=number + 1), partitions, {})
    return MetadataImage("cluster", 1, {1: BrokerInfo(1, "localhost", 9092)}, topics)


class Client:
    """One consumer."""

    def __init__(self, number):
        self.member_id = f"member-{number}"
        self.instance_id = f"instance-{number}" if number == 0 else None
        self.incarnation = 0
        self.topics = frozenset(NAMES)
        self.reset()

    def reset(self):
        self.epoch = 0
        self.owned = NOTHING
        self.told = NOTHING
        self.says_all = True
        self.joined = False

    def request(self):
        everything = {"rebalance_timeout_ms": 1000, "topic_names": self.topics, "owned": self.owned}
        return Heartbeat(
            group_id="g",
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            **(everything if self.says_all or self.epoch == 0 else {"owned": self.owned}),
        )

    def answered(self, answer):
        self.joined = True
        self.says_all = False
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.told = answer.assignment
        if self.owned <= self.told:  # noqa: PLR1730  # of sets
            self.owned = self.told

    def give_back(self):
        self.owned &= self.told


class Group(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.counts = {"a": 3, "b": 2}
        self.image = image_of(self.counts)
        self.state = GroupState("g")
        self.log = []
        self.clients = [Client(number) for number in range(CLIENTS)]

    def change(self, decide):
        change = Change(self.state, DecisionContext(CONFIG, self.image, 0))
        answer = decide(change)
        self.state = change.state
        self.log += [
            (encode_key(key), None if value is None else encode_value(key.kind, value)) for key, value in change.records
        ]
        return answer

    def send(self, client, *, answer_lost=False):
        request = client.request()
        check_heartbeat(request, CONFIG)
        try:
            answer = self.change(lambda change: heartbeat(change, request, client.member_id))
        except (FencedMemberEpochError, UnknownMemberIdError):
            if not answer_lost:
                # A fenced member gives up everything before it joins again.
                client.reset()
            return
        if answer_lost:
            client.says_all = True
        else:
            client.answered(answer)

    @rule(number=st.integers(0, CLIENTS - 1), answer_lost=st.booleans())
    def heartbeat_of(self, number, answer_lost):
        self.send(self.clients[number], answer_lost=answer_lost)

    @rule(number=st.integers(0, CLIENTS - 1))
    def client_gives_back(self, number):
        self.clients[number].give_back()

    @rule(number=st.integers(0, CLIENTS - 1))
    def client_leaves(self, number):
        client = self.clients[number]
        if client.member_id in self.state.members:
            request = Heartbeat(
                group_id="g", member_id=client.member_id, member_epoch=-1, instance_id=client.instance_id
            )
            self.change(lambda change: leave(change, request))
        client.reset()

    @rule()
    def static_client_restarts(self):
        client = self.clients[0]
        if client.member_id in self.state.members:
            request = Heartbeat(
                group_id="g", member_id=client.member_id, member_epoch=-2, instance_id=client.instance_id
            )
            self.change(lambda change: leave(change, request))
        client.reset()
        client.incarnation += 1
        client.member_id = f"member-0-{client.incarnation}"
        self.send(client)

    @rule(number=st.integers(0, CLIENTS - 1))
    def member_times_out(self, number):
        self.client_times_out(self.clients[number])

    def client_times_out(self, client):
        """The coordinator puts it out; the client has stopped by then, as its own session has ended too."""
        if client.member_id in self.state.members:
            self.change(lambda change: change.remove(client.member_id))
        client.owned = NOTHING
        client.told = NOTHING
        client.says_all = True

    @rule(number=st.integers(0, CLIENTS - 1), topics=st.frozensets(st.sampled_from(NAMES), min_size=1))
    def client_subscribes(self, number, topics):
        client = self.clients[number]
        client.topics = topics
        client.says_all = True

    @precondition(lambda self: sum(self.counts.values()) < 9)
    @rule(name=st.sampled_from(NAMES))
    def topic_grows(self, name):
        self.counts[name] += 1
        self.image = image_of(self.counts)

    @rule()
    def coordinator_restarts(self):
        """From the log, as compaction leaves it."""
        newest = {}
        for key, value in self.log:
            newest.pop(key, None)
            newest[key] = value
        self.log = list(newest.items())
        self.state = GroupState("g")
        for raw_key, raw_value in self.log:
            key = decode_key(raw_key)
            self.state.replay(GroupRecord(key, None if raw_value is None else decode_value(key.kind, raw_value)))

    @invariant()
    def nobody_shares_a_partition(self):
        owned = [one for client in self.clients for one in client.owned]
        assert len(owned) == len(set(owned))

    @invariant()
    def the_coordinator_gives_each_partition_to_one_member(self):
        held = [
            one
            for member in self.state.members.values()
            for one in member.current.assigned | member.current.pending_revocation
        ]
        assert len(held) == len(set(held))
        assert set(held) == set(self.state.owners)

    def teardown(self):
        """Nothing is lost any more: after a few rounds all are where the target wants them."""
        for _ in range(12):
            for client in self.clients:
                if client.epoch == 0 and client.member_id in self.state.members:
                    self.client_times_out(client)  # fenced until its former self has gone
                client.give_back()
                self.send(client)
        assert self.state.state_name == "Stable"
        assert {client.member_id for client in self.clients} == self.state.members.keys()
        for client in self.clients:
            assert client.owned == self.state.targets[client.member_id]
        everything = {
            (topic.topic_id, index) for topic in self.image.topics.values() for index in range(len(topic.partitions))
        }
        read = {name for client in self.clients for name in client.topics}
        expected = {one for one in everything if one[0] in {self.image.topics[name].topic_id for name in read}}
        assert {one for client in self.clients for one in client.owned} == expected
        if len({client.topics for client in self.clients}) == 1:
            shares = sorted(len(client.owned) for client in self.clients)
            assert shares[-1] - shares[0] <= 1


TestConsumerGroupProtocol = Group.TestCase
TestConsumerGroupProtocol.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
