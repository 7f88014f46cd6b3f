"""Tells which logs of a broker are stray: those that the cluster's metadata does not assign to it.

| the log's topic | reason |
|---|---|
| is not there | `no such topic` |
| has another id than the log | `another topic has its name` |
| has not so many partitions | `no such partition` |
| has the partition elsewhere | `on other brokers` |

Logs of data directories that are offline can't be looked into, and are listed apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple
from uuid import UUID

from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.replication.replica_manager import first_free_producer_id
from millrace_broker.storage import Log, LogManager, TopicPartition


class StrayLog(NamedTuple):
    """A stray log.

    Attributes:
        topic_id: The id of the topic that the log belongs to; None where none was written.
        leader_epochs: (epoch, start offset), oldest first.
        newest_leader_epoch: The newest epoch that the log has known, though it may hold no record of it; -1 for none.
        first_free_producer_id: The id above those of all producers in the log.
    """

    topic_partition: TopicPartition
    topic_id: UUID | None
    directory: str
    log_start_offset: int
    log_end_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    newest_leader_epoch: int
    first_free_producer_id: int
    size_bytes: int
    reason: str


class OfflineLog(NamedTuple):
    """A stray log in a data directory that is offline."""

    topic_partition: TopicPartition
    directory: str


def stray_logs(
    logs: LogManager, image: MetadataImage, broker_id: int, topics: Collection[str] | None
) -> list[StrayLog]:
    """Returns the stray logs of a broker in data directories that are online; of these topics, None for all."""
    return [
        _described(key, log, logs.topic_id(key), reason)
        for key, log in sorted(logs.logs().items())
        if topics is None or key.topic in topics
        if logs.dirs.of_log(log.directory).is_online
        if (reason := stray_reason(image, broker_id, key, logs.topic_id(key))) is not None
    ]


def offline_logs(
    logs: LogManager, image: MetadataImage, broker_id: int, topics: Collection[str] | None
) -> list[OfflineLog]:
    """Returns the stray logs in data directories that are offline, as far as they are known."""
    return [
        one
        for one in sorted({*_unopened(logs), *_failed(logs)})
        if topics is None or one.topic_partition.topic in topics
        if stray_reason(image, broker_id, one.topic_partition, None) is not None
    ]


def stray_reason(
    image: MetadataImage, broker_id: int, topic_partition: TopicPartition, topic_id: UUID | None
) -> str | None:
    """Returns why a log is stray; None where it is a replica, or the image does not say yet who has the partition."""
    topic = image.topics.get(topic_partition.topic)
    if topic is None:
        return "no such topic"
    if topic_id not in (None, topic.topic_id):
        return "another topic has its name"
    if topic_partition.partition >= len(topic.partitions):
        return "no such partition"
    replicas = topic.partitions[topic_partition.partition].replicas
    return None if not replicas or broker_id in replicas else "on other brokers"


def _unopened(logs: LogManager) -> Iterator[OfflineLog]:
    return (OfflineLog(key, one.path) for one in logs.dirs.all if not one.is_online for key in one.unopened)


def _failed(logs: LogManager) -> Iterator[OfflineLog]:
    for key, log in logs.logs().items():
        data_dir = logs.dirs.of_log(log.directory)
        if not data_dir.is_online:
            yield OfflineLog(key, data_dir.path)


def _described(topic_partition: TopicPartition, log: Log, topic_id: UUID | None, reason: str) -> StrayLog:
    epochs = log.leader_epochs
    return StrayLog(
        topic_partition,
        topic_id,
        log.directory,
        log.log_start_offset,
        log.log_end_offset,
        tuple(epochs.entries),
        max(epochs.newest_found, epochs.latest),
        first_free_producer_id([log]),
        log.size_bytes,
        reason,
    )
