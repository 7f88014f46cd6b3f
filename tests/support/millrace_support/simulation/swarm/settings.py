"""The settings of a seed: how many replicas and partitions there are, and what properties and networks they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Self

from millrace.zk.codec import TopicAssignment
from millrace_support.simulation.workloads.drawn import TOPIC

BROKERS = range(1, 6)
REPLICAS = (1, 2, 3, 3, 3, 3, 5)
PARTITIONS = (1, 2, 2, 4)
MIN_ISR = (1, 2, 2, 2, 3)
SEGMENT_BYTES, INDEX_INTERVAL_BYTES = (700, 2_000, 2_000, 100_000), (1, 500, 500, 4_096)
LAG_TIME_MAX_MS = (6_000, 8_000, 20_000)
SESSION_TIMEOUT_S = (3.0, 6.0, 12.0)
LOSES_ANYTHING = 0.5  # of all seeds
SLOWEST_S = (0.02, 0.3, 1.0)  # of a network; where it is slow, replicas are rarely the same
TWO_RELEASES_SHARE, FORMER_SHARE = 0.25, 0.5  # of seeds, and of the brokers of such a seed that begin with the former


def former_brokers(seed: int) -> frozenset[int] | None:
    """Returns the brokers that begin with the former release; None for a seed without that release."""
    chance = Random(f"{seed} of two releases")  # noqa: S311  it decides faults, no secrets
    if chance.random() >= TWO_RELEASES_SHARE:
        return None
    return frozenset(broker for broker in BROKERS if chance.random() < FORMER_SHARE)


@dataclass(frozen=True)
class Settings:
    """What chance has decided for a seed.

    Attributes:
        replicas: how many each partition has.
        partitions: how many the topic that is written to has.
        min_isr: min.insync.replicas.
        segment_bytes: log.segment.bytes.
        index_interval_bytes: log.index.interval.bytes.
        is_flushing: whether each write is flushed.
        lag_time_max_ms: replica.lag.time.max.ms.
        session_timeout_s: how long ZooKeeper waits for a broker.
        slowest_s: how long bytes travel at most.
        loses_anything: whether disks and power are lost at any time. Where they are not, the power goes only if each
            write is flushed, and a disk is wiped only while all else is well: then nothing may be lost.
    """

    replicas: int
    partitions: int
    min_isr: int
    segment_bytes: int
    index_interval_bytes: int
    is_flushing: bool
    lag_time_max_ms: int
    session_timeout_s: float
    slowest_s: float
    loses_anything: bool

    @classmethod
    def drawn(cls, chance: Random, *, has_two_releases: bool = False) -> Self:
        """Returns settings that chance decides, each for itself.

        With two releases nothing may be lost, as the former one does not tell what it has lost.
        """
        return cls(
            replicas=chance.choice(REPLICAS),
            partitions=chance.choice(PARTITIONS),
            min_isr=chance.choice(MIN_ISR),
            segment_bytes=chance.choice(SEGMENT_BYTES),
            index_interval_bytes=chance.choice(INDEX_INTERVAL_BYTES),
            is_flushing=chance.random() < 0.5,
            lag_time_max_ms=chance.choice(LAG_TIME_MAX_MS),
            session_timeout_s=chance.choice(SESSION_TIMEOUT_S),
            slowest_s=chance.choice(SLOWEST_S),
            loses_anything=chance.random() < LOSES_ANYTHING and not has_two_releases,
        )

    def log_properties(self) -> Mapping[str, str]:
        """Returns the brokers' properties for logs."""
        flushing = {"log.flush.interval.messages": "1"} if self.is_flushing else {}
        return {
            "min.insync.replicas": str(self.min_isr),
            "log.segment.bytes": str(self.segment_bytes),
            "log.index.interval.bytes": str(self.index_interval_bytes),
            "log.retention.ms": "-1",
            **flushing,
        }

    def least_holders(self, replicas: int) -> int:
        """Returns how many of a partition's replicas have what was acknowledged with acks=all."""
        return min(self.min_isr, replicas)

    def placed(self, topics: Mapping[str, TopicAssignment], chance: Random) -> Mapping[str, TopicAssignment]:
        """Returns topics with replicas on brokers that chance decides, `t` with as many partitions as decided."""
        return {name: self._placed(name, topic, chance) for name, topic in topics.items()}

    def _placed(self, name: str, topic: TopicAssignment, chance: Random) -> TopicAssignment:
        partitions = self.partitions if name == TOPIC else len(topic.replicas)
        replicas = tuple(tuple(chance.sample(BROKERS, self.replicas)) for _ in range(partitions))
        return TopicAssignment(topic_id=topic.topic_id, replicas=replicas)
