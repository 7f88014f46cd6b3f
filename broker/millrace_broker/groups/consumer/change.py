"""One change of a consumer group: the records that make it, and the state of the group with them.

    member's metadata → patterns → group epoch → target of each member → target epoch → the member's assignment

The records of a change are written as one batch. Until they are, the group is as it was: a change works on a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from millrace_broker.cluster.view import ClusterView
from millrace_broker.groups.consumer.member import NOTHING, Assignment, Member, MemberMetadata
from millrace_broker.groups.consumer.metadata_hash import group_hash
from millrace_broker.groups.consumer.reconciliation import reconcile
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
from millrace_broker.groups.consumer.target import new_targets
from millrace_broker.groups.consumer.topic_pattern import any_topic, matching
from millrace_broker.properties.group_config import ConsumerGroupConfig

PATTERN_REFRESH_MIN_INTERVAL_MS = 10_000
NO_VERSION = 0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a change may know besides the group: its configuration, the cluster and the time.

    `may_describe` says which topics the member may describe whose heartbeat makes the change. It is None where no
    heartbeat makes the change: then no pattern is resolved.
    """

    config: ConsumerGroupConfig
    view: ClusterView
    now_ms: int
    may_describe: Callable[[str], bool] | None = any_topic


class Change:
    """A change in the making. `state` is the group with all `records` replayed."""

    def __init__(self, state: GroupState, surroundings: Surroundings) -> None:
        self.state = state
        self.records: list[GroupRecord] = []
        self.surroundings = surroundings

    def put(self, kind: Kind, name: str, value: Value | None) -> None:
        """Adds a record and replays it into the state."""
        if not self.records:  # most heartbeats change nothing
            self.state = self.state.copy()
        record = GroupRecord(Key(kind, self.state.group_id, name), value)
        self.records.append(record)
        self.state.replay(record)

    def set_metadata(self, member: Member, metadata: MemberMetadata) -> bool:
        """Takes what a member says about itself; returns whether its subscription has changed."""
        if member.member_id in self.state.members and member.metadata == metadata:
            return False
        self.put(Kind.MEMBER, member.member_id, metadata)
        before = member.metadata
        self._resolve_new_patterns()
        return (before.topic_names, before.topic_regex or "") != (metadata.topic_names, metadata.topic_regex or "")

    def rebalance_if(self, subscription_changed: bool) -> None:
        """Begins an epoch, with its target, where the subscription has changed, or the topics that it stands for."""
        self._refresh_patterns()
        metadata_hash = self._metadata_hash(subscription_changed=subscription_changed)
        is_new = not self.state.epoch  # members are never told epoch 0, which is that of joining
        if is_new or subscription_changed or metadata_hash != self.state.metadata_hash:
            self._next_epoch(metadata_hash)
        self._update_target()

    def reconcile(self, member_id: str, owned: Assignment | None) -> None:
        """Moves a member as far towards its target as it can go now."""
        state = self.state
        before = state.members[member_id].current
        target = state.targets.get(member_id, NOTHING)
        after = reconcile(before, state.target_epoch, target, state.is_taken, owned)
        if after != before:
            self.put(Kind.CURRENT, member_id, after)

    def remove(self, *member_ids: str) -> None:
        """Removes members and begins an epoch; its target is made with the next heartbeat of another member."""
        for member_id in member_ids:
            self._delete(member_id)
        self._drop_unused_patterns()
        self._next_epoch(self._metadata_hash(subscription_changed=True))

    def replace_static(self, old: Member, new_id: str) -> Member:
        """Gives a static member that has come back under another id the place and the partitions that it had."""
        target = self.state.targets.get(old.member_id, NOTHING)
        self._delete(old.member_id)
        self.put(Kind.MEMBER, new_id, old.metadata)
        self.put(Kind.TARGET, new_id, target)
        self.put(Kind.CURRENT, new_id, replace(old.current, epoch=0, previous_epoch=0))
        return self.state.members[new_id]

    def _metadata_hash(self, *, subscription_changed: bool) -> int:
        """Returns the hash of the group's topics; it is computed only where it may have changed."""
        state, view = self.state, self.surroundings.view
        if state.compared_with is view and not subscription_changed:
            return state.metadata_hash
        topics = state.topic_names()
        if state.compared_with is view and topics == state.compared_topics:
            return state.metadata_hash
        metadata_hash = group_hash(topics, view)
        if metadata_hash == state.metadata_hash:
            state.compared_with, state.compared_topics = view, topics
        return metadata_hash

    def _next_epoch(self, metadata_hash: int) -> None:
        if self.state.has_partitions_record:  # the hash has taken its place (KIP-1101)
            self.put(Kind.PARTITIONS, "", None)
        self.put(Kind.GROUP, "", GroupEpoch(self.state.epoch + 1, metadata_hash))
        self.state.compared_with = self.surroundings.view
        self.state.compared_topics = self.state.topic_names()

    def _delete(self, member_id: str) -> None:
        for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
            self.put(kind, member_id, None)

    def _update_target(self) -> None:
        if self.state.epoch <= self.state.target_epoch:
            return
        assignor = self.state.preferred_assignor(self.surroundings.config.default_assignor)
        for member_id, target in new_targets(self.state, self.surroundings.view.topics, assignor).items():
            if target != self.state.targets.get(member_id):
                self.put(Kind.TARGET, member_id, target)
        self.put(Kind.TARGET_EPOCH, "", TargetEpoch(self.state.epoch))

    def _resolve_new_patterns(self) -> None:
        if self.surroundings.may_describe is not None:
            for pattern in sorted(self._patterns_in_use() - self.state.patterns.keys()):
                self._resolve(pattern)
        self._drop_unused_patterns()

    def _refresh_patterns(self) -> None:
        if not self._patterns_are_due():
            return
        for pattern, resolved in sorted(self.state.patterns.items()):
            if self._topics_of(pattern) != resolved.topic_names:
                self._resolve(pattern)
        self.state.patterns_resolved_in = self.surroundings.view
        self.state.patterns_resolved_ms = self.surroundings.now_ms

    def _patterns_are_due(self) -> bool:
        """Returns whether patterns are to be matched again.

        They are when the cluster has changed, but ten seconds after the last time at the earliest; otherwise when the
        configured interval has passed.
        """
        state, surroundings = self.state, self.surroundings
        if not state.patterns or surroundings.may_describe is None:
            return False
        newest_ms = max(resolved.timestamp_ms for resolved in state.patterns.values())
        passed_ms = surroundings.now_ms - max(newest_ms, state.patterns_resolved_ms)
        if state.patterns_resolved_in is surroundings.view:
            return passed_ms >= surroundings.config.group_consumer_regex_refresh_interval_ms
        return passed_ms >= PATTERN_REFRESH_MIN_INTERVAL_MS

    def _resolve(self, pattern: str) -> None:
        resolved = ResolvedRegularExpression(self._topics_of(pattern), NO_VERSION, self.surroundings.now_ms)
        self.put(Kind.REGULAR_EXPRESSION, pattern, resolved)
        self.state.compared_with = None

    def _topics_of(self, pattern: str) -> frozenset[str]:
        """Returns the topics that a pattern stands for: those that the member which makes the change may describe."""
        may_describe = self.surroundings.may_describe
        assert may_describe is not None, "there is a heartbeat"
        return frozenset(filter(may_describe, matching(pattern, self.surroundings.view.topics)))

    def _drop_unused_patterns(self) -> None:
        for pattern in sorted(self.state.patterns.keys() - self._patterns_in_use()):
            self.put(Kind.REGULAR_EXPRESSION, pattern, None)

    def _patterns_in_use(self) -> frozenset[str]:
        patterns = {member.metadata.topic_regex for member in self.state.members.values()}
        return frozenset(pattern for pattern in patterns if pattern)
