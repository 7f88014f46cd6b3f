"""Which workloads a seed plays beside its producers and groups, and which topics these need."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import NamedTuple, Self
from uuid import UUID

from millrace.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from millrace.zk.codec import TopicAssignment
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.workloads.retention_judge import Limits

SHARE = 0.4  # of all seeds that play one workload
TOPIC, TOPIC_ID = "t", UUID(int=7)
OFFSETS, TRANSACTIONS = TopicPartition(OFFSETS_TOPIC, 0), TopicPartition(TRANSACTION_TOPIC, 0)
LIMITED_TOPIC, COMPACTED_TOPIC, RENEWED_TOPIC = "limited", "compacted", "renewed"
LIMITS = Limits(retention_ms=7_000, retention_bytes=2_000, segment_bytes=700)
DELETE_RETENTION_MS = 8_000
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "700",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
}


class Workloads(NamedTuple):
    """The workloads of a seed.

    Attributes:
        reads: clients read all that is written, from leaders and followers, while faults go on.
        transactions: producers write in transactions.
        retention: a topic has limits of time and size, and its records are deleted on request.
        compaction: a topic is compacted, and those of the coordinators.
        renewal: a topic gets more partitions, is deleted, and is created again.
    """

    reads: bool
    transactions: bool
    retention: bool
    compaction: bool
    renewal: bool

    @classmethod
    def drawn(cls, chance: Random) -> Self:
        """Returns the workloads that chance decides, each for itself."""
        return cls(*(chance.random() < SHARE for _ in cls._fields))

    def __str__(self) -> str:
        return ", ".join(name for name, is_played in self._asdict().items() if is_played) or "none"


def topics_of(workloads: Workloads) -> Mapping[str, TopicAssignment]:
    """Returns the topics of a seed, with their replicas."""
    topics = {
        TOPIC: TopicAssignment(topic_id=TOPIC_ID, replicas=((1, 2, 3), (3, 4, 5))),
        OFFSETS_TOPIC: TopicAssignment(topic_id=UUID(int=8), replicas=((2, 3, 4),)),
    }
    if workloads.transactions:
        topics[TRANSACTION_TOPIC] = TopicAssignment(topic_id=UUID(int=9), replicas=((4, 5, 1),))
    if workloads.retention:
        topics[LIMITED_TOPIC] = TopicAssignment(topic_id=UUID(int=10), replicas=((1, 3, 5),))
    if workloads.compaction:
        topics[COMPACTED_TOPIC] = TopicAssignment(topic_id=UUID(int=11), replicas=((5, 2, 4),))
    if workloads.renewal:
        topics[RENEWED_TOPIC] = TopicAssignment(topic_id=UUID(int=12), replicas=((1, 2, 3), (2, 3, 4)))
    return topics


def configs_of(workloads: Workloads) -> Mapping[str, Mapping[str, str]]:
    """Returns the properties of those topics that have some."""
    configs: dict[str, Mapping[str, str]] = {}
    if workloads.retention:
        configs[LIMITED_TOPIC] = {
            "retention.ms": str(LIMITS.retention_ms),
            "retention.bytes": str(LIMITS.retention_bytes),
            "segment.bytes": str(LIMITS.segment_bytes),
        }
    if workloads.compaction:
        configs |= dict.fromkeys((COMPACTED_TOPIC, OFFSETS_TOPIC, TRANSACTION_TOPIC), COMPACTED)
    return configs
