"""Assigns the replicas of new partitions to brokers as Apache Kafka does: evenly, and each in another rack if possible.

    leaders    go round the brokers; the first one is chosen by `start`
    followers  go round from the leader's next broker on, at a distance, `shift`, that grows by one with each round of
               leaders, so that the load of a broker that fails goes to all others
    racks      where every broker has one (`broker.rack`), brokers of different racks take turns, and a rack gets its
               second replica of a partition only once each rack has one (KIP-36)

The functions are pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, zip_longest

from millrace.errors import InvalidReplicationFactorError

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
    """Returns the replicas of partitions that are added to a topic whose first partition has the replicas `first`."""
    start = next((place for place, broker in enumerate(sorted(racks)) if broker >= first[0]), 0)
    return _around(racks, partitions, len(first), start, shift=start)


def check_replication_factor(factor: int, live_brokers: int) -> None:
    """Raises InvalidReplicationFactorError unless there is a live broker for each replica."""
    if factor < 1:
        raise InvalidReplicationFactorError(f"{factor} replicas: the replication factor must be larger than 0")
    if factor > live_brokers:
        raise InvalidReplicationFactorError(
            f"Replication factor: {factor} larger than available brokers: {live_brokers}. Unable to replicate the "
            f"partition {factor} time(s): The target replication factor of {factor} cannot be reached because only "
            f"{live_brokers} broker(s) are registered."
        )


def _around(racks: Racks, partitions: range, factor: int, start: int, shift: int) -> tuple[Replicas, ...]:
    """Assigns partitions; the shift grows by one with each round of leaders that begins after the first of them."""
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
    """Yields the leader, and then the others again and again, from a distance to the leader on."""
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
    """Returns whether the broker's rack has a replica while another rack has none."""
    used = {racks[one] for one in chosen}
    return racks[broker] in used and len(used) < len(set(racks.values()))


def _in_turn(racks: Racks) -> list[int]:
    """Returns the brokers by id, or, where each has a rack, one of each rack in turn."""
    if not _are_racks_known(racks):
        return sorted(racks)
    by_rack: dict[str | None, list[int]] = defaultdict(list)
    for broker in sorted(racks):
        by_rack[racks[broker]].append(broker)
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack, key=str)))
    return [broker for turn in turns for broker in turn if broker is not None]


def _stride(racks: Racks) -> int:
    """Returns by how many brokers a shift of one moves the first follower: by a whole turn of the racks."""
    return len(set(racks.values())) if _are_racks_known(racks) else 1


def _are_racks_known(racks: Racks) -> bool:
    return None not in racks.values()
