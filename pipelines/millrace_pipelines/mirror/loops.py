"""What the two loops share: how they go round, the partitions that they are to have, and the doors to two clusters.

A door is for one thread, and raises nothing: an error is a partition's answer.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from millrace.client.log_offsets import LogOffsets
from millrace.client.metadata import Partition
from millrace.clock import Clock
from millrace.errors import BrokerUnreachableError, MillraceError
from millrace_pipelines.mirror.counters import Counters, PartitionCounters
from millrace_pipelines.mirror.fetching import Answers, Bounds
from millrace_pipelines.mirror.pauses import Throttle
from millrace_pipelines.mirror.rights import is_lasting
from millrace_pipelines.mirror.settings import Accept
from millrace_pipelines.mirror.stops import Mirrored
from millrace_pipelines.mirror.telling import Tell, Troubles

IDLE_S = 0.05
LOOKS_AT_ONCE = 200  # partitions

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


class MirrorLoop(ABC):
    """The mirrored partitions of one source, in one thread; `stop` is for any thread.

    Args:
        source: The source's name.
        around: Where it writes down what it did, and tells people.
        background: Runs fetches.
    """

    def __init__(self, source: str, around: Surroundings, background: Background[Answers]) -> None:
        self._source = source
        self._counters = around.counters
        self._tell = around.tell
        self._now_s = around.clock.monotonic_s
        self._throttle = around.throttle
        self._background = background
        self._troubles = Troubles(around.tell, around.clock)
        self._assigned: Assignment = {}
        self._round = 0
        self._changed = threading.Condition()
        self._is_stopping = False

    @property
    def is_stopping(self) -> bool:
        """Whether the loop is to end."""
        return self._is_stopping

    def stop(self) -> None:
        """Has the loop end after its round."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()

    def run(self) -> None:
        """Goes round until it is stopped."""
        while not self._is_stopping:
            if not self.go_round():
                with self._changed:
                    self._changed.wait_for(lambda: self._is_stopping, IDLE_S)

    @abstractmethod
    def go_round(self) -> bool:
        """Does what is due once; returns whether anything was."""

    def _note_trouble(
        self, counters: PartitionCounters, what: Mirrored, error: MillraceError, *, is_of_target: bool
    ) -> None:
        """Writes down why a partition does not go on now, and tells it of the cluster where that can't be reached."""
        counters.trouble, counters.is_lasting = str(error), is_lasting(error)
        side = "the target" if is_of_target else f"source {self._source}"
        self._troubles.fails(side if isinstance(error, BrokerUnreachableError) else str(what), error)
