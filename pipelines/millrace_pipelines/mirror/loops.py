"""What the two loops share: the partitions that an instance is to have, and the doors to the two clusters.

A door is for one thread, and raises nothing: an error is a partition's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from millrace.client.log_offsets import LogOffsets
from millrace.client.metadata import Partition
from millrace.clock import Clock
from millrace.errors import MillraceError
from millrace_pipelines.mirror.counters import Counters
from millrace_pipelines.mirror.fetching import Answers, Bounds
from millrace_pipelines.mirror.pauses import Throttle
from millrace_pipelines.mirror.settings import Accept
from millrace_pipelines.mirror.stops import Mirrored
from millrace_pipelines.mirror.telling import Tell

Result = TypeVar("Result")
Background = Callable[[Callable[[], Result]], "Future[Result]"]
"""Runs a function on another thread, one at a time."""


class Begin(NamedTuple):
    """How a partition is begun: from which offset, of which topic of the source, and in spite of what.

    A partition that has stopped is begun once more when any of it changes, such as the time of the topic's state.
    """

    start_offset: int = 0
    source_topic_id: str | None = None
    target_topic_id: str | None = None
    accepted: frozenset[Accept] = frozenset()
    changed_ms: int = 0


Assignment = Mapping[Mirrored, Begin]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the loops of an instance have beside their doors to clusters: the throttle is of all that is read."""

    counters: Counters
    tell: Tell
    clock: Clock
    throttle: Throttle


class Reads(Protocol):
    """The door to records of one cluster."""

    def fetch(self, offsets: Mapping[Partition, int], bounds: Bounds = ...) -> Answers:
        """Returns what each partition has from an offset on, or its error."""


class Looks(Protocol):
    """The door to what a cluster says about its topics."""

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, LogOffsets | MillraceError]:
        """Returns where each partition's log starts and ends."""

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str | None]:
        """Returns the id of each topic; None for one that has none, or can't be asked for."""

    def is_compacted(self, topic: str) -> bool:
        """Returns whether compaction removes records of a topic; raises BrokerError or another MillraceError."""
