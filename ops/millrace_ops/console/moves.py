"""Replicas that move, and how far they are: to other brokers, and to another data directory of the same broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from millrace.client import Cluster
from millrace.client.log_dirs import LogDir, describe_log_dirs, replica_bytes
from millrace.client.metadata import Partition
from millrace.client.reassignments import Reassignment
from millrace.errors import MillraceError


class MoveRow(NamedTuple):
    """A partition that moves; `done` is the part of the leader's bytes that the slowest new replica has."""

    topic: str
    partition: int
    reassignment: Reassignment
    done: float | None


class CopyRow(NamedTuple):
    """A replica that its broker copies from one data directory to another.

    `done` is the part of the replica's bytes that the copy has; `lag` is how many offsets it lacks.
    """

    topic: str
    partition: int
    broker: int
    origin: str
    target: str
    done: float | None
    lag: int


def moves_of(cluster: Cluster, under_way: Mapping[Partition, Reassignment]) -> list[MoveRow]:
    """Returns the progress of reassignments."""
    if not under_way:
        return []
    metadata = cluster.metadata(sorted({topic for topic, _ in under_way}))
    sizes = {number: replica_bytes(_log_dirs(cluster, number, under_way)) for number in metadata.brokers}
    rows = []
    for one, reassignment in under_way.items():
        leader = metadata.topic(one[0]).partitions[one[1]].leader
        whole = sizes.get(leader, {}).get(one)
        copied = [sizes.get(number, {}).get(one, 0) for number in reassignment.adding]
        rows.append(MoveRow(*one, reassignment, part_done(copied, whole)))
    return rows


def copies_of(cluster: Cluster, copied: Iterable[tuple[int, Partition]]) -> list[CopyRow]:
    """Returns the progress of copies, each named by its broker and partition; those that have ended are left out."""
    by_broker: defaultdict[int, list[Partition]] = defaultdict(list)
    for broker, partition in copied:
        by_broker[broker].append(partition)
    return [row for broker, some in by_broker.items() for row in _copies(broker, _log_dirs(cluster, broker, some))]


def _copies(broker: int, log_dirs: Sequence[LogDir]) -> Iterator[CopyRow]:
    sizes = replica_bytes(log_dirs)
    origins = {partition: one.path for one in log_dirs for partition in one.replicas}
    for log_dir in log_dirs:
        for partition, copy in log_dir.copies.items():
            done = part_done([copy.size_bytes], sizes.get(partition))
            yield CopyRow(*partition, broker, origins.get(partition, ""), log_dir.path, done, copy.lag)


def _log_dirs(cluster: Cluster, broker_id: int, partitions: Iterable[Partition]) -> list[LogDir]:
    """Returns a broker's data directories; none if the request fails."""
    try:
        return describe_log_dirs(cluster, broker_id, partitions)
    except MillraceError:
        return []


def part_done(copied: list[int], whole: int | None) -> float | None:
    """Returns the part of a replica that the slowest copy has, 0 to 1; None where that is not known."""
    if whole is None or not copied:
        return None
    return 1.0 if whole == 0 else min(1.0, min(copied) / whole)
