"""Creates, extends, deletes and lists topics, and deletes records.

What changes a topic returns when the metadata of the cluster shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection
from millrace.client.metadata import TopicMetadata
from millrace.errors import BrokerError, ErrorCode
from millrace.leader_states import NO_LEADER
from millrace.wire.messages import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_RECORDS, DELETE_TOPICS

if TYPE_CHECKING:
    from millrace.wire.messages.create_partitions import CreatePartitionsRequestFields
    from millrace.wire.messages.create_topics import CreatableTopicFields, CreateTopicsRequestFields
    from millrace.wire.messages.delete_records import DeleteRecordsRequestFields, DeleteRecordsTopicFields
    from millrace.wire.messages.delete_topics import DeleteTopicsRequestFields

METADATA_POLL_INTERVAL_S = 0.02
HIGH_WATERMARK = -1


class Admin:
    """Manages the topics of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def topics(self) -> Mapping[str, TopicMetadata]:
        """Returns every topic by name."""
        return self._cluster.metadata().topics

    def create_topic(
        self, name: str, partitions: int, replication_factor: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Creates a topic; -1 partitions or replicas means the cluster's default.

        Raises TopicExistsError, or the error of whatever the cluster does not accept.
        """
        topic: CreatableTopicFields = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "assignments": (),
            "configs": [{"name": key, "value": value} for key, value in (config or {}).items()],
        }
        fields: CreateTopicsRequestFields = {
            "topics": [topic],
            "timeout": self._cluster.timeout_ms,
            "validate_only": False,
        }

        def action(connection: Connection) -> None:
            answer = connection.request(CREATE_TOPICS, fields).topics[0]
            check(answer.error_code, f"topic {name}", answer.error_message)

        self._cluster.on_controller(action)
        self._await(name, _is_led)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and its records; raises UnknownTopicError where there is none."""
        fields: DeleteTopicsRequestFields = {"topic_names": [name], "timeout": self._cluster.timeout_ms}

        def action(connection: Connection) -> None:
            answer = connection.request(DELETE_TOPICS, fields).responses[0]
            check(answer.error_code, f"topic {name}", answer.error_message)

        self._cluster.on_controller(action)
        self._await(name, lambda topic: topic is None)

    def create_partitions(self, name: str, count: int) -> None:
        """Extends a topic to `count` partitions.

        Raises UnknownTopicError; raises InvalidPartitionsError where the topic has as many already.
        """
        fields: CreatePartitionsRequestFields = {
            "topics": [{"name": name, "count": count, "assignments": None}],
            "timeout": self._cluster.timeout_ms,
            "validate_only": False,
        }

        def action(connection: Connection) -> None:
            answer = connection.request(CREATE_PARTITIONS, fields).results[0]
            check(answer.error_code, f"topic {name}", answer.error_message)

        self._cluster.on_controller(action)
        self._await(name, lambda topic: _is_led(topic) and topic is not None and len(topic.partitions) >= count)

    def delete_records(self, name: str, partition: int, before_offset: int = HIGH_WATERMARK) -> int:
        """Deletes the records of a partition below an offset; returns the log start offset after that."""
        asked: DeleteRecordsTopicFields = {
            "name": name,
            "partitions": [{"partition_index": partition, "offset": before_offset}],
        }
        fields: DeleteRecordsRequestFields = {"topics": [asked], "timeout": self._cluster.timeout_ms}
        answer = self._cluster.leader_connection(name, partition).request(DELETE_RECORDS, fields)
        result = answer.topics[0].partitions[0]
        check(result.error_code, f"records of {name}-{partition} before {before_offset}")
        return int(result.low_watermark)

    def _await(self, name: str, is_done: Callable[[TopicMetadata | None], bool]) -> None:
        until_done = Retrying(
            retry=retry_if_result(lambda topic: not is_done(topic)),
            stop=stop_after_delay(self._cluster.timeout_s),
            wait=wait_fixed(METADATA_POLL_INTERVAL_S),
        )
        try:
            until_done(lambda: self.topics().get(name))
        except RetryError as error:
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, f"topic {name}: the change was not seen in time") from error


def _is_led(topic: TopicMetadata | None) -> bool:
    if topic is None or topic.error_code or not topic.partitions:
        return False
    return all(partition.leader != NO_LEADER for partition in topic.partitions.values())
