"""Which workloads a seed plays beside its producers and groups, and which topics these need."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import NamedTuple, Self
from uuid import UUID

from millrace.internal_topics import OFFSETS_TOPIC
from millrace.zk.codec import TopicAssignment

SHARE = 0.4  # of all seeds that play one workload
TOPIC, TOPIC_ID = "t", UUID(int=7)


class Workloads(NamedTuple):
    """The workloads of a seed.

    Attributes:
        reads: clients read all that is written, from leaders and followers, while faults go on.
    """

    reads: bool

    @classmethod
    def drawn(cls, chance: Random) -> Self:
        """Returns the workloads that chance decides, each for itself."""
        return cls(*(chance.random() < SHARE for _ in cls._fields))

    def __str__(self) -> str:
        return ", ".join(name for name, is_played in self._asdict().items() if is_played) or "none"


def topics_of(workloads: Workloads) -> Mapping[str, TopicAssignment]:  # noqa: ARG001
    """Returns the topics of a seed, with their replicas."""
    return {
        TOPIC: TopicAssignment(topic_id=TOPIC_ID, replicas=((1, 2, 3), (3, 4, 5))),
        OFFSETS_TOPIC: TopicAssignment(topic_id=UUID(int=8), replicas=((2, 3, 4),)),
    }
