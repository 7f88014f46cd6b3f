"""What a classic group is and what it allows; `classic_group` handles the events.

A stored group comes back as Stable, or as Empty where it had no members. A rebalance that was under way is lost, and
the members learn of it from the response to their next request.
"""

from __future__ import annotations

from typing import Self

from millrace.errors import ErrorCode
from millrace.records.batch import NO_TIMESTAMP
from millrace_broker.groups.classic.description import DescribedMember, Description
from millrace_broker.groups.classic.members import CONSUMER_PROTOCOL_TYPE, Member, Members
from millrace_broker.groups.classic.state import State
from millrace_broker.groups.events import JoinProtocol
from millrace_broker.groups.group import Committer
from millrace_broker.groups.records import CommittedOffset, Record, StoredGroup, StoredMember, group_record
from millrace_broker.properties.group_config import GroupConfig

CLASSIC = "classic"


class GroupFacts:
    """State, generation, protocol and members."""

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
        """Returns a group that its record describes."""
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
        """The number of members, without those that have only been given an id."""
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        """Whether the group is in the state Empty."""
        return self.state is State.EMPTY

    def check_commit(self, committer: Committer) -> ErrorCode:
        """Checks that the group is empty, or that the client is a member, in its generation, and no sync is under way.

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
        """Allows a fetch of offsets unless the group is dead."""
        return ErrorCode.GROUP_ID_NOT_FOUND if self.state is State.DEAD else ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        """Checks that the group is empty."""
        if self.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if self.state is State.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def check_delete_offsets(self) -> ErrorCode:
        """Checks that the group is empty or its members are consumers, whose subscriptions the broker can read."""
        error = self.check_delete()
        is_consumer = self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return ErrorCode.NONE if error is ErrorCode.NON_EMPTY_GROUP and is_consumer else error

    def is_subscribed(self, topic: str) -> bool:
        """Returns whether a consumer subscribes to the topic; true for all where the subscriptions can't be read."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def expiry_base_ms(self, offset: CommittedOffset) -> int | None:
        """Returns when retention begins (KIP-211).

        It begins when the group becomes empty; for simple consumers and topics without a subscription, with the commit.
        """
        if self.protocol_type is None:
            return offset.commit_timestamp_ms
        if self.state is State.EMPTY:
            return offset.commit_timestamp_ms if self.state_timestamp_ms == NO_TIMESTAMP else self.state_timestamp_ms
        if self.state is State.STABLE and self.subscribed_topics is not None:
            return offset.commit_timestamp_ms
        return None

    def tombstones(self) -> list[Record]:
        """Returns the record that removes the group."""
        return [group_record(self.group_id, None)]

    def describe(self) -> Description:
        """Returns what DescribeGroups shows: protocol and metadata of a stable group only, and the last assignments."""
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
        """Returns the record of the group, with new assignments where these are not part of it yet."""
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
        """Reads the subscribed topics from the metadata of members that are consumers."""
        is_consumer = self.protocol_type == CONSUMER_PROTOCOL_TYPE
        self.subscribed_topics = self.members.subscribed_topics(self.protocol_name) if is_consumer else None

    def move(self, state: State, now_ms: int) -> None:
        """Moves to a state."""
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms
