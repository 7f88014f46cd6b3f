"""A plan of moves: which partition goes from which brokers to which, what is copied, and how long that takes.

A file with a plan has the JSON of kafka-reassign-partitions, which `topics reassign --dry-run --json` prints, too:

    {"version": 1, "partitions": [{"topic": "weather", "partition": 0, "replicas": [1, 2]}]}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace.errors import InvalidReplicaAssignmentError
from millrace_ops.replicas.cluster_state import has_leader

if TYPE_CHECKING:
    from millrace.client.metadata import Partition
    from millrace.json_values import Json
    from millrace_ops.replicas.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class Move:
    """The move of one partition.

    Attributes:
        partition: The partition.
        origin: Its replicas before.
        target: Its replicas afterwards, the preferred leader first.
        leader: The broker that the new replicas copy from.
        size_bytes: The size of one replica.
        is_under_way: Whether the cluster has already begun the move.
    """

    partition: Partition
    origin: tuple[int, ...]
    target: tuple[int, ...]
    leader: int
    size_bytes: int
    is_under_way: bool

    @property
    def adding(self) -> list[int]:
        """Returns the brokers that get a replica."""
        return [one for one in self.target if one not in self.origin]

    @property
    def copied_bytes(self) -> int:
        """Returns the bytes that all new replicas of the partition copy together."""
        return self.size_bytes * len(self.adding)


@dataclass(frozen=True, slots=True)
class Plan:
    """The moves of a reassignment, in the order of topics and partitions."""

    moves: tuple[Move, ...]

    @property
    def copied_bytes(self) -> int:
        """Returns the bytes that all moves copy together."""
        return sum(move.copied_bytes for move in self.moves)

    @property
    def to_begin(self) -> list[Move]:
        """Returns the moves that the cluster has not begun yet."""
        return [move for move in self.moves if not move.is_under_way]

    def duration_s(self, throttle: int) -> float:
        """Returns the least time for the moves in seconds, if each broker sends and takes `throttle` bytes a second."""
        sent, taken = Counter[int](), Counter[int]()
        for move in self.moves:
            sent[move.leader] += move.copied_bytes
            taken.update(dict.fromkeys(move.adding, move.size_bytes))
        return max([*sent.values(), *taken.values()], default=0) / throttle


def make_plan(state: ClusterState, targets: Mapping[Partition, Sequence[int]], sizes: Mapping[Partition, int]) -> Plan:
    """Returns the moves that give partitions their target replicas, including those that are already under way.

    Args:
        state: Where the replicas are.
        targets: The replicas that each partition should have.
        sizes: The bytes of a replica of each partition; one that is left out counts as empty.

    Raises:
        InvalidReplicaAssignmentError: A partition that is to be copied has no leader to copy from.
    """
    moves = [
        Move(
            partition,
            state.origin(partition),
            tuple(target),
            state.partitions[partition].leader,
            sizes.get(partition, 0),
            is_under_way=tuple(target) == state.assigned(partition),
        )
        for partition, target in sorted(targets.items())
        if tuple(target) != state.assigned(partition) or partition in state.reassignments
    ]
    for move in moves:
        topic, index = move.partition
        if move.adding and not move.is_under_way and not has_leader(state.partitions[move.partition]):
            raise InvalidReplicaAssignmentError(
                f"{topic}-{index} has no leader at present, from which it could be copied"
            )
    return Plan(tuple(moves))


ANY_LOG_DIR = "any"


def parse_plan(text: str, live_brokers: Collection[int]) -> dict[Partition, tuple[int, ...]]:
    """Returns the replicas of each partition in a plan file of kafka-reassign-partitions.

    Raises:
        InvalidReplicaAssignmentError: The text is no plan, names a broker that is not alive, or chooses directories.
    """
    try:
        content: Json = json.loads(text)
    except ValueError as error:
        raise InvalidReplicaAssignmentError(f"this is no JSON: {error}") from error
    entries = content.get("partitions") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise InvalidReplicaAssignmentError('a JSON object with the list "partitions" is expected')
    targets: dict[Partition, tuple[int, ...]] = {}
    for entry in entries:
        partition, replicas = _parse_entry(entry)
        if partition in targets:
            raise _wrong(partition, "it is named twice")
        _check_replicas(partition, replicas, live_brokers)
        targets[partition] = replicas
    return targets


def _parse_entry(entry: Json) -> tuple[Partition, tuple[int, ...]]:
    if isinstance(entry, dict):
        topic, index, replicas = (entry.get(name) for name in ("topic", "partition", "replicas"))
        if isinstance(topic, str) and _is_id(index) and isinstance(replicas, list) and all(map(_is_id, replicas)):
            partition = (topic, int(str(index)))
            log_dirs = entry.get("log_dirs") or []
            if not isinstance(log_dirs, list) or any(one != ANY_LOG_DIR for one in log_dirs):
                raise _wrong(partition, f'folders can\'t be chosen here; leave out log_dirs, or write "{ANY_LOG_DIR}"')
            return partition, tuple(int(str(one)) for one in replicas)
    raise InvalidReplicaAssignmentError(
        f'{json.dumps(entry)}: {{"topic": NAME, "partition": NUMBER, "replicas": [ID, …]}} is expected'
    )


def _check_replicas(partition: Partition, replicas: tuple[int, ...], live_brokers: Collection[int]) -> None:
    if not replicas:
        raise _wrong(partition, "it needs a replica")
    if len(set(replicas)) < len(replicas):
        raise _wrong(partition, "a broker is named twice")
    if unknown := sorted(set(replicas) - set(live_brokers)):
        raise _wrong(partition, f"broker {unknown[0]} is not alive")


def _is_id(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _wrong(partition: Partition, reason: str) -> InvalidReplicaAssignmentError:
    return InvalidReplicaAssignmentError(f"{partition[0]}-{partition[1]}: {reason}")
