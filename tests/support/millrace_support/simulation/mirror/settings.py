"""What chance decides for a seed of the mirror: two small clusters, what is written, and how it is mirrored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Self
from uuid import UUID

from millrace.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from millrace.zk.codec import TopicAssignment
from millrace_support.simulation.swarm.settings import Settings
from millrace_support.simulation.workloads.drawn import COMPACTED_TOPIC, LIMITED_TOPIC, TOPIC, Workloads

FIRST_SOURCE_BROKER, FIRST_TARGET_BROKER = 1, 11
BROKERS = (1, 1, 2, 3)
SESSION_TIMEOUT_S, LAG_TIME_MAX_MS = 2.0, 3_000
SLOWEST_S = (0.02, 0.02, 0.2)
LOSES_ANYTHING = 0.35  # of all clusters
SEGMENT_BYTES = (2_000, 2_000, 100_000)  # as an offset commit of all partitions is one batch
FOLLOWED = 0.5  # of all seeds
UPHEAVALS = 0.5  # of all seeds
MIRROR_NAME = "east"
MAP_TOPIC = "__mirror_offsets"
MAP_PARTITIONS = 1
SOURCE_IDS = {TOPIC: UUID(int=21), COMPACTED_TOPIC: UUID(int=22), LIMITED_TOPIC: UUID(int=23)}
TARGET_IDS = {TOPIC: UUID(int=31), COMPACTED_TOPIC: UUID(int=32), LIMITED_TOPIC: UUID(int=33)}
INTERNAL_IDS = {OFFSETS_TOPIC: UUID(int=8), TRANSACTION_TOPIC: UUID(int=9), MAP_TOPIC: UUID(int=10)}
DELETE_RETENTION_MS = 600_000  # a mirror that is away for longer may miss what tombstones and markers say
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "700",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
}
LIMITED = {"retention.ms": "5000", "retention.bytes": "2000", "segment.bytes": "700"}
CONFIGS: Mapping[str, Mapping[str, str]] = {COMPACTED_TOPIC: COMPACTED, LIMITED_TOPIC: LIMITED, MAP_TOPIC: COMPACTED}


class Upheaval(StrEnum):
    """What befalls a mirror beside faults of brokers and of its instances (`upheavals`, `mishaps`)."""

    NONE = "none"
    RESTORED = "restored"
    RECREATED = "recreated"
    PURGED = "purged"
    FORGOTTEN = "forgotten"
    DAMAGED = "damaged"
    UNANSWERED = "unanswered"
    STRUCK = "struck"

    @classmethod
    def drawn(cls, seed: int, *, is_followed: bool, switches_over: bool) -> Upheaval:
        """Returns what befalls the mirror of a seed."""
        chance = Random(f"upheaval {seed}")  # noqa: S311  it decides faults, no secrets
        if chance.random() >= UPHEAVALS:
            return cls.NONE
        possible = [cls.DAMAGED, cls.UNANSWERED]
        if switches_over:
            possible += [cls.STRUCK, cls.STRUCK]
        else:
            possible += [cls.RESTORED, cls.RESTORED, cls.RECREATED, cls.PURGED]
            possible += [] if is_followed else [cls.FORGOTTEN]
        return chance.choice(possible)


@dataclass(frozen=True)
class MirrorSettings:
    """What chance has decided.

    Attributes:
        is_followed: whether the target follows, with the offsets of the source; else records are copied.
        transactions: whether some writers at the source write in transactions.
        compaction: whether a topic is compacted.
        retention: whether a topic has limits.
        grows: whether a topic of the source gets another partition.
        switches_over: whether the target is made the place that is written to, before all heals.
        accepts_loss: whether the mirror goes on behind offsets that were deleted before they were mirrored.
        upheaval: what else befalls the mirror.
        source: the source's settings.
        target: the target's settings.
    """

    is_followed: bool
    transactions: bool
    compaction: bool
    retention: bool
    grows: bool
    switches_over: bool
    accepts_loss: bool
    upheaval: Upheaval
    source: Settings
    target: Settings

    @classmethod
    def drawn(cls, chance: Random, seed: int) -> Self:
        """Returns settings that chance decides, each for itself; the seed alone decides upheavals."""
        is_followed = chance.random() < FOLLOWED
        found = cls(
            is_followed=is_followed,
            transactions=chance.random() < 0.6,
            compaction=chance.random() < 0.35,
            retention=chance.random() < 0.25,
            grows=chance.random() < 0.3,
            switches_over=is_followed and chance.random() < 0.5,
            accepts_loss=chance.random() < 0.5,
            upheaval=Upheaval.NONE,
            source=_cluster_settings(chance),
            target=_cluster_settings(chance),
        )
        drawn = Upheaval.drawn(seed, is_followed=is_followed, switches_over=found.switches_over)
        return replace(found, upheaval=drawn)

    @property
    def workloads(self) -> Workloads:
        """What judges of a cluster are to know."""
        return Workloads(
            reads=False,
            transactions=self.transactions,
            retention=False,
            compaction=self.compaction,
            renewal=False,
        )

    @property
    def mirrored_topics(self) -> list[str]:
        """The names of the topics that are mirrored, which they have in both clusters."""
        has = {TOPIC: True, COMPACTED_TOPIC: self.compaction, LIMITED_TOPIC: self.retention}
        return [name for name, is_there in has.items() if is_there]


def _cluster_settings(chance: Random) -> Settings:
    brokers = chance.choice(BROKERS)
    return Settings(
        replicas=brokers,
        partitions=1 + (chance.random() < 0.3),
        min_isr=min(brokers, chance.choice((1, 2))),
        segment_bytes=chance.choice(SEGMENT_BYTES),
        index_interval_bytes=chance.choice((1, 500)),
        is_flushing=chance.random() < 0.5,
        lag_time_max_ms=LAG_TIME_MAX_MS,
        session_timeout_s=SESSION_TIMEOUT_S,
        slowest_s=0.02,
        loses_anything=chance.random() < LOSES_ANYTHING,
    )


def placed(
    names: Mapping[str, UUID], settings: Settings, first_broker: int, partitions: int
) -> dict[str, TopicAssignment]:
    """Returns topics that are on all brokers of a cluster, led by its first one; `t` has so many partitions."""
    brokers = range(first_broker, first_broker + settings.replicas)
    counts = {TOPIC: partitions, MAP_TOPIC: MAP_PARTITIONS}
    return {
        name: TopicAssignment(topic_id=topic_id, replicas=(tuple(brokers),) * counts.get(name, 1))
        for name, topic_id in names.items()
    }
