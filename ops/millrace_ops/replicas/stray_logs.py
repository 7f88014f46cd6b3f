"""Finds stray logs: those that a broker holds though the cluster does not assign them to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from millrace.client import ClusterMetadata
    from millrace.client.log_dirs import LogDir


class StrayLog(NamedTuple):
    """A log that is no replica; `directory` is the data directory that it lies in."""

    broker: int
    directory: str
    topic: str
    partition: int
    bytes: int
    reason: str


def find_strays(broker_id: int, log_dirs: Iterable[LogDir], metadata: ClusterMetadata) -> list[StrayLog]:
    """Returns the stray logs of a broker, in the order of topics and partitions.

    The metadata has to be newer than the logs, so that it knows topics that are created meanwhile. Topics whose
    partitions the cluster can't tell are left out.
    """
    found = [
        StrayLog(broker_id, log_dir.path, topic, partition, size, reason)
        for log_dir in log_dirs
        for (topic, partition), size in log_dir.replicas.items()
        if (reason := _reason(broker_id, topic, partition, metadata)) is not None
    ]
    return sorted(found, key=lambda one: (one.topic, one.partition))


def _reason(broker_id: int, name: str, index: int, metadata: ClusterMetadata) -> str | None:
    """Returns why a log is stray; None where it is a replica."""
    topic = metadata.topics.get(name)
    if topic is None:
        return "no such topic"
    if topic.error_code:
        return None
    partition = topic.partitions.get(index)
    if partition is None:
        return "no such partition"
    return None if broker_id in partition.replicas else "on other brokers"
