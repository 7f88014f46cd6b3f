"""What a classic group is and what it allows; `classic_group` handles the events.

A stored group comes back as Stable, or as Empty where it had no members. A rebalance that was under way is lost, and
the members learn of it from the response to their next request.

The members of a classic group: who leads, which ones the group waits for, which protocol they vote for.

members        those that have joined, in the order in which they came
pending join   those that have been given an id and are to join with it (KIP-394)
pending sync   those that have been told of the generation and have not asked for their assignment yet
static         group instance id -> member id (KIP-345)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

from millrace.errors import CorruptRecordError, ErrorCode
from millrace.records.batch import NO_TIMESTAMP
from millrace.wire.decoder import Decoder
from millrace_broker.groups.classic.state import State
from millrace_broker.groups.group import Committer, Join, JoinProtocol, Ticket
from millrace_broker.groups.records import CommittedOffset, Record, StoredGroup, StoredMember, group_record
from millrace_broker.properties.coordinator_config import GroupConfig

CONSUMER_PROTOCOL_TYPE = "consumer"


@dataclass(slots=True)
class Member:
    """A member of a classic group; tickets are the futures of its JoinGroup and SyncGroup that wait, else None."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[JoinProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None

    @classmethod
    def of(cls, join: Join, member_id: str) -> Member:
        """Returns a new member from its JoinGroup, to which the response is still to come."""
        return cls(
            member_id=member_id,
            instance_id=join.instance_id,
            client_id=join.client_id,
            client_host=join.client_host,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            session_timeout_ms=join.session_timeout_ms,
            protocols=join.protocols,
            is_new=True,
        )

    @property
    def is_joining(self) -> bool:
        """Whether the member has sent a JoinGroup that is not answered yet."""
        return self.join_ticket is not None

    @property
    def needs_no_heartbeat(self) -> bool:
        """Whether the member's request waits, so that it can send no heartbeat; false for a new member."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Returns the member's metadata for a protocol, b"" where the member does not support that."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    def take(self, join: Join) -> None:
        """Replaces timeouts and protocols by those of a new JoinGroup."""
        self.protocols = join.protocols
        self.rebalance_timeout_ms = join.rebalance_timeout_ms
        self.session_timeout_ms = join.session_timeout_ms


class Members:
    """All members of one classic group; `pending_join` are ids given out, with which no member has joined yet."""

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self.leader: str | None = None
        self.pending_join: set[str] = set()
        self.pending_sync: set[str] = set()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._by_id.values()))

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def get(self, member_id: str) -> Member | None:
        """Returns the member with this id, or None."""
        return self._by_id.get(member_id)

    def static_member_id(self, instance_id: str | None) -> str | None:
        """Returns the id of the member with a group instance id; None without one."""
        return None if instance_id is None else self._static.get(instance_id)

    @property
    def leader_first(self) -> list[Member]:
        """All members, the leader first: no other member may learn of a generation before its leader does."""
        return sorted(self._by_id.values(), key=lambda member: member.member_id != self.leader)

    @property
    def joining(self) -> int:
        """The number of members whose JoinGroup waits for the rebalance to complete."""
        return sum(member.is_joining for member in self._by_id.values())

    @property
    def all_joined(self) -> bool:
        """Whether every member has sent JoinGroup, and every client that was given a member id has joined with it."""
        return not self.pending_join and all(member.is_joining for member in self._by_id.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout that a member asks for."""
        return max((member.rebalance_timeout_ms for member in self._by_id.values()), default=0)

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Returns NONE for a member's id, FENCED_INSTANCE_ID if another has the instance id, else UNKNOWN_MEMBER_ID."""
        if instance_id is not None:
            holder = self._static.get(instance_id)
            if holder is not None and holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self._by_id else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member) -> None:
        """Adds a member, which leads if it is the first."""
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Removes a member, or an id given out; if the leader goes, the member that joined first leads."""
        member = self._by_id.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self._by_id), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)

    def rename(self, old_id: str, new_id: str) -> None:
        """Gives a static member that came back a new id; it keeps its place."""
        member = self._by_id.pop(old_id)
        member.member_id = new_id
        self._by_id[new_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)

    def elect_joined_leader(self) -> bool:
        """Makes a member whose JoinGroup waits the leader, preferably the present one; returns whether there is one."""
        if self.leader is not None and self._by_id[self.leader].is_joining:
            return True
        joined = next((member for member in self._by_id.values() if member.is_joining), None)
        if joined is not None:
            self.leader = joined.member_id
        return joined is not None

    def support(self, protocols: tuple[JoinProtocol, ...]) -> bool:
        """Returns whether all members support at least one of these protocols."""
        if not self._by_id:
            return bool(protocols)
        common = self._common_protocols()
        return any(protocol.name in common for protocol in protocols)

    def select_protocol(self) -> str | None:
        """Returns the protocol with the most votes: each member votes for its first one that all members support."""
        common = self._common_protocols()
        votes = Counter(
            next((protocol.name for protocol in member.protocols if protocol.name in common), None)
            for member in self._by_id.values()
        )
        return votes.most_common(1)[0][0]

    def subscribed_topics(self, protocol_name: str | None) -> frozenset[str] | None:
        """Returns all topics in the members' subscriptions; None where one of these can't be read."""
        topics: set[str] = set()
        try:
            for member in self._by_id.values():
                topics.update(_subscribed_topics(member.metadata(protocol_name)))
        except CorruptRecordError:
            return None
        return frozenset(topics)

    def _common_protocols(self) -> set[str]:
        counts = Counter(name for member in self._by_id.values() for name in {one.name for one in member.protocols})
        return {name for name, count in counts.items() if count == len(self._by_id)}


def _subscribed_topics(metadata: bytes) -> list[str]:
    """Returns the topics of a ConsumerProtocolSubscription, whose versions all begin: version i16, topics [string]."""
    decoder = Decoder(metadata)
    decoder.int16()
    return [decoder.string() for _ in range(decoder.array_length())]


class DescribedMember(NamedTuple):
    """A member as DescribeGroups shows it; `metadata` and `assignment` are bytes that only clients read."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Description(NamedTuple):
    """A classic group as DescribeGroups shows it."""

    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[DescribedMember, ...]


CLASSIC = "classic"


class GroupFacts:
    """State, generation, protocol and members of a classic group, and checks that change none of them."""

    type = CLASSIC

    def __init__(self, group_id: str, config: GroupConfig, now_ms: int) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = Members()
        self.state_timestamp_ms = now_ms
        self.subscribed_topics: frozenset[str] | None = None
        self.config = config
        self.previous_state = State.EMPTY

    @classmethod
    def of(cls, group_id: str, metadata: StoredGroup, config: GroupConfig, now_ms: int) -> Self:
        """Returns the group that a stored record describes."""
        group = cls(group_id, config, now_ms)
        group.generation = metadata.generation
        group.protocol_type = metadata.protocol_type or None
        group.protocol_name = metadata.protocol_name
        group.state_timestamp_ms = metadata.state_timestamp_ms
        for kept in metadata.members:
            protocols = (JoinProtocol(metadata.protocol_name or "", kept.subscription),)
            group.members.add(
                Member(
                    member_id=kept.member_id,
                    instance_id=kept.instance_id,
                    client_id=kept.client_id,
                    client_host=kept.client_host,
                    rebalance_timeout_ms=kept.rebalance_timeout_ms,
                    session_timeout_ms=kept.session_timeout_ms,
                    protocols=protocols,
                    assignment=kept.assignment,
                )
            )
        if len(group.members):
            group.state = State.STABLE
            if metadata.leader in group.members:
                group.members.leader = metadata.leader
        group.update_subscribed_topics()
        return group

    @property
    def state_name(self) -> str:
        """The state as ListGroups shows it."""
        return str(self.state)

    @property
    def member_count(self) -> int:
        """The number of members, without ids given out with which no member has joined yet."""
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        """Whether the group is in the state Empty."""
        return self.state is State.EMPTY

    def check_commit(self, committer: Committer) -> ErrorCode:
        """Returns NONE for an empty group, or a member of its generation while no sync is awaited; else the error.

        In a transaction, a commit without a member comes from an old client, and the state does not matter.
        """
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if committer.generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        if committer.generation < 0 and not committer.member_id and committer.instance_id is None:
            return ErrorCode.NONE if committer.is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self.members.check(committer.member_id, committer.instance_id)
        if error:
            return error
        if committer.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        is_syncing = self.state is State.COMPLETING_REBALANCE and not committer.is_transactional
        return ErrorCode.REBALANCE_IN_PROGRESS if is_syncing else ErrorCode.NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:  # noqa: ARG002  # KIP-848's only
        """Returns the error of a dead group, whose offsets can't be fetched; else NONE."""
        return ErrorCode.GROUP_ID_NOT_FOUND if self.state is State.DEAD else ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        """Returns NONE if the group is empty and so may be deleted, else the error."""
        if self.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if self.state is State.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def check_delete_offsets(self) -> ErrorCode:
        """Returns NONE if the group is empty or of type `consumer`, whose topics are known; else the error."""
        error = self.check_delete()
        is_consumer = self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return ErrorCode.NONE if error is ErrorCode.NON_EMPTY_GROUP and is_consumer else error

    def is_subscribed(self, topic: str) -> bool:
        """Returns whether a member subscribes to the topic; true for all topics where a subscription can't be read."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def expiry_base_ms(self, offset: CommittedOffset) -> int | None:
        """Returns the time from which an offset's retention counts (KIP-211), None while it must not expire.

        It is when the group became empty; for simple consumers and topics without a subscription, the time of the
        commit.
        """
        if self.protocol_type is None:
            return offset.commit_timestamp_ms
        if self.state is State.EMPTY:
            return offset.commit_timestamp_ms if self.state_timestamp_ms == NO_TIMESTAMP else self.state_timestamp_ms
        if self.state is State.STABLE and self.subscribed_topics is not None:
            return offset.commit_timestamp_ms
        return None

    def tombstones(self) -> list[Record]:
        """Returns the tombstone by which the group is removed from the log."""
        return [group_record(self.group_id, None)]

    def describe(self) -> Description:
        """Returns what DescribeGroups shows; protocol and metadata only of a stable group."""
        is_stable = self.state is State.STABLE
        members = tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(self.protocol_name) if is_stable else b"",
                member.assignment,
            )
            for member in self.members
        )
        protocol_name = (self.protocol_name or "") if is_stable else ""
        return Description(self.state_name, self.protocol_type or "", protocol_name, members)

    def record(self, assignments: dict[str, bytes] | None = None) -> Record:
        """Returns the group's record, with these assignments by member id, or those that the members have."""
        members = tuple(
            StoredMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata(self.protocol_name),
                assignment=member.assignment if assignments is None else assignments[member.member_id],
            )
            for member in self.members
        )
        metadata = StoredGroup(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader=self.members.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=members,
        )
        return group_record(self.group_id, metadata)

    def update_subscribed_topics(self) -> None:
        """Reads the subscribed topics from the metadata of consumers, for the selected protocol."""
        is_consumer = self.protocol_type == CONSUMER_PROTOCOL_TYPE
        self.subscribed_topics = self.members.subscribed_topics(self.protocol_name) if is_consumer else None

    def move(self, state: State, now_ms: int) -> None:
        """Sets the state, and the time at which the group has come into it."""
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms
