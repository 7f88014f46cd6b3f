"""The part of a topic that is reloaded, as a user selects it: partitions, offsets, times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from millrace_pipelines.spark.brokers import LogOffsets, TopicSource, offsets_for_time
from millrace_pipelines.warehouse.errors import ModeError
from millrace_pipelines.warehouse.ledger.ledger import Ledger
from millrace_pipelines.warehouse.ledger.plan_reload import RequestedRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A part of a topic. None leaves a side open; a time stands for the first record at or after it.

    `until_table_begins` selects what lies below the table's first offsets, for a backfill.
    """

    partitions: tuple[int, ...] | None = None
    from_offset: int | None = None
    until_offset: int | None = None
    from_time_ms: int | None = None
    until_time_ms: int | None = None
    until_table_begins: bool = False


def requested_ranges(
    selection: Selection, source: TopicSource, log: Mapping[int, LogOffsets], ledger: Ledger
) -> dict[int, RequestedRange]:
    """Returns the selection in offsets, by partition; raises ModeError where it has both an offset and a time."""
    if selection.from_offset is not None and selection.from_time_ms is not None:
        raise ModeError("a range begins at an offset or at a time, not at both")
    if selection.until_offset is not None and selection.until_time_ms is not None:
        raise ModeError("a range ends at an offset or at a time, not at both")
    chosen = sorted(log) if selection.partitions is None else selection.partitions
    begins = _offsets(source, chosen, log, selection.from_time_ms, selection.from_offset)
    ends = _offsets(source, chosen, log, selection.until_time_ms, selection.until_offset)
    if selection.until_table_begins:
        ends = {partition: _table_begins(ledger, partition) for partition in chosen}
    return {partition: RequestedRange(begins[partition], ends[partition]) for partition in chosen}


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
