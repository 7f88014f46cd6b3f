"""Creates, extends, deletes and lists topics, and deletes records.

What changes a topic returns when the metadata of the cluster shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from millrace.client.cluster import Cluster
from millrace.client.connection import asking_for
from millrace.client.metadata import TopicMetadata
from millrace.errors import BrokerError, ErrorCode
from millrace.leader_states import NO_LEADER
from millrace.wire.messages import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_RECORDS, DELETE_TOPICS

METADATA_POLL_INTERVAL_S = 0.02
HIGH_WATERMARK = -1


class Admin:
    """Manages the topics of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def topics(self) -> Mapping[str, TopicMetadata]:
        """Returns the metadata of every topic of the cluster, by topic name."""
        return self._cluster.metadata().topics

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Creates a topic; -1 as `partitions` or `replication_factor` means the cluster's default.

        With `validate_only` the cluster only checks whether it would create it.

        Raises TopicExistsError, or the error for a name, a number or a configuration that the cluster refuses.
        """
        ask = CREATE_TOPICS.ask(
            {
                "topics": [
                    {
                        "name": name,
                        "num_partitions": partitions,
                        "replication_factor": replication_factor,
                        "assignments": (),
                        "configs": [{"name": key, "value": value} for key, value in (config or {}).items()],
                    }
                ],
                "timeout": self._cluster.timeout_ms,
                "validate_only": validate_only,
            }
        )
        self._cluster.on_controller(asking_for(ask, lambda answer: answer.topics[0], f"topic {name}"))
        if not validate_only:
            self._await(name, _is_led)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and its records; raises UnknownTopicError where there is none."""
        ask = DELETE_TOPICS.ask({"topic_names": [name], "timeout": self._cluster.timeout_ms})
        self._cluster.on_controller(asking_for(ask, lambda answer: answer.responses[0], f"topic {name}"))
        self._await(name, lambda topic: topic is None)

    def create_partitions(self, name: str, count: int) -> None:
        """Extends a topic to `count` partitions.

        Raises UnknownTopicError; raises InvalidPartitionsError where the topic has that many or more.
        """
        ask = CREATE_PARTITIONS.ask(
            {
                "topics": [{"name": name, "count": count, "assignments": None}],
                "timeout": self._cluster.timeout_ms,
                "validate_only": False,
            }
        )
        self._cluster.on_controller(asking_for(ask, lambda answer: answer.results[0], f"topic {name}"))
        self._await(name, lambda topic: _is_led(topic) and topic is not None and len(topic.partitions) >= count)

    def delete_records(self, name: str, partition: int, before_offset: int = HIGH_WATERMARK) -> int:
        """Deletes records below an offset, by default all committed ones; returns the partition's log start offset."""
        ask = DELETE_RECORDS.ask(
            {
                "topics": [
                    {"name": name, "partitions": [{"partition_index": partition, "offset": before_offset}]},
                ],
                "timeout": self._cluster.timeout_ms,
            }
        )
        subject = f"records of {name}-{partition} before {before_offset}"
        action = asking_for(ask, lambda answer: answer.topics[0].partitions[0], subject)
        return int(action(self._cluster.leader_connection(name, partition)).low_watermark)

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
