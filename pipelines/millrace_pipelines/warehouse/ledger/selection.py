"""The part of a topic that is reloaded, as a user selects it: partitions, offsets, times.

A range is a range of offsets in each partition, and a time is a way to name an offset: that of the first record whose
timestamp is the time or later (ListOffsets). So [from, until) begins, in each partition, at the first record of `from`
or later, and ends before the first record of `until` or later.

    timestamps of a partition     08:00  09:00  11:00  09:30  10:00  12:00
    [09:00, 11:00)                       09:00
    [09:00, 12:00)                       09:00  11:00  09:30  10:00

Where timestamps only rise, these are exactly the records of that span of time, and ranges that meet in time meet in
offsets: they never overlap and leave no gap between them. Where they don't, the range may have records from before
`from` that come after its first one, and lacks records of the span that come after one of `until` or later (09:30 and
10:00 above): these belong to the range in which their offset lies. Timestamps are those of the records, given by
producers, or by the broker where the topic has `message.timestamp.type=LogAppendTime`.

Records that retention has deleted have no time any more: a range that begins at a time begins at the log's start at
the earliest, and no offsets of it are lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from millrace.times import epoch_ms
from millrace_pipelines.spark.brokers import LogOffsets, TopicSource, offsets_for_time
from millrace_pipelines.warehouse.errors import ModeError
from millrace_pipelines.warehouse.ledger.ledger import Ledger
from millrace_pipelines.warehouse.ledger.plan import RequestedRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A part of a topic. None leaves a side open.

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
        """Selects a span of time, from `start` up to, not including, `end`; a time without a zone is one of UTC."""
        return cls(partitions=partitions, from_time_ms=epoch_ms(start), until_time_ms=epoch_ms(end))


def requested_ranges(
    selection: Selection, source: TopicSource, log: Mapping[int, LogOffsets], ledger: Ledger
) -> dict[int, RequestedRange]:
    """Returns the selection in offsets, by partition.

    Raises:
        ModeError: A side has both an offset and a time, or the range ends before it begins.
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
