"""Which offsets a reload reads, and what they replace: decided from the ledger, the log's ends and the request alone.

ledger:              start ………………………………………… next
requested:     from …………………………………………… until
log:            log start …………………………………………………… log end
range:                 from' ………………………… until'             within the log, and not beyond next
earlier:              from' … start                        new rows below the table's beginning; the start moves
replaced:                      start …… until'              rows that are removed, and written again
lost:        from … log start                               can't be read any more; the table's rows of it stay

What lies beyond `next` is left to a load. A partition that the ledger doesn't know begins with its range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from millrace_pipelines.spark.brokers import LogOffsets
from millrace_pipelines.spark.errors import Accept, OffsetsLostError
from millrace_pipelines.warehouse.errors import ModeError
from millrace_pipelines.warehouse.ledger.ledger import Ledger, LedgerEntry
from millrace_pipelines.warehouse.ledger.plan import RETENTION, LostRange, OffsetRange


class RequestedRange(NamedTuple):
    """The offsets of a partition that are requested, `until_offset` not included; None for its beginning or end."""

    from_offset: int | None
    until_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadPlan:
    """What a reload reads: offsets new to the table, and offsets to replace; and the ledger's entries after it."""

    earlier: tuple[OffsetRange, ...]
    replaced: tuple[OffsetRange, ...]
    lost: tuple[LostRange, ...]
    following: Mapping[int, LedgerEntry]

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """All ranges that are read; a partition may have one of new offsets and one of offsets to replace."""
        return tuple(sorted([*self.earlier, *self.replaced]))


def plan_reload(
    ledger: Ledger,
    log: Mapping[int, LogOffsets],
    requested: Mapping[int, RequestedRange],
    *,
    accept_lost_offsets: bool = False,
) -> ReloadPlan:
    """Plans the reload of some partitions' ranges.

    Raises:
        OffsetsLostError: Requested offsets are in the log no more, and that is not accepted.
        ModeError: The topic doesn't have a partition, or a range leaves a gap below the table's beginning.
    """
    if unknown := sorted(requested.keys() - log.keys()):
        raise ModeError(f"topic {ledger.topic} has no partition {', '.join(map(str, unknown))}")
    spans = {
        partition: _span(wanted, log[partition], ledger, partition) for partition, wanted in sorted(requested.items())
    }
    lost = tuple(_lost(partition, *span, log[partition].start_offset) for partition, span in spans.items()
                 if span[0] < min(span[1], log[partition].start_offset))  # fmt: skip
    if lost and not accept_lost_offsets:
        raise OffsetsLostError(_lost_message(ledger.topic, lost), Accept.LOST_OFFSETS)
    parts = [
        part
        for partition, (low, high) in spans.items()
        for part in _parts(ledger, partition, max(low, log[partition].start_offset), high)
    ]
    earlier = tuple(span for span, is_new in parts if is_new and span.offsets > 0)
    following = _following(ledger, log, earlier)
    replaced = tuple(span for span, is_new in parts if not is_new and span.offsets > 0)
    return ReloadPlan(earlier=earlier, replaced=replaced, lost=lost, following=following)


def _span(wanted: RequestedRange, log: LogOffsets, ledger: Ledger, partition: int) -> tuple[int, int]:
    """Returns the requested range in numbers, cut where the table ends."""
    end_offset = ledger.partitions[partition].next_offset if partition in ledger.partitions else log.end_offset
    low = log.start_offset if wanted.from_offset is None else wanted.from_offset
    high = end_offset if wanted.until_offset is None else min(wanted.until_offset, end_offset)
    return low, max(low, high)


def _lost(partition: int, low: int, high: int, log_start: int) -> LostRange:
    return LostRange(partition, low, min(high, log_start), RETENTION)


def _parts(ledger: Ledger, partition: int, low: int, high: int) -> list[tuple[OffsetRange, bool]]:
    """Cuts the range where the table begins, and says of each piece whether it is new to the table."""
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


def _following(
    ledger: Ledger, log: Mapping[int, LogOffsets], earlier: tuple[OffsetRange, ...]
) -> dict[int, LedgerEntry]:
    """Returns the entries that earlier offsets begin; in a new ledger others begin, empty, where their logs do."""
    following = {
        partition: LedgerEntry(offsets.start_offset, offsets.start_offset)
        for partition, offsets in log.items()
        if partition not in ledger.partitions
    }
    for partition, low, high in earlier:
        entry = ledger.partitions.get(partition)
        following[partition] = LedgerEntry(low, high if entry is None else entry.next_offset)
    return following


def _lost_message(topic: str, lost: tuple[LostRange, ...]) -> str:
    spans = ", ".join(f"partition {span.partition}: {span.from_offset}-{span.until_offset - 1}" for span in lost)
    return (
        f"topic {topic}: retention deleted requested offsets ({spans}); {Accept.LOST_OFFSETS.flag} reloads the others, "
        "and leaves the rows of these as they are"
    )
