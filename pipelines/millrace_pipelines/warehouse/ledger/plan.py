"""Which offsets a load reads, and in which tasks: decided from the ledger and the log's ends alone.

ledger:        start ………………… next
log:                  log start ………………………… log end
range:                         from = next … until       until = log end, or less where a load is bounded
lost:          next … log start, where retention was faster than the loads
lag:                                         until … log end

A partition that the ledger doesn't know is begun at its log's start by the table's first load; by a later one, to which
the partition is new, at offset 0: what the log lacks then was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapreplace
from itertools import pairwise
from typing import NamedTuple

from millrace.records.batch import NO_LEADER_EPOCH
from millrace_pipelines.spark.errors import OffsetsLostError
from millrace_pipelines.spark.read import LogOffsets
from millrace_pipelines.warehouse.ledger.ledger import Ledger, LedgerEntry

RETENTION = "retention"
MIN_RECORDS_PER_TASK = 100_000
TASK_RECORDS = 100_000
"""Start and end of a Spark task cost about as much as so many small records."""
MAX_ROUNDS = 4


class OffsetRange(NamedTuple):
    """Offsets of one partition: from_offset up to, not including, until_offset."""

    partition: int
    from_offset: int
    until_offset: int

    @property
    def offsets(self) -> int:
        """How many offsets it spans."""
        return self.until_offset - self.from_offset


class LostRange(NamedTuple):
    """Offsets that a load goes on without, and why."""

    partition: int
    from_offset: int
    until_offset: int
    reason: str


class LoadPlan(NamedTuple):
    """What to read, what can't be read any more, the ledger after the commit, and what the table lacks then."""

    ranges: tuple[OffsetRange, ...]
    lost: tuple[LostRange, ...]
    following: Mapping[int, LedgerEntry]
    lag: Mapping[int, int]


def plan_load(
    ledger: Ledger,
    log: Mapping[int, LogOffsets],
    *,
    accept_lost_offsets: bool = False,
    max_records: int | None = None,
) -> LoadPlan:
    """What lies between the ledger's next offsets and the log's ends, at most `max_records` of it.

    A committed read may end below the ledger, where reads before it were not: then there is nothing to read.

    Raises:
        OffsetsLostError: Retention deleted offsets that the table doesn't have, and they are not accepted as lost.
    """
    lost = tuple(_lost_ranges(ledger, log))
    if lost and not accept_lost_offsets:
        raise OffsetsLostError(_lost_message(ledger.topic, lost))
    starts = {partition: max(_expected(ledger, partition, log[partition]), log[partition].start_offset)
              for partition in sorted(log)}  # fmt: skip
    ends = {partition: max(log[partition].end_offset, start) for partition, start in starts.items()}
    shares = share_out({partition: ends[partition] - start for partition, start in starts.items()}, max_records)
    ranges = [OffsetRange(partition, start, start + shares[partition]) for partition, start in starts.items()]
    return LoadPlan(
        ranges=tuple(span for span in ranges if span.offsets),
        lost=lost,
        following={span.partition: _following(ledger, span) for span in ranges},
        lag={span.partition: ends[span.partition] - span.until_offset for span in ranges},
    )


def share_out(wanted: Mapping[int, int], limit: int | None) -> dict[int, int]:
    """At most `limit` of all that is wanted, in equal parts; what one does not need goes to the others."""
    left = sum(wanted.values()) if limit is None else limit
    shares: dict[int, int] = {}
    for served, (partition, count) in enumerate(sorted(wanted.items(), key=lambda item: item[1])):
        shares[partition] = min(count, -(-left // (len(wanted) - served)))
        left -= shares[partition]
    return shares


def split_ranges(ranges: Iterable[OffsetRange], max_records_per_task: int) -> list[OffsetRange]:
    """The ranges cut into equal tasks of at most so many offsets."""
    tasks: list[OffsetRange] = []
    for partition, from_offset, until_offset in ranges:
        pieces = -(-(until_offset - from_offset) // max_records_per_task)
        bounds = [from_offset + (until_offset - from_offset) * piece // pieces for piece in range(pieces + 1)]
        tasks.extend(OffsetRange(partition, low, high) for low, high in pairwise(bounds))
    return tasks


def records_per_task(ranges: Sequence[OffsetRange], cores: int, max_records_per_task: int) -> int:
    """For `split_ranges`: as large as it may be, but so that all cores have work and are done at about the same time.

    That is tried out: every core's share of all records in one task, in two, …, of which none becomes smaller than
    MIN_RECORDS_PER_TASK only to have more of them.
    """
    if max_records_per_task <= MIN_RECORDS_PER_TASK:
        return max_records_per_task
    offsets = sum(span.offsets for span in ranges)
    shares = (-(-offsets // (cores * rounds)) for rounds in range(1, MAX_ROUNDS + 1))
    sizes = [min(max_records_per_task, max(MIN_RECORDS_PER_TASK, share)) for share in shares]
    return min(sizes, key=lambda size: _busiest_core(split_ranges(ranges, size), cores))


def _busiest_core(tasks: Iterable[OffsetRange], cores: int) -> int:
    """What the core that is done last has done, each taking the next task when it is free, as Spark has it."""
    done = [0] * cores
    for task in tasks:
        heapreplace(done, done[0] + task.offsets + TASK_RECORDS)
    return max(done)


def _expected(ledger: Ledger, partition: int, log: LogOffsets) -> int:
    """The first offset of a partition that the table is to get."""
    if (entry := ledger.partitions.get(partition)) is not None:
        return entry.next_offset
    return 0 if ledger.partitions else log.start_offset


def _following(ledger: Ledger, span: OffsetRange) -> LedgerEntry:
    """The entry after the load; behind a loss, the leader epoch of what came before it says nothing any more."""
    entry = ledger.partitions.get(span.partition)
    if entry is None:
        return LedgerEntry(0 if ledger.partitions else span.from_offset, span.until_offset)
    leader_epoch = entry.leader_epoch if entry.next_offset == span.from_offset else NO_LEADER_EPOCH
    return LedgerEntry(entry.start_offset, span.until_offset, leader_epoch)


def _lost_ranges(ledger: Ledger, log: Mapping[int, LogOffsets]) -> Iterator[LostRange]:
    for partition, offsets in sorted(log.items()):
        expected = _expected(ledger, partition, offsets)
        if offsets.start_offset > expected:
            yield LostRange(partition, expected, offsets.start_offset, RETENTION)


def _lost_message(topic: str, lost: Iterable[LostRange]) -> str:
    spans = ", ".join(f"partition {span.partition}: {span.from_offset}-{span.until_offset - 1}" for span in lost)
    return (
        f"topic {topic}: retention deleted offsets that were not loaded ({spans}); "
        "--accept-lost-offsets goes on without them and says so in the table's history"
    )
