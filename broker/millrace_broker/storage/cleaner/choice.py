"""Which log to compact next, and how far: pure choices over what is known of each log (Kafka's names).

    log start offset        first dirty offset          end of the cleanable part      log end offset
          |   clean: once per key   |   dirty: not compacted   |   not yet: too young, unsynced, active   |

The dirtiest log is the one with the largest share of dirty bytes in what a compaction would rewrite. A log is due when
that share is above `min.cleanable.dirty.ratio`, or when the first batch of a dirty segment, whichever of them is the
oldest, is older than `max.compaction.lag.ms`.

A log whose compaction fails is left alone for a while, which grows, and keeps no other from it (`FailingLogs`):

    failure     1       2       3       …       7 and later
    pause       15 s    30 s    60 s            15 min

A log is named, with the reason, until a compaction succeeds. Another log of the same name begins afresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millrace.clock import Clock
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.log.log import Log
from millrace_broker.storage.retention import SegmentFacts

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 15_000, 900_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Dirtiness:
    """The bytes of a log that are compacted (clean) or not yet (dirty), and the oldest dirty batch's time or -1."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    oldest_dirty_ms: int = -1

    @property
    def ratio(self) -> float:
        """The share of dirty bytes in all that would be rewritten."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)

    def due_reason(self, *, min_ratio: float, max_compaction_lag_ms: int, now_ms: int) -> str | None:
        """Returns why the log's settings ask for a compaction; None if they do not."""
        if not self.dirty_bytes:
            return None
        if self.oldest_dirty_ms >= 0 and now_ms - self.oldest_dirty_ms > max_compaction_lag_ms:
            return "older than max.compaction.lag.ms"
        return "dirty ratio above min.cleanable.dirty.ratio" if self.ratio > min_ratio else None


def first_dirty_offset(checkpoint: int | None, *, log_start_offset: int, log_end_offset: int) -> int:
    """Returns `checkpoint`, where the last compaction ended; the log start offset if it is None or outside the log."""
    if checkpoint is None or not log_start_offset <= checkpoint <= log_end_offset:
        return log_start_offset
    return checkpoint


def end_of_cleanable(
    closed: Sequence[SegmentFacts], *, up_to_offset: int, min_compaction_lag_ms: int, now_ms: int
) -> int:
    """Returns the offset below which segments may be compacted: closed ones, up to `up_to_offset`, older than the lag.

    What lies below `up_to_offset` must be synced and committed: a value must not be dropped while the newer value of
    its key can still be lost. A segment is as old as its newest record.
    """
    end = closed[0].base_offset if closed else 0
    for segment in closed:
        too_young = min_compaction_lag_ms > 0 and segment.max_timestamp > now_ms - min_compaction_lag_ms
        if too_young or segment.next_offset > up_to_offset:
            break
        end = segment.next_offset
    return end


def dirtiness(
    closed: Sequence[SegmentFacts], *, first_dirty_offset: int, end_offset: int, oldest_dirty_ms: int = -1
) -> Dirtiness:
    """Returns how many bytes of the segments below `end_offset` are compacted and how many are dirty.

    A segment that holds `first_dirty_offset` counts as dirty.
    """
    cleanable = [segment for segment in closed if segment.base_offset < end_offset]
    clean_bytes = sum(segment.size_bytes for segment in cleanable if segment.next_offset <= first_dirty_offset)
    return Dirtiness(
        first_dirty_offset=first_dirty_offset,
        end_offset=end_offset,
        clean_bytes=clean_bytes,
        dirty_bytes=sum(segment.size_bytes for segment in cleanable) - clean_bytes,
        oldest_dirty_ms=oldest_dirty_ms,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """The most bytes, index entries and offsets of one segment."""

    size_bytes: int
    index_entries: int
    offsets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSizes:
    """The offsets, bytes and index entries of a segment, by which `group_sizes` unites small ones."""

    base_offset: int
    next_offset: int
    size_bytes: int
    index_entries: int


def group_sizes(segments: Iterable[SegmentSizes], limits: GroupLimits) -> list[int]:
    """Divides segments into groups of neighbours that each fit into one segment; returns how many each group has."""
    counts: list[int] = []
    base_offset = size_bytes = index_entries = 0
    for segment in segments:
        size_bytes += segment.size_bytes
        index_entries += segment.index_entries
        fits = (
            size_bytes <= limits.size_bytes
            and index_entries <= limits.index_entries
            and segment.next_offset - base_offset <= limits.offsets
        )
        if counts and fits:
            counts[-1] += 1
        else:
            counts.append(1)
            base_offset = segment.base_offset
            size_bytes, index_entries = segment.size_bytes, segment.index_entries
    return counts


class Failure(NamedTuple):
    """A log's last failed compaction, and how long and until when (monotonic ms) the log is left alone."""

    log: Log
    reason: str
    pause_ms: int
    until_ms: int


class FailingLogs:
    """The logs left alone for a while after a failed compaction. Of it, other threads may use only `failures`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[TopicPartition, Failure] = {}

    def is_due(self, log: Log) -> bool:
        """Returns whether a log has not failed, or its pause after the last failure is over."""
        failure = self._of(log)
        return failure is None or self._clock.monotonic_ms() >= failure.until_ms

    def note_failure(self, log: Log, reason: str) -> None:
        """Leaves a log alone for `FIRST_PAUSE_MS`, and after each further failure for twice as long as before."""
        before = self._of(log)
        pause_ms = FIRST_PAUSE_MS if before is None else min(2 * before.pause_ms, LONGEST_PAUSE_MS)
        until_ms = self._clock.monotonic_ms() + pause_ms
        self._failures = {**self._failures, log.topic_partition: Failure(log, reason, pause_ms, until_ms)}

    def note_success(self, log: Log) -> None:
        """Ends the pause of a log, and forgets that it failed."""
        if log.topic_partition in self._failures:
            self._failures = {key: one for key, one in self._failures.items() if key != log.topic_partition}

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The last failed compaction of each log that has not been compacted since, in the order of the logs' names."""
        return tuple(one for _, one in sorted(self._failures.items()))

    def _of(self, log: Log) -> Failure | None:
        failure = self._failures.get(log.topic_partition)
        return failure if failure is not None and failure.log is log else None
