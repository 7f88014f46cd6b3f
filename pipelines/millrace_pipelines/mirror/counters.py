"""What an instance has mirrored, and how far behind it is: one place, which metrics, status and progress bars read.

The loop of a partition alone writes its line, and readers take a copy; a figure may be a moment older than the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from millrace.records.batch import NO_TIMESTAMP
from millrace_pipelines.mirror.groups import GroupResult, Outcome
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.stops import Mirrored, Stop


class Counted(NamedTuple):
    """The partition of a source cluster that a line is about."""

    source: str
    what: Mirrored


@dataclass(slots=True)
class TopicCounters:
    """Counts what this instance has mirrored of a topic. It never falls, also where others have the partitions now."""

    records: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class PartitionCounters:
    """One partition, since this instance has had it.

    Attributes:
        way: To follow or to copy.
        records: Records that were mirrored.
        size_bytes: Bytes of their batches.
        next_offset: The source offset up to which all is at the target; None until that is known.
        source_end: Where the source ends: its high watermark or, where records are copied, its last stable offset.
        held_back: How many offsets of the source lie behind the begin of an open transaction, and can't be copied yet.
        newest_ms: The time of the newest record that was mirrored; -1 for none.
        stop: Why nothing more is mirrored.
        trouble: The last error, which may pass; empty once it has.
        is_lasting: Whether that needs somebody to change rights, credentials or settings.
        topic: The counters of its topic.
    """

    way: Way
    records: int = 0
    size_bytes: int = 0
    next_offset: int | None = None
    source_end: int | None = None
    held_back: int = 0
    newest_ms: int = NO_TIMESTAMP
    stop: Stop | None = None
    trouble: str = ""
    is_lasting: bool = False
    topic: TopicCounters = field(default_factory=TopicCounters)

    @property
    def lag(self) -> int | None:
        """How many offsets the target is behind; None while either end is unknown."""
        if self.next_offset is None or self.source_end is None:
            return None
        return max(self.source_end - self.next_offset, 0)

    def count(self, records: int, size_bytes: int, newest_ms: int) -> None:
        """Adds what was mirrored."""
        self.records += records
        self.size_bytes += size_bytes
        self.topic.records += records
        self.topic.size_bytes += size_bytes
        self.newest_ms = max(self.newest_ms, newest_ms)


@dataclass(slots=True)
class GroupCounters:
    """What became of a source's groups, in the instance that moves them.

    Attributes:
        moves: How often a group was moved.
        outcomes: What became of each the last time that there was something to do.
        faulty: Those in whose way something stood then, in all or in some partitions; members are no fault.
    """

    moves: int = 0
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    faulty: set[str] = field(default_factory=set)

    def count(self, result: GroupResult) -> None:
        """Takes what became of a group."""
        self.moves += result.outcome is Outcome.MOVED
        self.outcomes[result.group_id] = result.outcome
        if result.errors and result.outcome is not Outcome.HAS_MEMBERS:
            self.faulty.add(result.group_id)
        else:
            self.faulty.discard(result.group_id)


class Counters:
    """The counters of all partitions that this instance has, and of the transactions that it wrote."""

    def __init__(self) -> None:
        self._lines: dict[Counted, PartitionCounters] = {}
        self._topics: dict[tuple[str, str], TopicCounters] = {}
        self.groups: dict[str, GroupCounters] = {}
        self.transactions = 0
        self.aborted_transactions = 0

    def line(self, source: str, what: Mirrored, way: Way) -> PartitionCounters:
        """Returns the line of a partition that this instance has from now on, for its loop to write."""
        topic = self._topics.setdefault((source, what.topic), TopicCounters())
        return self._lines.setdefault(Counted(source, what), PartitionCounters(way, topic=topic))

    def drop(self, source: str, what: Mirrored) -> None:
        """Removes the line of a partition that another instance has now."""
        self._lines.pop(Counted(source, what), None)

    def groups_of(self, source: str) -> GroupCounters:
        """Returns the line of a source's groups, for the one who moves them to write."""
        return self.groups.setdefault(source, GroupCounters())

    def read(self) -> dict[Counted, PartitionCounters]:
        """Returns a copy of all lines."""
        return {one: replace(line) for one, line in self._lines.copy().items()}

    def topics(self) -> Mapping[tuple[str, str], TopicCounters]:
        """Returns a copy of the counters of all topics that this instance has had, by source and topic."""
        return {one: replace(topic) for one, topic in self._topics.copy().items()}
