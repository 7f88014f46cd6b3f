"""Which offsets a load reads, and in which tasks: decided from the ledger and the log's ends alone.

ledger:        start ………………… next
log:                  log start ………………………… log end
range:                         from = next … until       until = log end, or less where a load is bounded
lost:          next … log start, where retention was faster than the loads
lag:                                         until … log end

The table's first load begins each partition at its log's start. A later load begins a partition that the ledger doesn't
know at offset 0: the topic got it since, and what its log no longer has was lost.

A reload is planned from the same and from what is requested:

    ledger:              start ………………………………………… next
    requested:     from …………………………………………… until
    log:            log start …………………………………………………… log end
    range:                 from' ………………………… until'             within the log, and not beyond next
    earlier:              from' … start                        new rows below the table's beginning; the start moves
    replaced:                      start …… until'              rows that are removed, and written again
    lost:        from … log start                               can't be read any more; the table's rows of it stay

What lies beyond `next` is left to a load. A partition that the ledger doesn't know begins with its range.

A user selects the part of a topic that is reloaded by partitions, offsets, times (`Selection`).
A range is a range of offsets in each partition, and a time is a way to name an offset: that of the first record whose
timestamp is the time or later (ListOffsets). So [from, until) begins, in each partition, at the first record of `from`
or later, and ends before the first record of `until` or later.

    timestamps of a partition     08:00  09:00  11:00  09:30  10:00  12:00
    [09:00, 11:00)                       09:00
    [09:00, 12:00)                       09:00  11:00  09:30  10:00

Where timestamps only rise, these are exactly the records of that stretch of time, and ranges that meet in time meet in
offsets: they never overlap and leave no gap between them. Where they don't, the range may have records from before
`from` that come after its first one, and lacks records of the stretch that come after one of `until` or later (09:30
and 10:00 above): these belong to the range in which their offset lies. Timestamps are those of the records, given by
producers, or by the broker where the topic has `message.timestamp.type=LogAppendTime`.

Records that retention has deleted have no time any more: a range that begins at a time begins at the log's start at
the earliest, and no offsets of it are lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heapreplace
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from millrace.records.batch import NO_LEADER_EPOCH
from millrace.times import epoch_ms
from millrace_pipelines.spark.brokers import LogOffsets, TopicSource, offsets_for_time
from millrace_pipelines.spark.errors import Accept, OffsetsLostError
from millrace_pipelines.warehouse.errors import ModeError
from millrace_pipelines.warehouse.ledger.ledger import Ledger, LedgerEntry

RETENTION = "retention"
MIN_RECORDS_PER_TASK = 100_000
TASK_RECORDS = 100_000
"""The start and the end of a Spark task cost about as much as this number of small records."""
MAX_ROUNDS = 4
MAX_SHOWN = 20


class OffsetRange(NamedTuple):
    """Offsets of one partition: from_offset up to, not including, until_offset."""

    partition: int
    from_offset: int
    until_offset: int

    @property
    def offsets(self) -> int:
        """Returns the number of offsets."""
        return self.until_offset - self.from_offset


class LostRange(NamedTuple):
    """Offsets that can't be read any more and that a load goes on without, and the reason."""

    partition: int
    from_offset: int
    until_offset: int
    reason: str


class LoadPlan(NamedTuple):
    """The offset ranges that a load reads, lost ranges, and the ledger's entries and each partition's lag after it."""

    ranges: tuple[OffsetRange, ...]
    lost: tuple[LostRange, ...]
    following: Mapping[int, LedgerEntry]
    lag: Mapping[int, int]


RangePlan: TypeAlias = "LoadPlan | ReloadPlan"


def plan_load(
    ledger: Ledger,
    log: Mapping[int, LogOffsets],
    *,
    accept_lost_offsets: bool = False,
    max_records: int | None = None,
) -> LoadPlan:
    """Plans to read what lies between the ledger's next offsets and the log's ends, at most `max_records` offsets.

    A read of committed records may end below the ledger, if earlier reads took all; then there is nothing to read.

    Raises:
        OffsetsLostError: Retention deleted offsets that the table doesn't have, and they are not accepted as lost.
    """
    lost = tuple(_lost_ranges(ledger, log))
    if lost and not accept_lost_offsets:
        raise OffsetsLostError(_lost_message(ledger.topic, lost), Accept.LOST_OFFSETS)
    starts = {partition: max(_expected(ledger, partition, log[partition]), log[partition].start_offset)
              for partition in sorted(log)}  # fmt: skip
    ends = {partition: max(log[partition].end_offset, start) for partition, start in starts.items()}
    shares = share_out({partition: ends[partition] - start for partition, start in starts.items()}, max_records)
    ranges = [OffsetRange(partition, start, start + shares[partition]) for partition, start in starts.items()]
    return LoadPlan(
        ranges=tuple(offset_range for offset_range in ranges if offset_range.offsets),
        lost=lost,
        following={offset_range.partition: _following(ledger, offset_range) for offset_range in ranges},
        lag={
            offset_range.partition: ends[offset_range.partition] - offset_range.until_offset for offset_range in ranges
        },
    )


def share_out(wanted: Mapping[int, int], limit: int | None) -> dict[int, int]:
    """Shares at most `limit` out among partitions in equal parts; what one does not want goes to the others."""
    left = sum(wanted.values()) if limit is None else limit
    shares: dict[int, int] = {}
    for served, (partition, count) in enumerate(sorted(wanted.items(), key=lambda item: item[1])):
        shares[partition] = min(count, -(-left // (len(wanted) - served)))
        left -= shares[partition]
    return shares


def split_ranges(ranges: Iterable[OffsetRange], max_records_per_task: int) -> list[OffsetRange]:
    """Cuts each range into pieces of equal size, one for each task, of at most `max_records_per_task` offsets."""
    tasks: list[OffsetRange] = []
    for partition, from_offset, until_offset in ranges:
        pieces = -(-(until_offset - from_offset) // max_records_per_task)
        bounds = [from_offset + (until_offset - from_offset) * piece // pieces for piece in range(pieces + 1)]
        tasks.extend(OffsetRange(partition, low, high) for low, high in pairwise(bounds))
    return tasks


def records_per_task(ranges: Sequence[OffsetRange], cores: int, max_records_per_task: int) -> int:
    """Returns the number of offsets in a task, for `split_ranges`, with which all cores end soonest; the largest such.

    The candidates are each core's share of all offsets in one task, in two, and so on up to MAX_ROUNDS; none is smaller
    than MIN_RECORDS_PER_TASK, or larger than the bound.
    """
    if max_records_per_task <= MIN_RECORDS_PER_TASK:
        return max_records_per_task
    offsets = sum(offset_range.offsets for offset_range in ranges)
    shares = (-(-offsets // (cores * rounds)) for rounds in range(1, MAX_ROUNDS + 1))
    sizes = [min(max_records_per_task, max(MIN_RECORDS_PER_TASK, share)) for share in shares]
    return min(sizes, key=lambda size: _busiest_core(split_ranges(ranges, size), cores))


def _busiest_core(tasks: Iterable[OffsetRange], cores: int) -> int:
    """Returns the number of offsets on the core that ends last, where each core takes the next task when it is free."""
    done = [0] * cores
    for task in tasks:
        heapreplace(done, done[0] + task.offsets + TASK_RECORDS)
    return max(done)


def _expected(ledger: Ledger, partition: int, log: LogOffsets) -> int:
    """Returns the first offset that a load is to read of a partition."""
    if (entry := ledger.partitions.get(partition)) is not None:
        return entry.next_offset
    return 0 if ledger.partitions else log.start_offset


def _following(ledger: Ledger, offset_range: OffsetRange) -> LedgerEntry:
    """Returns a partition's ledger entry after a load; without its leader epoch where offsets were lost before."""
    entry = ledger.partitions.get(offset_range.partition)
    if entry is None:
        return LedgerEntry(0 if ledger.partitions else offset_range.from_offset, offset_range.until_offset)
    leader_epoch = entry.leader_epoch if entry.next_offset == offset_range.from_offset else NO_LEADER_EPOCH
    return LedgerEntry(entry.start_offset, offset_range.until_offset, leader_epoch)


def _lost_ranges(ledger: Ledger, log: Mapping[int, LogOffsets]) -> Iterator[LostRange]:
    for partition, offsets in sorted(log.items()):
        expected = _expected(ledger, partition, offsets)
        if offsets.start_offset > expected:
            yield LostRange(partition, expected, offsets.start_offset, RETENTION)


def shown(lost: Iterable[LostRange | OffsetRange]) -> str:
    """Returns the first few ranges as text, for an error's message."""
    ranges = [
        f"partition {offset_range.partition}: {offset_range.from_offset}-{offset_range.until_offset - 1}"
        for offset_range in lost
    ]
    return ", ".join(ranges[:MAX_SHOWN]) + (f" and {len(ranges) - MAX_SHOWN} more" if len(ranges) > MAX_SHOWN else "")


def _lost_message(topic: str, lost: Iterable[LostRange]) -> str:
    return (
        f"topic {topic}: retention deleted offsets that were not loaded ({shown(lost)}); "
        f"{Accept.LOST_OFFSETS.flag} goes on without them and says so in the table's history"
    )


class RequestedRange(NamedTuple):
    """The requested offsets of a partition, `until_offset` not included; None for the log's beginning or end."""

    from_offset: int | None
    until_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadPlan:
    """The ranges that a reload reads, those new to the table and those to replace, and the changed ledger entries."""

    earlier: tuple[OffsetRange, ...]
    replaced: tuple[OffsetRange, ...]
    lost: tuple[LostRange, ...]
    following: Mapping[int, LedgerEntry]

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """Returns all ranges that are read; a partition may have one of new offsets and one of offsets to replace."""
        return tuple(sorted([*self.earlier, *self.replaced]))


def plan_reload(
    ledger: Ledger,
    log: Mapping[int, LogOffsets],
    requested: Mapping[int, RequestedRange],
    *,
    accept_lost_offsets: bool = False,
) -> ReloadPlan:
    """Plans the reload of ranges: which offsets are read, which are new to the table, and the ledger after it.

    Raises:
        OffsetsLostError: Requested offsets are in the log no more, and that is not accepted.
        ModeError: The topic doesn't have a partition, or a range leaves a gap below the table's beginning.
    """
    if unknown := sorted(requested.keys() - log.keys()):
        raise ModeError(f"topic {ledger.topic} has no partition {', '.join(map(str, unknown))}")
    ranges = {
        partition: _requested_offsets(wanted, log[partition], ledger, partition)
        for partition, wanted in sorted(requested.items())
    }
    lost = tuple(
        LostRange(partition, low, min(high, log[partition].start_offset), RETENTION)
        for partition, (low, high) in ranges.items()
        if low < min(high, log[partition].start_offset)
    )
    if lost and not accept_lost_offsets:
        raise OffsetsLostError(_lost_reload_message(ledger.topic, lost), Accept.LOST_OFFSETS)
    parts = [
        part
        for partition, (low, high) in ranges.items()
        for part in _parts(ledger, partition, max(low, log[partition].start_offset), high)
    ]
    earlier = tuple(offset_range for offset_range, is_new in parts if is_new and offset_range.offsets > 0)
    following = _following_reload(ledger, log, earlier)
    replaced = tuple(offset_range for offset_range, is_new in parts if not is_new and offset_range.offsets > 0)
    return ReloadPlan(earlier=earlier, replaced=replaced, lost=lost, following=following)


def _requested_offsets(wanted: RequestedRange, log: LogOffsets, ledger: Ledger, partition: int) -> tuple[int, int]:
    """Returns the bounds of a requested range in offsets; the upper one is at most the end of the table."""
    end_offset = ledger.partitions[partition].next_offset if partition in ledger.partitions else log.end_offset
    low = log.start_offset if wanted.from_offset is None else wanted.from_offset
    high = end_offset if wanted.until_offset is None else min(wanted.until_offset, end_offset)
    return low, max(low, high)


def _parts(ledger: Ledger, partition: int, low: int, high: int) -> list[tuple[OffsetRange, bool]]:
    """Cuts the range from `low` to `high` where the table begins; returns the pieces, and whether each is new to it."""
    entry = ledger.partitions.get(partition)
    if entry is None:
        return [(OffsetRange(partition, low, high), True)]
    if low < high < entry.start_offset:
        raise ModeError(
            f"partition {partition}: the table begins at offset {entry.start_offset}, the range ends at {high}: the "
            f"gap between would never be filled; go on until {entry.start_offset}, or load into another table"
        )
    cut = max(low, min(high, entry.start_offset))
    return [(OffsetRange(partition, low, cut), True), (OffsetRange(partition, cut, high), False)]


def _following_reload(
    ledger: Ledger, log: Mapping[int, LogOffsets], earlier: tuple[OffsetRange, ...]
) -> dict[int, LedgerEntry]:
    """Returns the ledger entries that `earlier` offsets change; a new partition's is empty, at the start of its log."""
    following = {
        partition: LedgerEntry(offsets.start_offset, offsets.start_offset)
        for partition, offsets in log.items()
        if partition not in ledger.partitions
    }
    for partition, low, high in earlier:
        entry = ledger.partitions.get(partition)
        following[partition] = LedgerEntry(low, high if entry is None else entry.next_offset)
    return following


def _lost_reload_message(topic: str, lost: Iterable[LostRange]) -> str:
    return (
        f"topic {topic}: retention deleted requested offsets ({shown(lost)}); {Accept.LOST_OFFSETS.flag} reloads the "
        "others, and leaves the rows of these as they are"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A part of a topic, by offsets or times; None leaves a side open.

    Attributes:
        partitions: Which partitions; None for all.
        from_offset: The first offset.
        until_offset: The offset after the last one.
        from_time_ms: Begins at the first record of this time or later, in milliseconds since 1970.
        until_time_ms: Ends before the first record of this time or later.
        until_table_begins: Ends where the table begins, for earlier offsets.
    """

    partitions: tuple[int, ...] | None = None
    from_offset: int | None = None
    until_offset: int | None = None
    from_time_ms: int | None = None
    until_time_ms: int | None = None
    until_table_begins: bool = False

    @classmethod
    def of_times(cls, start: datetime, end: datetime, partitions: tuple[int, ...] | None = None) -> Selection:
        """Selects a stretch of time, from `start` up to, not including, `end`; a time without a zone is one of UTC."""
        return cls(partitions=partitions, from_time_ms=epoch_ms(start), until_time_ms=epoch_ms(end))


def requested_ranges(
    selection: Selection, source: TopicSource, log: Mapping[int, LogOffsets], ledger: Ledger
) -> dict[int, RequestedRange]:
    """Returns the offsets that a selection means in each partition.

    Raises:
        ModeError: An end of the range has both an offset and a time, or the range ends before it begins.
    """
    if selection.from_offset is not None and selection.from_time_ms is not None:
        raise ModeError("a range begins at an offset or at a time, not at both")
    if selection.until_offset is not None and selection.until_time_ms is not None:
        raise ModeError("a range ends at an offset or at a time, not at both")
    if _is_before(selection.until_offset, selection.from_offset):
        raise ModeError("a range ends at an offset below that at which it begins")
    if _is_before(selection.until_time_ms, selection.from_time_ms):
        raise ModeError("a range ends at a time before that at which it begins")
    chosen = sorted(log) if selection.partitions is None else selection.partitions
    begins = _offsets(source, chosen, log, selection.from_time_ms, selection.from_offset)
    ends = _offsets(source, chosen, log, selection.until_time_ms, selection.until_offset)
    if selection.until_table_begins:
        ends = {partition: _table_begins(ledger, partition) for partition in chosen}
    return {partition: RequestedRange(begins[partition], ends[partition]) for partition in chosen}


def _is_before(end: int | None, begin: int | None) -> bool:
    return end is not None and begin is not None and end < begin


def _offsets(
    source: TopicSource,
    partitions: Iterable[int],
    log: Mapping[int, LogOffsets],
    time_ms: int | None,
    offset: int | None,
) -> dict[int, int | None]:
    if time_ms is None:
        return dict.fromkeys(partitions, offset)
    found = offsets_for_time(source, [partition for partition in partitions if partition in log], time_ms)
    return {partition: log[partition].end_offset if offset is None else offset for partition, offset in found.items()}


def _table_begins(ledger: Ledger, partition: int) -> int | None:
    entry = ledger.partitions.get(partition)
    return None if entry is None else entry.start_offset
