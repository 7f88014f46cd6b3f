"""Elections of leaders on request (ElectLeaders, KIP-183, KIP-460)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection
from millrace.client.metadata import Partition, indexes_by_topic
from millrace.error_codes import error_sentence
from millrace.errors import ErrorCode
from millrace.wire.messages import ELECT_LEADERS

if TYPE_CHECKING:
    from millrace.wire.messages.elect_leaders import ElectLeadersRequestFields, PartitionResult, TopicPartitionsFields


class ElectionType(IntEnum):
    """Who may become the leader.

    PREFERRED is the first replica, if it is in sync. UNCLEAN is for partitions without a leader: any live replica may
    become the leader, and records that it lacks are lost.
    """

    PREFERRED = 0
    UNCLEAN = 1


class ElectionResult(NamedTuple):
    """What the election of one partition came to; `problem` is "" where there is none."""

    partition: Partition
    error_code: int
    problem: str

    @property
    def is_elected(self) -> bool:
        """Whether the partition has another leader now."""
        return self.error_code == ErrorCode.NONE

    @property
    def is_unneeded(self) -> bool:
        """Whether the partition was led by such a leader already."""
        return self.error_code == ErrorCode.ELECTION_NOT_NEEDED


def elect_leaders(
    cluster: Cluster, election_type: ElectionType, partitions: Iterable[Partition] | None
) -> list[ElectionResult]:
    """Asks the controller to elect leaders and returns what came of each partition.

    None means all partitions; then the answer leaves out those that need no election. A failure of one partition is in
    its result. Raises BrokerError or UnsupportedVersionError where no election was tried.
    """
    fields: ElectLeadersRequestFields = {
        "election_type": election_type,
        "topic_partitions": None if partitions is None else _topics(partitions),
        "timeout": cluster.timeout_ms,
    }

    def action(connection: Connection) -> list[ElectionResult]:
        answer = connection.request(ELECT_LEADERS, fields)
        check(answer.error_code, "election of leaders")
        return [
            ElectionResult((topic.topic, int(one.partition_id)), int(one.error_code), _problem(one))
            for topic in answer.replica_election_results
            for one in topic.partition_result
        ]

    return sorted(cluster.on_controller(action))


def _problem(result: PartitionResult) -> str:
    return "" if not result.error_code else result.error_message or error_sentence(result.error_code)


def _topics(partitions: Iterable[Partition]) -> list[TopicPartitionsFields]:
    by_topic = indexes_by_topic(sorted(partitions))
    return [{"topic": topic, "partitions": indexes} for topic, indexes in by_topic.items()]
