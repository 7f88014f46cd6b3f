"""All that is stored of a consumer group: the sum of its records, in whichever order compaction has left them.

    Empty        there are no members
    Assigning    the group epoch is newer than that of the target assignment
    Reconciling  a member has not reached its target yet
    Stable       all members have reached their targets

Owners of partitions and holders of instance ids are not stored but derived here, to be looked up quickly. What the
group allows, as commits and its deletion, follows from its stored state alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from millrace.errors import ErrorCode, UnknownMemberIdError
from millrace_broker.cluster.metadata_image import MetadataImage, TopicIdPartition
from millrace_broker.groups.consumer.member import (
    NOTHING,
    Assignment,
    CurrentAssignment,
    Member,
    MemberMetadata,
)
from millrace_broker.groups.consumer.records import (
    GroupEpoch,
    GroupRecord,
    Key,
    Kind,
    ResolvedRegularExpression,
    TargetEpoch,
    encoded,
)
from millrace_broker.groups.group import Committer
from millrace_broker.groups.records import CommittedOffset, Record
from millrace_broker.properties.coordinator_config import CONSUMER

FIRST_COMMIT_VERSION_WITH_EPOCH = 9


class ConsumerGroupFacts:
    """The stored state of a consumer group, checks of it, and whether a change of it is being stored."""

    type = CONSUMER
    protocol_type = CONSUMER

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState(group_id)
        self.is_storing = False

    @property
    def state_name(self) -> str:
        """The state as ListGroups shows it."""
        return self.state.state_name

    @property
    def member_count(self) -> int:
        """The number of members."""
        return len(self.state.members)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, and no change is being stored that may bring one."""
        return not self.state.members and not self.is_storing

    def check_commit(self, committer: Committer) -> ErrorCode:
        """Returns NONE for a member at its epoch, by a version that has epochs, or an empty group; else the error."""
        if committer.generation < 0 and self.is_empty:
            return ErrorCode.NONE
        member = self.state.members.get(committer.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_classic = member.metadata.classic is not None
        knows_epochs = committer.is_transactional or committer.version >= FIRST_COMMIT_VERSION_WITH_EPOCH
        if not is_classic and not knows_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        if committer.generation == member.current.epoch:
            return ErrorCode.NONE
        has_generations = is_classic or committer.is_transactional
        return ErrorCode.ILLEGAL_GENERATION if has_generations else ErrorCode.STALE_MEMBER_EPOCH

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Returns NONE if the client is a member at its epoch, or gives no member id; or the error."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.state.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.current.epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.metadata.classic is None else ErrorCode.ILLEGAL_GENERATION

    def check_delete(self) -> ErrorCode:
        """Returns NONE if the group is empty and so may be deleted, else the error."""
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def check_delete_offsets(self) -> ErrorCode:
        """Returns NONE: offsets of topics with a subscription are refused one by one."""
        return ErrorCode.NONE

    def is_subscribed(self, topic: str) -> bool:
        """Returns whether a member subscribes to the topic, by name or by pattern."""
        return topic in self.state.topic_names()

    def expiry_base_ms(self, offset: CommittedOffset) -> int | None:
        """Returns the time of the commit, from which an offset's retention counts."""
        return offset.commit_timestamp_ms

    def tombstones(self) -> list[Record]:
        """Returns the tombstones by which the group is removed from the log."""
        return [encoded(record) for record in self.state.tombstones()]


V = TypeVar("V")


@dataclass(slots=True)
class GroupState:
    """The state of a consumer group. Only `replay` changes it, but for `compared_…` and `patterns_resolved_…`."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    patterns: dict[str, ResolvedRegularExpression] = field(default_factory=dict)
    has_partitions_record: bool = False
    owners: dict[TopicIdPartition, str] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    compared_with: MetadataImage | None = None
    compared_topics: frozenset[str] = frozenset()
    patterns_resolved_in: MetadataImage | None = None
    patterns_resolved_ms: int = 0

    def copy(self) -> GroupState:
        """Returns a copy, whose changes by `replay` leave this state as it is."""
        return replace(
            self,
            members=self.members.copy(),
            targets=self.targets.copy(),
            patterns=self.patterns.copy(),
            owners=self.owners.copy(),
            static_members=self.static_members.copy(),
        )

    def replay(self, record: GroupRecord) -> None:
        """Applies one record; one without a value deletes what its key names."""
        key, value = record
        match key.kind:
            case Kind.GROUP:
                self.epoch, self.metadata_hash = cast("GroupEpoch", value or GroupEpoch(0))
            case Kind.PARTITIONS:
                self.has_partitions_record = value is not None
            case Kind.MEMBER:
                self._set_metadata(key.name, cast("MemberMetadata | None", value))
            case Kind.TARGET_EPOCH:
                self.target_epoch = cast("TargetEpoch", value or TargetEpoch(0)).epoch
            case Kind.TARGET:
                _set(self.targets, key.name, cast("Assignment | None", value))
            case Kind.CURRENT:
                self._set_current(key.name, cast("CurrentAssignment | None", value))
            case Kind.REGULAR_EXPRESSION:
                _set(self.patterns, key.name, cast("ResolvedRegularExpression | None", value))

    @property
    def state_name(self) -> str:
        """The state as ListGroups and ConsumerGroupDescribe show it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.current.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def member(self, member_id: str) -> Member:
        """Returns the member with this id; raises UnknownMemberIdError where there is none."""
        try:
            return self.members[member_id]
        except KeyError:
            raise UnknownMemberIdError(f"{member_id} is not a member of group {self.group_id}") from None

    def static_member(self, instance_id: str | None) -> Member | None:
        """Returns the member with an instance id; None without one."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def topic_names(self) -> frozenset[str]:
        """Returns every topic that a member subscribes to, by name or by pattern."""
        return frozenset().union(*(self.topics_of(member.metadata) for member in self.members.values()))

    def topics_of(self, metadata: MemberMetadata) -> frozenset[str]:
        """Returns the topics that one member subscribes to, by name or by pattern."""
        resolved = self.patterns.get(metadata.topic_regex or "")
        return metadata.topic_names | resolved.topic_names if resolved else metadata.topic_names

    def preferred_assignor(self, default: str) -> str:
        """Returns the server-side assignor that most members ask for, or the default."""
        asked = Counter(member.metadata.server_assignor for member in self.members.values())
        del asked[None]
        return min(asked, key=lambda name: (-asked[name], str(name)), default=None) or default

    def is_taken(self, one: TopicIdPartition) -> bool:
        """Returns whether a member owns a partition, or must still give it back."""
        return one in self.owners

    def waits_for_others(self, member: Member) -> bool:
        """Returns whether another member still has a partition that this one is to get."""
        missing = self.targets.get(member.member_id, NOTHING) - member.current.assigned
        return any(self.owners.get(one, member.member_id) != member.member_id for one in missing)

    def tombstones(self) -> list[GroupRecord]:
        """Returns the tombstones by which the group is removed from the log, in Kafka's order."""
        named = [
            *((Kind.CURRENT, member_id) for member_id in self.members),
            *((Kind.TARGET, member_id) for member_id in self.targets),
            (Kind.TARGET_EPOCH, ""),
            *((Kind.MEMBER, member_id) for member_id in self.members),
            *((Kind.REGULAR_EXPRESSION, pattern) for pattern in self.patterns),
            (Kind.PARTITIONS, ""),
            (Kind.GROUP, ""),
        ]
        return [GroupRecord(Key(kind, self.group_id, name), None) for kind, name in named]

    def _set_metadata(self, member_id: str, metadata: MemberMetadata | None) -> None:
        before = self.members.get(member_id)
        if before is not None and self.static_members.get(before.metadata.instance_id or "") == member_id:
            del self.static_members[before.metadata.instance_id or ""]
        if metadata is None:
            self._release(self.members.pop(member_id, None))
            return
        self.members[member_id] = replace(before or Member(member_id), metadata=metadata)
        if metadata.instance_id:
            self.static_members[metadata.instance_id] = member_id

    def _set_current(self, member_id: str, current: CurrentAssignment | None) -> None:
        before = self.members.get(member_id)
        self._release(before)
        if current is None and before is None:
            return
        self.members[member_id] = replace(before or Member(member_id), current=current or CurrentAssignment())
        if current is not None:
            for one in current.assigned | current.pending_revocation:
                self.owners[one] = member_id

    def _release(self, member: Member | None) -> None:
        # In a log that is half compacted, a partition may belong to one member by an older record and to another by
        # a newer one.
        if member is not None:
            for one in member.current.assigned | member.current.pending_revocation:
                if self.owners.get(one) == member.member_id:
                    del self.owners[one]


def _set(table: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
