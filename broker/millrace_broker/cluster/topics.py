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
from millrace_broker.cluster.replica_assignment import Racks, Replicas, check_replication_factor, continued_assignment
from millrace_broker.cluster.view import TopicInfo

MAX_NAME_LENGTH = 249
MAX_PARTITIONS = 100_000
MAX_NEW_PARTITIONS = 10_000  # of one request, as in Kafka with KRaft
LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str, existing: Iterable[str] = ()) -> None:
    """Raises InvalidTopicError unless the name keeps to Kafka's rules.

    A name has 1 to 249 of [a-zA-Z0-9._-] and is not `.` or `..`; names that differ only in `.` and `_` collide.
    """
    if not name:
        raise InvalidTopicError("topic name '' is invalid: an empty name is illegal")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicError(
            f"a topic name of {len(name)} characters is invalid: to be longer than {MAX_NAME_LENGTH} is illegal"
        )
    if name in (".", ".."):
        raise InvalidTopicError(f"topic name {name!r} is invalid: '.' and '..' are illegal, and not allowed")
    if not LEGAL_NAME.fullmatch(name):
        raise InvalidTopicError(
            f"topic name {name!r} is invalid: it has illegal characters; ASCII letters, digits, '.', '_' and '-' are "
            "allowed"
        )
    flat = name.replace(".", "_")
    for other in existing:
        if other != name and other.replace(".", "_") == flat:
            raise InvalidTopicError(
                f"topic {name} collides with existing topics: {other}; '.' and '_' count as the same"
            )


def check_assignment(assignments: Mapping[int, Sequence[int]], brokers: Sequence[int]) -> tuple[Replicas, ...]:
    """Returns a manual assignment as replicas per partition.

    InvalidReplicaAssignmentError unless it covers the partitions 0…n-1 and names distinct live brokers.
    """
    check_partition_count(len(assignments))
    if set(assignments) != set(range(len(assignments))):
        raise InvalidReplicaAssignmentError(f"partitions {sorted(assignments)} are not a consecutive 0-based sequence")
    for index, replicas in assignments.items():
        fault = _fault_of(replicas, brokers)
        if fault is not None:
            raise InvalidReplicaAssignmentError(f"partition {index} on {list(replicas)}: {fault}")
        check_replication_factor(len(replicas), len(brokers))
    return tuple(tuple(assignments[index]) for index in range(len(assignments)))


def _fault_of(replicas: Sequence[int], brokers: Sequence[int]) -> str | None:
    unknown = sorted(set(replicas) - set(brokers))
    if unknown:
        return f"unknown broker {unknown[0]}, no such broker is registered; live are {sorted(brokers)}"
    if not replicas:
        return "an empty replica list"
    return "a duplicate, a broker is named more than once" if len(set(replicas)) != len(replicas) else None


def added_replicas(
    topic: TopicInfo, count: int, assignments: Sequence[Sequence[int]] | None, racks: Racks
) -> tuple[Replicas, ...]:
    """Returns the replicas of the partitions that extend a topic to `count`; `racks` has the live brokers.

    They are the given ones, or else continue the round that the topic's first partition began. InvalidPartitionsError,
    InvalidReplicaAssignmentError.
    """
    before = len(topic.partitions)
    if count <= before:
        has = (
            f"already has {before} partitions"
            if count == before
            else (f"currently has {before} partitions, which is higher than the requested {count}")
        )
        raise InvalidPartitionsError(f"topic {topic.name} {has}: it would not be an increase")
    check_partition_count(count)
    factor = len(topic.partitions[0].replicas)
    if assignments is None:
        return continued_assignment(racks, topic.partitions[0].replicas, range(before, count))
    if len(assignments) != count - before:
        raise InvalidReplicaAssignmentError(
            f"topic {topic.name} gets {count - before} partitions, and {len(assignments)} assignments are given"
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
