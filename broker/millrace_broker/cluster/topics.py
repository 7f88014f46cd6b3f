"""The rules for topics as pure functions: their names, partition counts, and assignments of replicas.

Replicas of new partitions are assigned to brokers as by Apache Kafka: evenly, and each in another rack if possible.

    leaders    go round the brokers; the first one is chosen by `start`
    followers  go round from the leader's next broker on, at a distance, `shift`, that grows by one with each round of
               leaders, so that the load of a broker that fails goes to all others
    racks      where every broker has one (`broker.rack`), brokers of different racks take turns, and a rack gets its
               second replica of a partition only once each rack has one (KIP-36)
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, zip_longest

from millrace.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    PolicyViolationError,
)
from millrace_broker.cluster.metadata_image import TopicInfo

MAX_NAME_LENGTH = 249
MAX_PARTITIONS = 100_000
MAX_NEW_PARTITIONS = 10_000  # of one request, as in Kafka with KRaft
LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


Replicas = tuple[int, ...]
Racks = Mapping[int, str | None]


def assign_replicas(
    racks: Racks, partitions: int, replication_factor: int, *, start: int, shift: int
) -> tuple[Replicas, ...]:
    """Returns the replicas of each partition of a new topic; the first of each is its preferred leader.

    Args:
        racks: the live brokers, each with its rack.
        partitions: how many partitions the topic has.
        replication_factor: how many replicas each has; more than brokers are an InvalidReplicationFactorError.
        start: the index of the first partition's leader among the brokers; any number from 0 on.
        shift: the distance from a leader to the first follower; any number from 0 on.
    """
    return _around(racks, range(partitions), replication_factor, start, shift)


def continued_assignment(racks: Racks, first: Replicas, partitions: range) -> tuple[Replicas, ...]:
    """Returns the replicas of partitions that are added to a topic; `first` are those of its partition 0."""
    start = next((place for place, broker in enumerate(sorted(racks)) if broker >= first[0]), 0)
    return _around(racks, partitions, len(first), start, shift=start)


def check_replication_factor(factor: int, live_brokers: int) -> None:
    """Raises InvalidReplicationFactorError unless the factor is from 1 to the number of live brokers."""
    if factor < 1:
        raise InvalidReplicationFactorError(f"{factor} replicas: the replication factor must be larger than 0")
    if factor > live_brokers:
        raise InvalidReplicationFactorError(
            f"Replication factor: {factor} larger than available brokers: {live_brokers}. Unable to replicate the "
            f"partition {factor} time(s): The target replication factor of {factor} cannot be reached because only "
            f"{live_brokers} broker(s) are registered."
        )


def _around(racks: Racks, partitions: range, factor: int, start: int, shift: int) -> tuple[Replicas, ...]:
    """Returns the replicas of each partition; leaders go round the brokers, and followers move on with each round."""
    check_replication_factor(factor, len(racks))
    ordered = _in_turn(racks)
    rounds_before = max(partitions.start - 1, 0) // len(ordered)
    assigned = []
    for partition in partitions:
        rounds = partition // len(ordered) - rounds_before
        candidates = _candidates(ordered, (start + partition) % len(ordered), (shift + rounds) * _stride(racks))
        assigned.append(_chosen(candidates, factor, racks))
    return tuple(assigned)


def _candidates(ordered: Sequence[int], leader: int, distance: int) -> Iterator[int]:
    """Yields the leader's id, and then other brokers' ids endlessly, from `distance` places behind the leader on."""
    yield ordered[leader]
    others = len(ordered) - 1
    for step in count():
        yield ordered[(leader + 1 + (distance + step) % others) % len(ordered)]


def _chosen(candidates: Iterator[int], factor: int, racks: Racks) -> Replicas:
    chosen = [next(candidates)]
    while len(chosen) < factor:
        broker = next(candidates)
        if broker not in chosen and not (_are_racks_known(racks) and _waits_for_its_turn(broker, chosen, racks)):
            chosen.append(broker)
    return tuple(chosen)


def _waits_for_its_turn(broker: int, chosen: Sequence[int], racks: Racks) -> bool:
    """Returns whether a broker must not be chosen yet: its rack has a replica, and another rack has none."""
    used = {racks[one] for one in chosen}
    return racks[broker] in used and len(used) < len(set(racks.values()))


def _in_turn(racks: Racks) -> list[int]:
    """Returns the brokers' ids in order, or, where each has a rack, alternating between the racks."""
    if not _are_racks_known(racks):
        return sorted(racks)
    by_rack: dict[str | None, list[int]] = defaultdict(list)
    for broker in sorted(racks):
        by_rack[racks[broker]].append(broker)
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack, key=str)))
    return [broker for turn in turns for broker in turn if broker is not None]


def _stride(racks: Racks) -> int:
    """Returns by how many brokers followers move on with each round: by the number of racks, 1 without racks."""
    return len(set(racks.values())) if _are_racks_known(racks) else 1


def _are_racks_known(racks: Racks) -> bool:
    return None not in racks.values()


def check_topic_name(name: str, existing: Iterable[str] = ()) -> None:
    """Raises InvalidTopicError unless the name keeps to Kafka's rules; `existing` are the names of other topics.

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
    """Returns the replicas of each partition in a manual assignment.

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

    They are those in `assignments`, or if that is None are chosen as for a new topic. Raises InvalidPartitionsError or
    InvalidReplicaAssignmentError.
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
    """Raises PolicyViolationError where a request makes more partitions than are allowed at once."""
    if count > MAX_NEW_PARTITIONS:
        raise PolicyViolationError(
            f"excessively large number of partitions per request: {count} new partitions, of {MAX_NEW_PARTITIONS}"
        )


def check_partition_count(count: int) -> None:
    """Raises InvalidPartitionsError unless the count is from 1 up to the limit of a topic."""
    if count < 1:
        raise InvalidPartitionsError(f"{count} partitions: the number of partitions must be larger than 0")
    if count > MAX_PARTITIONS:
        raise InvalidPartitionsError(f"{count} partitions: {MAX_PARTITIONS} of one topic are allowed")
