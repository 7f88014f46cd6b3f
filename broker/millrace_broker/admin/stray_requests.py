"""Answers the requests about stray logs: which there are, and to make a topic of them again.

    GET  /strays?topic=weather    the stray logs of this broker, and what it knows of the cluster
    POST /strays/producer-ids     gives no producer id below a number any more (`requests`)
    POST /strays/adopt            reserves producer ids, and then adds a topic to the cluster's metadata

The order keeps a crash harmless: reserved producer ids cost nothing, and the topic is added whole or not at all. An
answer tells that the topic has all its leaders. One adoption needs a request to each broker, since each holds a block
of producer ids (`millrace_ops.replicas.adoption` plans it).

A log is stray if the cluster's metadata does not assign it to its broker:

| the log's topic | reason |
|---|---|
| is not there | `no such topic` |
| has another id than the log | `another topic has its name` |
| has not so many partitions | `no such partition` |
| has the partition elsewhere | `on other brokers` |

Logs of data directories that are offline can't be looked into, and are listed apart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from millrace.errors import ClusterError, MillraceError, StorageError, TopicExistsError
from millrace.uuids import encode_id
from millrace_broker.admin.requests import read_adoption, read_first_free_producer_id
from millrace_broker.cluster.coordinator_topic import CoordinatorTopic
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.cluster.producer_ids import ProducerIds
from millrace_broker.cluster.topic_manager import TopicManager
from millrace_broker.replication.replica_manager import first_free_producer_id
from millrace_broker.storage import Log, LogManager, TopicPartition


class StrayLog(NamedTuple):
    """A log on this broker's disk that the cluster's metadata does not assign to the broker, and why (`reason`).

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
    """A log in an offline data directory that the cluster's metadata does not assign to this broker."""

    topic_partition: TopicPartition
    directory: str


def stray_logs(
    logs: LogManager, image: MetadataImage, broker_id: int, topics: Collection[str] | None
) -> list[StrayLog]:
    """Returns the stray logs in data directories that are online: of `topics`, or of all topics for None."""
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
    """Returns the stray logs in data directories that are offline, as far as the broker remembers them."""
    return [
        one
        for one in sorted({*_unopened(logs), *_failed(logs)})
        if topics is None or one.topic_partition.topic in topics
        if stray_reason(image, broker_id, one.topic_partition, None) is not None
    ]


def stray_reason(
    image: MetadataImage, broker_id: int, topic_partition: TopicPartition, topic_id: UUID | None
) -> str | None:
    """Returns why a log is stray; None where it is a replica, or the metadata does not yet tell the replicas."""
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


TOPIC = "topic"


class Response(NamedTuple):
    """A response of the admin endpoint: the HTTP status, and the fields of the JSON object in its body."""

    status: int
    fields: Mapping[str, object]


class StrayRequests:
    """Answers the requests to one broker about stray logs, which the cluster's metadata does not assign to it.

    Args:
        broker_id: The id of this broker.
        logs: Has all logs, the stray ones among them.
        metadata: Says which logs are replicas.
        topics: Adds a topic to the metadata.
        producer_ids: Gives this broker's producer ids.
        internal_topics: The coordinators' topics, which this broker creates itself.
    """

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        metadata: MetadataCache,
        topics: TopicManager,
        *,
        producer_ids: ProducerIds,
        internal_topics: Sequence[CoordinatorTopic],
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._metadata = metadata
        self._topics = topics
        self._producer_ids = producer_ids
        self._internal_topics = internal_topics

    async def describe(self, query: Mapping[str, str]) -> Response:
        """Responds with the stray logs of the query's topic, or of all topics, and the cluster's brokers and topics."""
        unknown = sorted(query.keys() - {TOPIC})
        if unknown:
            return Response(400, {"error": f"{unknown[0]}: unknown field, expected {TOPIC}"})
        image = self._metadata.image
        topics = {query[TOPIC]} if TOPIC in query else None
        known = image.topics.values() if topics is None else [image.topics[one] for one in topics & image.topics.keys()]
        return Response(
            200,
            {
                "broker_id": self._broker_id,
                "cluster_id": image.cluster_id,
                "brokers": sorted(image.brokers),
                "topics": {one.name: encode_id(one.topic_id) for one in known},
                "internal_topics": {
                    one.name: {"partitions": one.partitions, "config": one.config} for one in self._internal_topics
                },
                "strays": [_stray(one) for one in stray_logs(self._logs, image, self._broker_id, topics)],
                "offline": [_offline(one) for one in offline_logs(self._logs, image, self._broker_id, topics)],
            },
        )

    async def adopt(self, body: bytes) -> Response:
        """Adds the topic that the JSON body describes; responds once all its partitions have leaders."""

        async def work() -> Mapping[str, object]:
            wanted = read_adoption(body)
            await self._producer_ids.skip_to(wanted.first_free_producer_id)
            await self._topics.adopt(wanted.topic)
            topic = wanted.topic
            return {
                "topic": topic.name,
                "topic_id": encode_id(topic.topic_id),
                "partitions": len(topic.partitions),
            }

        return await _response(work)

    async def skip_producer_ids(self, body: bytes) -> Response:
        """Makes this broker give no producer id below the number in the JSON body; responds with the number."""

        async def work() -> Mapping[str, object]:
            first = read_first_free_producer_id(body)
            await self._producer_ids.skip_to(first)
            return {"first_free_producer_id": first}

        return await _response(work)


async def _response(work: Callable[[], Awaitable[Mapping[str, object]]]) -> Response:
    """Responds with 200 and the fields that `work` returns, or with the HTTP status and the sentence of its error."""
    try:
        return Response(200, await work())
    except MillraceError as error:
        return Response(_status(error), {"error": str(error)})


def _status(error: MillraceError) -> int:
    if isinstance(error, TopicExistsError):
        return 409
    if isinstance(error, ClusterError):
        return 503
    return 500 if isinstance(error, StorageError) else 400


def _stray(one: StrayLog) -> Mapping[str, object]:
    topic, partition = one.topic_partition
    return {
        "topic": topic,
        "partition": partition,
        "topic_id": None if one.topic_id is None else encode_id(one.topic_id),
        "directory": one.directory,
        "log_start_offset": one.log_start_offset,
        "log_end_offset": one.log_end_offset,
        "leader_epochs": one.leader_epochs,
        "newest_leader_epoch": one.newest_leader_epoch,
        "first_free_producer_id": one.first_free_producer_id,
        "bytes": one.size_bytes,
        "reason": one.reason,
    }


def _offline(one: OfflineLog) -> Mapping[str, object]:
    topic, partition = one.topic_partition
    return {"topic": topic, "partition": partition, "directory": one.directory}
