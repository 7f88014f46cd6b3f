"""The rules for topics as pure functions: their names, partition counts, and assignments of replicas that are given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from millrace.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidTopicError,
    PolicyViolationError,
)
from millrace_broker.cluster.metadata_image import TopicInfo
from millrace_broker.cluster.replica_assignment import Racks, Replicas, check_replication_factor, continued_assignment

MAX_NAME_LENGTH = 249
MAX_PARTITIONS = 100_000
MAX_NEW_PARTITIONS = 10_000  # of one request, as in Kafka with KRaft
LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str, existing: Iterable[str] = ()) -> None:
    """Raises InvalidTopicError unless the name keeps to Kafka's rules.

    A name has 1 to 249 of [a-zA-Z0-9._-] and is not `.` or `..`; names that differ only in `.` and `_` collide.
    """
    if not name:
        raise InvalidTopicError("Topic name is invalid: the empty string is not allowed, it is illegal")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicError(
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}, "
            "it is illegal"
        )
    if name in (".", ".."):
        raise InvalidTopicError(f"Topic name is invalid: '{name}' is not allowed, it is illegal")
    if not LEGAL_NAME.fullmatch(name):
        raise InvalidTopicError(
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-', it is illegal"
        )
    flat = name.replace(".", "_")
    for other in existing:
        if other != name and other.replace(".", "_") == flat:
            raise InvalidTopicError(
                f"Topic '{name}' collides with existing topics: {other}; '.' and '_' count as the same"
            )


def check_assignment(assignments: Mapping[int, Sequence[int]], brokers: Sequence[int]) -> tuple[Replicas, ...]:
    """Returns a manual assignment as replicas per partition.

    Raises InvalidReplicaAssignmentError unless it covers the partitions 0…n-1 and names distinct live brokers.
    """
    check_partition_count(len(assignments))
    if set(assignments) != set(range(len(assignments))):
        raise InvalidReplicaAssignmentError(f"partitions {sorted(assignments)} are not a consecutive 0-based sequence")
    for index, replicas in assignments.items():
        fault = _fault_of(replicas, brokers)
        if fault is not None:
            raise InvalidReplicaAssignmentError(f"{fault}, for partition {index} on {list(replicas)}")
        check_replication_factor(len(replicas), len(brokers))
    return tuple(tuple(assignments[index]) for index in range(len(assignments)))


def _fault_of(replicas: Sequence[int], brokers: Sequence[int]) -> str | None:
    unknown = sorted(set(replicas) - set(brokers))
    if unknown:
        return (
            f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}. The manual partition assignment "
            f"includes broker {unknown[0]}, but no such broker is registered. Live are {sorted(brokers)}"
        )
    if not replicas:
        return "an empty replica list"
    return "a duplicate, a broker is named more than once" if len(set(replicas)) != len(replicas) else None


def added_replicas(
    topic: TopicInfo, count: int, assignments: Sequence[Sequence[int]] | None, racks: Racks
) -> tuple[Replicas, ...]:
    """Returns the replicas of the partitions that extend a topic to `count`; `racks` has the live brokers.

    They are the given ones, or else continue the round that the topic's first partition began. Raises
    InvalidPartitionsError or InvalidReplicaAssignmentError.
    """
    before = len(topic.partitions)
    if count <= before:
        has = (
            f"already has {before} partitions"
            if count == before
            else f"currently has {before} partitions, which is higher than the requested {count}"
        )
        raise InvalidPartitionsError(
            f"Topic {has}. The topic {topic.name} currently has {before} partition(s); {count} would not be an "
            "increase."
        )
    check_partition_count(count)
    factor = len(topic.partitions[0].replicas)
    if assignments is None:
        return continued_assignment(racks, topic.partitions[0].replicas, range(before, count))
    if len(assignments) != count - before:
        raise InvalidReplicaAssignmentError(
            f"Increasing the number of partitions by {count - before} but {len(assignments)} assignments provided."
        )
    replicas = check_assignment(dict(enumerate(assignments)), tuple(racks))
    if any(len(one) != factor for one in replicas):
        raise InvalidReplicaAssignmentError(f"topic {topic.name} has {factor} replicas of each partition")
    return replicas


def check_new_partitions(count: int) -> None:
    """Raises PolicyViolationError where one request asks for more partitions than a broker makes at once."""
    if count > MAX_NEW_PARTITIONS:
        raise PolicyViolationError(
            f"excessively large number of partitions per request: {count} new partitions, of {MAX_NEW_PARTITIONS}"
        )


def check_partition_count(count: int) -> None:
    """Raises InvalidPartitionsError unless the count is from 1 up to the limit."""
    if count < 1:
        raise InvalidPartitionsError(f"{count} partitions: the number of partitions must be larger than 0")
    if count > MAX_PARTITIONS:
        raise InvalidPartitionsError(f"{count} partitions: {MAX_PARTITIONS} of one topic are allowed")
