"""The replicas of a cluster: moved (KIP-455), elected as leaders (KIP-183, KIP-460), and measured (KIP-113, KIP-827).

The cluster carries a reassignment out by itself. It adds the new replicas, waits until they are in sync, and then
removes the old ones:

    replicas [1, 2]  ──alter to [2, 3]──►  replicas [2, 3, 1], adding [3], removing [1]  ──3 is in sync──►  [2, 3]
                                                       └── cancel ──►  [1, 2]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from millrace.client.cluster import Cluster
from millrace.client.connection import asking
from millrace.client.metadata import Partition, indexes_by_topic
from millrace.error_codes import error_sentence
from millrace.errors import ErrorCode
from millrace.wire.messages import (
    ALTER_PARTITION_REASSIGNMENTS,
    DESCRIBE_LOG_DIRS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
)

if TYPE_CHECKING:
    from millrace.wire.messages.describe_log_dirs import DescribeLogDirsResult
    from millrace.wire.messages.elect_leaders import PartitionResult


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment under way; `replicas` has the new replicas first, and then the old ones."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that the partition has once the reassignment has ended."""
        return tuple(one for one in self.replicas if one not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas that the partition had before, and gets again if the reassignment is cancelled."""
        return tuple(one for one in self.replicas if one not in self.adding)


class Reassignments:
    """Lists, begins and cancels reassignments of a cluster's partitions to other replicas."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(self) -> dict[Partition, Reassignment]:
        """Returns each reassignment under way; raises UnsupportedVersionError for Apache Kafka before 2.4."""
        ask = LIST_PARTITION_REASSIGNMENTS.ask({"topics": None, "timeout": self._cluster.timeout_ms})
        answer = self._cluster.on_controller(asking(ask, "list of reassignments"))
        return {
            (topic.name, int(one.partition_index)): Reassignment(
                tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
            )
            for topic in answer.topics
            for one in topic.partitions
        }

    def alter(self, targets: Mapping[Partition, Sequence[int] | None]) -> dict[Partition, str]:
        """Begins reassignments; returns {partition: reason} for refused ones, which do not stop the others.

        A partition that is being reassigned already gets the new target instead of its former one. With None for a
        target its reassignment is cancelled.
        """
        ask = ALTER_PARTITION_REASSIGNMENTS.ask(
            {
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {"partition_index": index, "replicas": targets[topic, index]} for index in indexes
                        ],
                    }
                    for topic, indexes in indexes_by_topic(targets).items()
                ],
                "timeout": self._cluster.timeout_ms,
            }
        )
        answer = self._cluster.on_controller(asking(ask, "reassignment"))
        return {
            (topic.name, int(one.partition_index)): one.error_message or error_sentence(one.error_code)
            for topic in answer.responses
            for one in topic.partitions
            if one.error_code not in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        }

    def cancel(self, partitions: Iterable[Partition]) -> dict[Partition, str]:
        """Cancels reassignments; returns {partition: reason} for refused ones. One that has ended is no error."""
        return self.alter(dict.fromkeys(partitions))


class ElectionType(IntEnum):
    """Who may become the leader.

    PREFERRED is the first replica, if it is in sync. UNCLEAN is for partitions without a leader: any live replica may
    become the leader, and records that it lacks are lost.
    """

    PREFERRED = 0
    UNCLEAN = 1


class ElectionResult(NamedTuple):
    """One partition's election; `problem` is the error as text, "" where there is none."""

    partition: Partition
    error_code: int
    problem: str

    @property
    def is_elected(self) -> bool:
        """Whether the election has made a new leader."""
        return self.error_code == ErrorCode.NONE

    @property
    def is_unneeded(self) -> bool:
        """Whether no election was needed, since the partition already had a leader of the wanted kind."""
        return self.error_code == ErrorCode.ELECTION_NOT_NEEDED


def elect_leaders(
    cluster: Cluster, election_type: ElectionType, partitions: Iterable[Partition] | None
) -> list[ElectionResult]:
    """Asks the controller to elect leaders; returns a result, which may be an error, for each partition.

    With `partitions` None, all are tried, and those that need no election have no result. Raises BrokerError or
    UnsupportedVersionError where no election was tried.
    """
    wanted = None if partitions is None else indexes_by_topic(sorted(partitions)).items()
    ask = ELECT_LEADERS.ask(
        {
            "election_type": election_type,
            "topic_partitions": None
            if wanted is None
            else [{"topic": topic, "partitions": indexes} for topic, indexes in wanted],
            "timeout": cluster.timeout_ms,
        }
    )
    answer = cluster.on_controller(asking(ask, "election of leaders"))
    return sorted(
        ElectionResult((topic.topic, int(one.partition_id)), int(one.error_code), _problem(one))
        for topic in answer.replica_election_results
        for one in topic.partition_result
    )


def _problem(result: PartitionResult) -> str:
    return "" if not result.error_code else result.error_message or error_sentence(result.error_code)


UNKNOWN = -1


class Copy(NamedTuple):
    """A replica being moved here from another directory of its broker: its bytes, and how many offsets it lacks."""

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
        copies: Replicas on their way here from another directory; one replaces the original once it is complete.
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
    wanted = None if partitions is None else indexes_by_topic(partitions).items()
    ask = DESCRIBE_LOG_DIRS.ask(
        {"topics": None if wanted is None else [{"topic": topic, "partitions": indexes} for topic, indexes in wanted]}
    )
    action = asking(ask, f"data directories of broker {broker_id}")
    return [_log_dir(one) for one in action(cluster.broker_connection(str(broker_id))).results]


def replica_bytes(log_dirs: Iterable[LogDir]) -> dict[Partition, int]:
    """Returns {partition: bytes of its replica} for all replicas in these data directories."""
    return {partition: size for one in log_dirs for partition, size in one.replicas.items()}


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
