"""Moves of partitions to other brokers (KIP-455): begun, cancelled and listed.

The cluster carries a reassignment out by itself. It adds the new replicas, waits until they are in sync, and then
removes the old ones:

    replicas [1, 2]  ──alter to [2, 3]──►  replicas [2, 3, 1], adding [3], removing [1]  ──3 is in sync──►  [2, 3]
                                                       └── cancel ──►  [1, 2]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection
from millrace.client.metadata import Partition
from millrace.error_codes import error_sentence
from millrace.errors import ErrorCode
from millrace.wire.messages import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS

if TYPE_CHECKING:
    from millrace.wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequestFields,
        ReassignablePartitionFields,
    )
    from millrace.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequestFields


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment under way; `replicas` are the old and the new ones together, the new ones first."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that the partition has at the end."""
        return tuple(one for one in self.replicas if one not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas that the partition had before, and has again after a cancellation."""
        return tuple(one for one in self.replicas if one not in self.adding)


class Reassignments:
    """The reassignments of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(self) -> dict[Partition, Reassignment]:
        """Returns every reassignment under way; raises UnsupportedVersionError of a cluster before Apache Kafka 2.4."""
        fields: ListPartitionReassignmentsRequestFields = {"topics": None, "timeout": self._cluster.timeout_ms}

        def action(connection: Connection) -> dict[Partition, Reassignment]:
            answer = connection.request(LIST_PARTITION_REASSIGNMENTS, fields)
            check(answer.error_code, "list of reassignments", answer.error_message)
            return {
                (topic.name, int(one.partition_index)): Reassignment(
                    tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
                )
                for topic in answer.topics
                for one in topic.partitions
            }

        return self._cluster.on_controller(action)

    def alter(self, targets: Mapping[Partition, Sequence[int]]) -> dict[Partition, str]:
        """Begins reassignments; returns why partitions were refused, which does not stop those of the others.

        A partition that is being reassigned already gets the new target instead of its former one.
        """
        return self._alter(targets)

    def cancel(self, partitions: Iterable[Partition]) -> dict[Partition, str]:
        """Cancels reassignments; returns why that was refused. One that has ended in the meantime is no refusal."""
        return self._alter(dict.fromkeys(partitions))

    def _alter(self, targets: Mapping[Partition, Sequence[int] | None]) -> dict[Partition, str]:
        topics: dict[str, list[ReassignablePartitionFields]] = {}
        for (topic, index), replicas in targets.items():
            topics.setdefault(topic, []).append({"partition_index": index, "replicas": replicas})
        fields: AlterPartitionReassignmentsRequestFields = {
            "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
            "timeout": self._cluster.timeout_ms,
        }

        def action(connection: Connection) -> dict[Partition, str]:
            answer = connection.request(ALTER_PARTITION_REASSIGNMENTS, fields)
            check(answer.error_code, "reassignment", answer.error_message)
            return {
                (topic.name, int(one.partition_index)): one.error_message or error_sentence(one.error_code)
                for topic in answer.responses
                for one in topic.partitions
                if one.error_code not in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            }

        return self._cluster.on_controller(action)
