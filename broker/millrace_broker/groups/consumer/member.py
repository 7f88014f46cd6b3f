"""A member of a consumer group, its subscription, and the partitions that belong to it.

    epoch 0     the member joins
    epoch > 0   the member has been told its assignment as of that group epoch
    epoch -1    the member leaves for good
    epoch -2    a static member is away and comes back under its instance id (KIP-848, KIP-345)

An assignment is a frozen set of (topic id, partition): what a member keeps, has to give back or is to get are
differences and intersections of such sets. A subscription by a regular expression has the topics whose whole name
matches (KIP-848, "Subscribing with a regular expression").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from millrace_broker.cluster.metadata_image import TopicIdPartition
from millrace_broker.patterns import Pattern, compiled

KEPT_PATTERNS = 128


def any_topic(name: str) -> bool:  # noqa: ARG001
    """Returns True: without an authorizer a member may describe every topic."""
    return True


def check_pattern(pattern: str) -> None:
    """Raises InvalidRegularExpressionError where the pattern can't be read or is too large."""
    _compiled(pattern)


def matching(pattern: str, topic_names: Iterable[str]) -> frozenset[str]:
    """Returns the topics whose whole name matches a regular expression in RE2's syntax."""
    found = _compiled(pattern)
    return frozenset(name for name in topic_names if found.fullmatch(name))


@lru_cache(KEPT_PATTERNS)
def _compiled(pattern: str) -> Pattern:
    return compiled(pattern, "SubscribedTopicRegex")


JOINING_EPOCH = 0
LEAVING_EPOCH = -1
LEAVING_STATIC_EPOCH = -2


Assignment = frozenset[TopicIdPartition]
NOTHING: Assignment = frozenset()


class MemberState(IntEnum):
    """The state of a member's reconciliation; the numbers are those of the stored records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:  # noqa: ARG003
        return cls.UNKNOWN


class ClassicProtocol(NamedTuple):
    """One protocol that a classic member offers: an assignor's name, and the subscription as that assignor reads it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """Session timeout and protocols of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """The properties that a member has sent; -1 is a timeout that it did not give, "" or None no pattern."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """The partitions that a member was told to own, and those that it must still give back, with its member epoch."""

    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = NOTHING
    pending_revocation: Assignment = NOTHING

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Returns whether the member has reached the target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a consumer group."""

    member_id: str
    metadata: MemberMetadata = MemberMetadata()
    current: CurrentAssignment = CurrentAssignment()


def in_order(one: TopicIdPartition) -> tuple[int, int]:
    """Returns a partition's key for sorting; topic ids are compared as numbers, which is quicker."""
    return (one.topic_id.int, one.partition)


def by_topic(assignment: Iterable[TopicIdPartition]) -> dict[UUID, list[int]]:
    """Returns the partition numbers of each topic, both sorted."""
    topics = groupby(sorted(assignment, key=in_order), key=lambda one: one.topic_id)
    return {topic_id: [one.partition for one in partitions] for topic_id, partitions in topics}


def assignment_of(partitions: Mapping[UUID, Iterable[int]]) -> Assignment:
    """Returns the assignment with these partitions, given as numbers by topic id."""
    return frozenset(TopicIdPartition(topic_id, index) for topic_id, indexes in partitions.items() for index in indexes)
