"""One change of a consumer group: the records that make it, and the state of the group with them.

    member's metadata → patterns → group epoch → target of each member → target epoch → the member's assignment

The records of a change are written as one batch. Until they are, the group is as it was: a change works on a copy.

Another hash of the group's topics means another rebalance (KIP-1101). These are the hashes of Apache Kafka 4.1, so a
group goes on without a rebalance when its offsets topic moves from one broker to the other:

    topic   XXH3-64 of: 0 u8, topic id (high i64, low i64), name, partition count i32,
            and per partition: index i32, then each rack of its replicas in order: length i32, rack
    group   XXH3-64 of its topics' hashes, i64 each, in the order of their names; 0 for no topic
            numbers are little-endian; a string is UTF-16-LE with its count of units behind it, i32

A member moves from its current assignment to its target by the first of these rules that applies (KIP-848):

    it is STABLE at the target's epoch, or still reports     it stays as it is
    what it was told to give back
    it has partitions that the target does not give it       UNREVOKED_PARTITIONS: it stays at its epoch and is told
                                                             what it keeps
    others have some of its target, or must give them back   UNRELEASED_PARTITIONS: it is at the target's epoch and is
                                                             told what is free, more by later heartbeats
    else                                                     STABLE: it is at the target's epoch and told all of it

A member is told a partition only when no other member has it or must give it back. So no partition ever has two
owners, whichever requests and responses are lost or late.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import xxhash

from millrace.errors import FencedMemberEpochError
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, TopicIdPartition, TopicInfo
from millrace_broker.groups.consumer.assignors import ASSIGNORS, GroupSpec, MemberSpec
from millrace_broker.groups.consumer.member import (
    NOTHING,
    Assignment,
    CurrentAssignment,
    Member,
    MemberMetadata,
    MemberState,
    any_topic,
    matching,
)
from millrace_broker.groups.consumer.records import (
    GroupEpoch,
    GroupRecord,
    Key,
    Kind,
    ResolvedRegularExpression,
    TargetEpoch,
    Value,
)
from millrace_broker.groups.consumer.state import GroupState
from millrace_broker.properties.coordinator_config import ConsumerGroupConfig

FORMAT = b"\0"
HALF = struct.Struct("<Q")
INT32 = struct.Struct("<i")
NO_TOPICS = 0


def group_hash(topic_names: Iterable[str], image: MetadataImage) -> int:
    """Returns the hash (XXH3, signed 64 bits) of the named topics, without those that don't exist; 0 for none."""
    topics = [image.topics[name] for name in sorted(set(topic_names) & image.topics.keys())]
    if not topics:
        return NO_TOPICS
    return _signed(xxhash.xxh3_64_intdigest(b"".join(HALF.pack(topic_hash(topic, image.brokers)) for topic in topics)))


def topic_hash(topic: TopicInfo, brokers: Mapping[int, BrokerInfo]) -> int:
    """Returns the hash (XXH3, unsigned 64 bits) of a topic's id, name, partitions and their racks."""
    high, low = divmod(topic.topic_id.int, 1 << 64)
    parts = [FORMAT, HALF.pack(high), HALF.pack(low), _string(topic.name), INT32.pack(len(topic.partitions))]
    for partition in topic.partitions:
        racks = sorted(brokers[broker].rack or "" for broker in partition.replicas if broker in brokers)
        parts.append(INT32.pack(partition.index))
        parts += [INT32.pack(_units(rack)) + _string(rack) for rack in racks if rack]
    return xxhash.xxh3_64_intdigest(b"".join(parts))


def _string(text: str) -> bytes:
    return text.encode("utf-16-le") + INT32.pack(_units(text))


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def new_targets(state: GroupState, topics: Mapping[str, TopicInfo], assignor: str) -> dict[str, Assignment]:
    """Returns the target assignment of each member that the assignor makes, from the subscribed topics that exist."""
    read = [topics[name] for name in state.topic_names() & topics.keys()]
    group = GroupSpec(
        members={member_id: _spec(state, member, topics) for member_id, member in state.members.items()},
        partition_counts={topic.topic_id: len(topic.partitions) for topic in read},
    )
    return ASSIGNORS[assignor](group)


def _spec(state: GroupState, member: Member, topics: Mapping[str, TopicInfo]) -> MemberSpec:
    names = state.topics_of(member.metadata) & topics.keys()
    return MemberSpec(
        instance_id=member.metadata.instance_id,
        topic_ids=frozenset(topics[name].topic_id for name in names),
        current=state.targets.get(member.member_id, NOTHING),
    )


IsTaken = Callable[[TopicIdPartition], bool]


def reconcile(
    current: CurrentAssignment, target_epoch: int, target: Assignment, is_taken: IsTaken, owned: Assignment | None
) -> CurrentAssignment:
    """Returns a member's next current assignment on its way to the target; `current` itself where it can't move on.

    Args:
        current: the current assignment.
        target_epoch: the epoch of the target assignment.
        target: the member's part of the target assignment.
        is_taken: returns whether a member has a partition, or must still give it back.
        owned: what the member reports to own; None where it does not say.

    Raises:
        FencedMemberEpochError: the stored state is one that this version does not know, and the member owns partitions.
    """
    match current.state:
        case MemberState.STABLE if current.epoch == target_epoch:
            return current
        case MemberState.UNREVOKED_PARTITIONS if _still_owns(owned, current.pending_revocation):
            return current
        case MemberState.UNREVOKED_PARTITIONS:
            epoch = current.epoch + 1
        case MemberState.UNKNOWN if owned != NOTHING:
            raise FencedMemberEpochError(
                "the member's stored state is unknown to this broker: it has to give up all and join again"
            )
        case MemberState.UNKNOWN:
            epoch = target_epoch
        case _:
            epoch = current.epoch
    to_revoke = current.assigned - target
    if to_revoke and _still_owns(owned, to_revoke):
        kept = current.assigned & target
        return CurrentAssignment(epoch, current.epoch, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke)
    return _assigned(current, target_epoch, target, is_taken)


def _still_owns(owned: Assignment | None, revoked: Assignment) -> bool:
    return owned is None or bool(owned & revoked)


def _assigned(
    current: CurrentAssignment, target_epoch: int, target: Assignment, is_taken: IsTaken
) -> CurrentAssignment:
    kept = current.assigned & target
    free = frozenset(one for one in target - kept if one in current.pending_revocation or not is_taken(one))
    assigned = kept | free
    state = MemberState.STABLE if assigned == target else MemberState.UNRELEASED_PARTITIONS
    return CurrentAssignment(target_epoch, current.epoch, state, assigned, NOTHING)


PATTERN_REFRESH_MIN_INTERVAL_MS = 10_000
NO_VERSION = 0


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """The data besides the group by which a decision is made: its configuration, the cluster and the time.

    `may_describe` says which topics the member may describe whose heartbeat is decided. It is None for other events:
    then no pattern is matched with topics.
    """

    config: ConsumerGroupConfig
    image: MetadataImage
    now_ms: int
    may_describe: Callable[[str], bool] | None = any_topic


class Change:
    """A change of a group before it is stored: the `records` to append, and the `state` that they lead to."""

    def __init__(self, state: GroupState, context: DecisionContext) -> None:
        self.state = state
        self.records: list[GroupRecord] = []
        self.context = context

    def put(self, kind: Kind, name: str, value: Value | None) -> None:
        """Adds a record with this value, or a tombstone for None, and applies it to the state."""
        if not self.records:  # most heartbeats change nothing
            self.state = self.state.copy()
        record = GroupRecord(Key(kind, self.state.group_id, name), value)
        self.records.append(record)
        self.state.replay(record)

    def set_metadata(self, member: Member, metadata: MemberMetadata) -> bool:
        """Stores what a member says about itself; returns whether its subscription has changed."""
        if member.member_id in self.state.members and member.metadata == metadata:
            return False
        self.put(Kind.MEMBER, member.member_id, metadata)
        before = member.metadata
        self._resolve_new_patterns()
        return (before.topic_names, before.topic_regex or "") != (metadata.topic_names, metadata.topic_regex or "")

    def rebalance_if(self, subscription_changed: bool) -> None:
        """Begins a group epoch, with a target assignment, if the subscription or its topics have changed."""
        self._refresh_patterns()
        metadata_hash = self._metadata_hash(subscription_changed=subscription_changed)
        is_new = not self.state.epoch  # members are never told epoch 0, which is that of joining
        if is_new or subscription_changed or metadata_hash != self.state.metadata_hash:
            self._next_epoch(metadata_hash)
        self._update_target()

    def reconcile(self, member_id: str, owned: Assignment | None) -> None:
        """Moves a member as far towards its target assignment as other members' partitions allow."""
        state = self.state
        before = state.members[member_id].current
        target = state.targets.get(member_id, NOTHING)
        after = reconcile(before, state.target_epoch, target, state.is_taken, owned)
        if after != before:
            self.put(Kind.CURRENT, member_id, after)

    def remove(self, *member_ids: str) -> None:
        """Removes members and begins a group epoch; another member's next heartbeat makes its target assignment."""
        for member_id in member_ids:
            self._delete(member_id)
        self._drop_unused_patterns()
        self._next_epoch(self._metadata_hash(subscription_changed=True))

    def replace_static(self, old: Member, new_id: str) -> Member:
        """Gives the place and the partitions of a static member to its new id, under which it came back."""
        target = self.state.targets.get(old.member_id, NOTHING)
        self._delete(old.member_id)
        self.put(Kind.MEMBER, new_id, old.metadata)
        self.put(Kind.TARGET, new_id, target)
        self.put(Kind.CURRENT, new_id, replace(old.current, epoch=0, previous_epoch=0))
        return self.state.members[new_id]

    def _metadata_hash(self, *, subscription_changed: bool) -> int:
        """Returns the hash of the group's topics (`group_hash`), computed only where it may have changed."""
        state, image = self.state, self.context.image
        if state.compared_with is image and not subscription_changed:
            return state.metadata_hash
        topics = state.topic_names()
        if state.compared_with is image and topics == state.compared_topics:
            return state.metadata_hash
        metadata_hash = group_hash(topics, image)
        if metadata_hash == state.metadata_hash:
            state.compared_with, state.compared_topics = image, topics
        return metadata_hash

    def _next_epoch(self, metadata_hash: int) -> None:
        if self.state.has_partitions_record:  # the hash has taken its place (KIP-1101)
            self.put(Kind.PARTITIONS, "", None)
        self.put(Kind.GROUP, "", GroupEpoch(self.state.epoch + 1, metadata_hash))
        self.state.compared_with = self.context.image
        self.state.compared_topics = self.state.topic_names()

    def _delete(self, member_id: str) -> None:
        for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
            self.put(kind, member_id, None)

    def _update_target(self) -> None:
        if self.state.epoch <= self.state.target_epoch:
            return
        assignor = self.state.preferred_assignor(self.context.config.default_assignor)
        for member_id, target in new_targets(self.state, self.context.image.topics, assignor).items():
            if target != self.state.targets.get(member_id):
                self.put(Kind.TARGET, member_id, target)
        self.put(Kind.TARGET_EPOCH, "", TargetEpoch(self.state.epoch))

    def _resolve_new_patterns(self) -> None:
        if self.context.may_describe is not None:
            for pattern in sorted(self._patterns_in_use() - self.state.patterns.keys()):
                self._resolve(pattern)
        self._drop_unused_patterns()

    def _refresh_patterns(self) -> None:
        if not self._patterns_are_due():
            return
        for pattern, resolved in sorted(self.state.patterns.items()):
            if self._topics_of(pattern) != resolved.topic_names:
                self._resolve(pattern)
        self.state.patterns_resolved_in = self.context.image
        self.state.patterns_resolved_ms = self.context.now_ms

    def _patterns_are_due(self) -> bool:
        """Returns whether the members' topic patterns are to be matched with the topics again.

        They are when the cluster has changed, but ten seconds after the last time at the earliest; otherwise when the
        configured interval has passed.
        """
        state, context = self.state, self.context
        if not state.patterns or context.may_describe is None:
            return False
        newest_ms = max(resolved.timestamp_ms for resolved in state.patterns.values())
        passed_ms = context.now_ms - max(newest_ms, state.patterns_resolved_ms)
        if state.patterns_resolved_in is context.image:
            return passed_ms >= context.config.group_consumer_regex_refresh_interval_ms
        return passed_ms >= PATTERN_REFRESH_MIN_INTERVAL_MS

    def _resolve(self, pattern: str) -> None:
        resolved = ResolvedRegularExpression(self._topics_of(pattern), NO_VERSION, self.context.now_ms)
        self.put(Kind.REGULAR_EXPRESSION, pattern, resolved)
        self.state.compared_with = None

    def _topics_of(self, pattern: str) -> frozenset[str]:
        """Returns the topics that match a pattern and that the member whose heartbeat is decided may describe."""
        may_describe = self.context.may_describe
        assert may_describe is not None, "there is a heartbeat"
        return frozenset(filter(may_describe, matching(pattern, self.context.image.topics)))

    def _drop_unused_patterns(self) -> None:
        for pattern in sorted(self.state.patterns.keys() - self._patterns_in_use()):
            self.put(Kind.REGULAR_EXPRESSION, pattern, None)

    def _patterns_in_use(self) -> frozenset[str]:
        patterns = {member.metadata.topic_regex for member in self.state.members.values()}
        return frozenset(pattern for pattern in patterns if pattern)
