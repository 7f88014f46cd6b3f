"""All topics of a cluster in numbers, as one look found them.

    metadata ──► a summary of each topic
    end and start offsets, PARTITIONS_AT_ONCE at a time ──► records
    sizes of replicas, PARTITIONS_AT_ONCE at a time of each broker ──► bytes, and what is copied to another directory

A broker answers in its only thread, so it is asked for few partitions at a time, and its other requests come between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeVar

from millrace.client import Cluster
from millrace.client.fetched import IsolationLevel
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.client.metadata import ClusterMetadata, Partition, TopicMetadata
from millrace.client.replicas import describe_log_dirs, replica_bytes
from millrace.errors import MillraceError
from millrace.leader_states import NO_LEADER

PARTITIONS_AT_ONCE = 200
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A row of the list of topics: `records` counts offsets, `size_bytes` the leaders' logs. None means unknown."""

    name: str
    partitions: int
    replicas: int
    under_replicated: int
    offline: int
    records: int | None = None
    end_sum: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of the cluster as it was read at the time `at_ms`.

    `copied` has by broker the replicas that it copies from one of its data directories to another.
    """

    at_ms: int
    metadata: ClusterMetadata
    topics: Mapping[str, TopicSummary]
    ends: Mapping[Partition, int] = field(default_factory=dict)
    copied: Mapping[int, Sequence[Partition]] = field(default_factory=dict)


class Replicas(NamedTuple):
    """The bytes of each partition at its leader, and, by broker, the replicas that are copied to another directory."""

    sizes: Mapping[Partition, int]
    copied: Mapping[int, Sequence[Partition]]


def look_at_offsets(cluster: Cluster, metadata: ClusterMetadata) -> dict[Partition, LogOffsets]:
    """Returns the start and end offsets of the logs whose leaders answer."""
    found: dict[Partition, LogOffsets] = {}
    for some in _portions(partitions_of(metadata.topics.values())):
        answers = read_log_offsets(cluster, some, IsolationLevel.READ_UNCOMMITTED, metadata=metadata)
        found |= {one: offsets for one, offsets in answers.items() if isinstance(offsets, LogOffsets)}
    return found


def look_at_replicas(cluster: Cluster, metadata: ClusterMetadata, *, only_leaders: bool = False) -> Replicas:
    """Returns what brokers report of their replicas, or of leaders only, without brokers whose request fails."""
    sizes: dict[Partition, int] = {}
    copied: dict[int, list[Partition]] = {}
    for broker, partitions in _by_broker(metadata, only_leaders).items():
        try:
            for some in _portions(list(partitions)):
                log_dirs = describe_log_dirs(cluster, broker, some)
                found = replica_bytes(log_dirs)
                sizes |= {one: size for one, size in found.items() if partitions[one] == broker}
                copied.setdefault(broker, []).extend(partition for one in log_dirs for partition in one.copies)
        except MillraceError:  # it has just gone, or may not be asked
            continue
    return Replicas(sizes, {broker: some for broker, some in copied.items() if some})


def summaries(
    metadata: ClusterMetadata, offsets: Mapping[Partition, LogOffsets], sizes: Mapping[Partition, int]
) -> dict[str, TopicSummary]:
    """Returns the summary of each topic."""
    return {topic.name: _summary(topic, offsets, sizes) for topic in metadata.topics.values()}


def total_lag(lags: Iterable[int | None]) -> int | None:
    """Returns the sum of the lags of partitions; None if there are none, or if one of them is not known."""
    all_lags = list(lags)
    known = [lag for lag in all_lags if lag is not None]
    return sum(known) if known and len(known) == len(all_lags) else None


def partitions_of(topics: Iterable[TopicMetadata]) -> list[Partition]:
    """Returns the partitions of topics."""
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _summary(
    topic: TopicMetadata, offsets: Mapping[Partition, LogOffsets], sizes: Mapping[Partition, int]
) -> TopicSummary:
    partitions = topic.partitions.values()
    keys = [(topic.name, index) for index in topic.partitions]
    known = [offsets[one] for one in keys if one in offsets]
    is_known = len(known) == len(keys)
    return TopicSummary(
        topic.name,
        len(keys),
        max((len(one.replicas) for one in partitions), default=0),
        sum(len(one.isr) < len(one.replicas) for one in partitions),
        sum(one.leader == NO_LEADER for one in partitions),
        sum(one.log_end - one.start_offset for one in known) if is_known else None,
        sum(one.log_end for one in known) if is_known else None,
        sum(sizes[one] for one in keys) if all(one in sizes for one in keys) else None,
    )


def _by_broker(metadata: ClusterMetadata, only_leaders: bool) -> dict[int, dict[Partition, int]]:
    """Returns, for each live broker, the partitions that it has replicas of (or leads), each with its leader."""
    found: dict[int, dict[Partition, int]] = {number: {} for number in metadata.brokers}
    for topic in metadata.topics.values():
        for index, partition in topic.partitions.items():
            for number in (partition.leader,) if only_leaders else partition.replicas:
                if number in found:
                    found[number][topic.name, index] = partition.leader
    return found


def _portions(values: Sequence[T]) -> Iterator[list[T]]:
    rest = iter(values)
    while portion := list(islice(rest, PARTITIONS_AT_ONCE)):
        yield portion
