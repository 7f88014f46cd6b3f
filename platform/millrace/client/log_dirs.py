"""What a broker's data directories hold, and how large each of its replicas is (DescribeLogDirs, KIP-113, KIP-827)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.metadata import Partition, indexes_by_topic
from millrace.wire.messages import DESCRIBE_LOG_DIRS

if TYPE_CHECKING:
    from millrace.wire.messages.describe_log_dirs import (
        DescribableLogDirTopicFields,
        DescribeLogDirsRequestFields,
        DescribeLogDirsResult,
    )

UNKNOWN = -1


class Copy(NamedTuple):
    """A copy on its way from another directory of the same broker: its bytes, and the offsets that it lacks."""

    size_bytes: int
    lag: int


@dataclass(frozen=True, slots=True)
class LogDir:
    """One data directory.

    Attributes:
        path: The folder, as the broker names it.
        error_code: Why the broker can't use it; 0 where it can.
        total_bytes: The size of its volume; None where the broker does not tell.
        usable_bytes: What is free there; None where the broker does not tell.
        replicas: The bytes of each replica, without the copies.
        copies: What comes here from another directory, and replaces the replica there once it has all of it.
    """

    path: str
    error_code: int
    total_bytes: int | None
    usable_bytes: int | None
    replicas: Mapping[Partition, int]
    copies: Mapping[Partition, Copy] = field(default_factory=dict)


def describe_log_dirs(cluster: Cluster, broker_id: int, partitions: Iterable[Partition] | None = None) -> list[LogDir]:
    """Returns a broker's data directories with these partitions, or with all.

    Raises BrokerError or UnsupportedVersionError.
    """
    fields: DescribeLogDirsRequestFields = {"topics": None if partitions is None else _topics(partitions)}
    answer = cluster.broker_connection(str(broker_id)).request(DESCRIBE_LOG_DIRS, fields)
    check(answer.error_code, f"data directories of broker {broker_id}")
    return [_log_dir(one) for one in answer.results]


def replica_bytes(log_dirs: Iterable[LogDir]) -> dict[Partition, int]:
    """Returns the bytes of each replica in these directories."""
    return {partition: size for one in log_dirs for partition, size in one.replicas.items()}


def _topics(partitions: Iterable[Partition]) -> list[DescribableLogDirTopicFields]:
    return [{"topic": topic, "partitions": indexes} for topic, indexes in indexes_by_topic(partitions).items()]


def _log_dir(result: DescribeLogDirsResult) -> LogDir:
    described = [((topic.name, int(one.partition_index)), one) for topic in result.topics for one in topic.partitions]
    replicas = {partition: int(one.partition_size) for partition, one in described if not one.is_future_key}
    copies = {
        partition: Copy(int(one.partition_size), int(one.offset_lag))
        for partition, one in described
        if one.is_future_key
    }
    total, usable = (None if size == UNKNOWN else int(size) for size in (result.total_bytes, result.usable_bytes))
    return LogDir(result.log_dir, int(result.error_code), total, usable, replicas, copies)
