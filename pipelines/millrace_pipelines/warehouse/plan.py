"""Which offsets a load reads, and in which tasks: decided from the ledger and the log's ends alone.

ledger:        start ………………… next
log:                  log start ………………… log end
range:                         from = next … until = log end
lost:          next … log start, where retention was faster than the loads
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from millrace_pipelines.spark.read import LogOffsets
from millrace_pipelines.warehouse.errors import LogTruncatedError, OffsetsLostError
from millrace_pipelines.warehouse.ledger import Ledger, LedgerEntry


class OffsetRange(NamedTuple):
    """Offsets of one partition: from_offset up to, not including, until_offset."""

    partition: int
    from_offset: int
    until_offset: int

    @property
    def offsets(self) -> int:
        """How many offsets it spans."""
        return self.until_offset - self.from_offset


class LoadPlan(NamedTuple):
    """What to read, what retention has taken before it could be read, and the ledger after the commit."""

    ranges: tuple[OffsetRange, ...]
    lost: tuple[OffsetRange, ...]
    following: Mapping[int, LedgerEntry]


def plan_load(ledger: Ledger, log: Mapping[int, LogOffsets], *, accept_lost_offsets: bool = False) -> LoadPlan:
    """Everything between the ledger's next offsets and the log's ends.

    Raises:
        OffsetsLostError: Retention deleted offsets that the table doesn't have, and they are not accepted as lost.
        LogTruncatedError: A log ends before its ledger's next offset, or a partition is gone.
    """
    check_log_ends(ledger, log)
    lost = tuple(_lost_ranges(ledger, log))
    if lost and not accept_lost_offsets:
        raise OffsetsLostError(_lost_message(ledger.topic, lost))
    ranges: list[OffsetRange] = []
    following: dict[int, LedgerEntry] = {}
    for partition, offsets in sorted(log.items()):
        entry = ledger.partitions.get(partition)
        start = offsets.start_offset if entry is None else max(entry.next_offset, offsets.start_offset)
        if offsets.end_offset > start:
            ranges.append(OffsetRange(partition, start, offsets.end_offset))
        following[partition] = LedgerEntry(start if entry is None else entry.start_offset, offsets.end_offset)
    return LoadPlan(tuple(ranges), lost, following)


def split_ranges(ranges: Iterable[OffsetRange], max_records_per_task: int) -> list[OffsetRange]:
    """The ranges cut into equal tasks of at most so many offsets."""
    tasks: list[OffsetRange] = []
    for partition, from_offset, until_offset in ranges:
        pieces = -(-(until_offset - from_offset) // max_records_per_task)
        bounds = [from_offset + (until_offset - from_offset) * piece // pieces for piece in range(pieces + 1)]
        tasks.extend(OffsetRange(partition, low, high) for low, high in pairwise(bounds))
    return tasks


def check_log_ends(ledger: Ledger, log: Mapping[int, LogOffsets]) -> None:
    """Raise LogTruncatedError unless every partition of the ledger is there and reaches its next offset."""
    for partition, entry in ledger.partitions.items():
        if partition not in log:
            raise LogTruncatedError(f"topic {ledger.topic}: partition {partition} is in the table but not in the topic")
        end_offset = log[partition].end_offset
        if end_offset < entry.next_offset:
            raise LogTruncatedError(
                f"topic {ledger.topic}, partition {partition}: the log ends at offset {end_offset}, the table has "
                f"offsets up to {entry.next_offset - 1}: the log was cut or made anew; load it into another table"
            )


def _lost_ranges(ledger: Ledger, log: Mapping[int, LogOffsets]) -> Iterator[OffsetRange]:
    for partition, entry in sorted(ledger.partitions.items()):
        if log[partition].start_offset > entry.next_offset:
            yield OffsetRange(partition, entry.next_offset, log[partition].start_offset)


def _lost_message(topic: str, lost: Iterable[OffsetRange]) -> str:
    spans = ", ".join(f"partition {span.partition}: {span.from_offset}-{span.until_offset - 1}" for span in lost)
    return (
        f"topic {topic}: retention deleted offsets that were not loaded ({spans}); "
        "--accept-lost-offsets goes on without them and says so in the table's history"
    )
