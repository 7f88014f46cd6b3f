"""Verification: what the tasks answered is compared with the plan before anything is committed.

Each offset of the plan is a row, a dead letter, or passed over for a reason that was read (a marker, an aborted
transaction), or it is absent: the log has nothing there. Compaction explains that in a topic that is compacted. In
another one the log has lost it, and the load stops unless it is told to go on. So it does at a damaged batch, of which
the first offset is a dead letter with the bytes, and the others are missing.

What a load and a reload answer, and what their dry runs do, is told by these ranges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from millrace.records.batch import NO_LEADER_EPOCH
from millrace_pipelines.warehouse.errors import LoadFailedError
from millrace_pipelines.warehouse.keys.upsert import UpsertCounts
from millrace_pipelines.warehouse.ledger.ledger import GivenUp, LedgerEntry
from millrace_pipelines.warehouse.ledger.plan import LostRange, OffsetRange
from millrace_pipelines.warehouse.load.task import TaskResult
from millrace_pipelines.warehouse.stores.store import Store
from millrace_pipelines.warehouse.table.files import DataFile
from millrace_pipelines.warehouse.table.lineage import OffsetPage, WrittenLineage, keep_offsets
from millrace_pipelines.warehouse.tables.open import TableChanges

MISSING = "missing"
DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class LoadedRange:
    """One partition's range of a load, with a count for each thing that its offsets became.

        rows + dead_letters + control + aborted + compacted + missing == until_offset - from_offset

    `control` counts transaction markers, `aborted` offsets of aborted transactions, `compacted` those at which a
    compacted log holds nothing any more, and `missing` those that another log has lost. Spark's connector does not say
    why it passes over an offset: all are `compacted` then.
    """

    partition: int
    from_offset: int
    until_offset: int
    rows: int
    dead_letters: int
    control: int
    aborted: int
    compacted: int
    missing: int = 0

    @property
    def range(self) -> OffsetRange:
        """Returns the range that was planned."""
        return OffsetRange(self.partition, self.from_offset, self.until_offset)

    @property
    def absent(self) -> int:
        """Returns the number of offsets that give neither a row nor a dead letter."""
        return self.control + self.aborted + self.compacted + self.missing


class Written(NamedTuple):
    """The work of a load's tasks: their results, and the planned ranges with each offset accounted for.

    `missing` has offsets that the log has lost and that the load goes on without; `recorded` is the part of a commit's
    lineage that names the offsets which gave a row or a dead letter, empty where all did.
    """

    results: tuple[TaskResult, ...]
    ranges: tuple[LoadedRange, ...]
    missing: tuple[LostRange, ...] = ()
    recorded: WrittenLineage = MappingProxyType({})

    @property
    def files(self) -> list[DataFile]:
        """Returns the data files of rows that all tasks wrote."""
        return [file for result in self.results for file in result.files]

    @property
    def dead_letter_files(self) -> list[DataFile]:
        """Returns the data files of dead letters that all tasks wrote."""
        return [file for result in self.results for file in result.dead_letter_files]

    def keeping(self, store: Store, load_id: str) -> Written:
        """Returns a copy with `recorded` set, once the recorded offsets are durable, so that a commit may name them."""
        pages = [OffsetPage(*result.range, result.recorded) for result in self.results if result.recorded]
        return self._replace(recorded={"recorded": keep_offsets(store, load_id, pages)}) if pages else self


def verify_results(
    ranges: Sequence[OffsetRange], results: Sequence[TaskResult], *, is_compacted: bool
) -> list[LoadedRange]:
    """Returns the ranges with their counts; raises LoadFailedError where tasks miss an offset, overlap or miscount."""
    by_range = [[result for result in results if _begins_in(offset_range, result.range)] for offset_range in ranges]
    if sum(map(len, by_range)) != len(results):
        raise LoadFailedError("tasks answered for ranges that were not planned, or planned ranges overlap")
    return [
        _verify_range(offset_range, within, is_compacted) for offset_range, within in zip(ranges, by_range, strict=True)
    ]


def missing_ranges(results: Sequence[TaskResult]) -> list[LostRange]:
    """Returns the offsets that a log without compaction has lost, where the reader can tell them."""
    return [
        LostRange(result.range.partition, from_offset, until_offset, MISSING)
        for result in sorted(results, key=lambda result: result.range)
        if result.is_proven
        for from_offset, until_offset in result.gaps
    ]


def damaged_ranges(results: Sequence[TaskResult]) -> list[LostRange]:
    """Returns the offsets that are lost in damaged batches, without each batch's first one, which is a dead letter."""
    return [
        LostRange(result.range.partition, from_offset, until_offset, DAMAGED)
        for result in sorted(results, key=lambda result: result.range)
        for from_offset, until_offset in result.damaged
        if from_offset < until_offset
    ]


def with_epochs(following: Mapping[int, LedgerEntry], results: Sequence[TaskResult]) -> dict[int, LedgerEntry]:
    """Returns the ledger's entries, each with the leader epoch of its partition's last batch that was read."""
    entries = dict(following)
    for result in sorted(results, key=lambda result: result.range.from_offset):
        entry = entries.get(result.range.partition)
        if entry is not None and result.leader_epoch != NO_LEADER_EPOCH:
            entries[result.range.partition] = replace(entry, leader_epoch=result.leader_epoch)
    return entries


def _begins_in(offset_range: OffsetRange, part: OffsetRange) -> bool:
    return (
        part.partition == offset_range.partition
        and offset_range.from_offset <= part.from_offset < offset_range.until_offset
    )


def exact_gaps(results: Sequence[TaskResult]) -> list[OffsetRange]:
    """Returns the gaps that surely have no record; of too many gaps a task joins the last ones, which are left out."""
    return [
        OffsetRange(result.range.partition, from_offset, until_offset)
        for result in results
        if result.is_proven
        for from_offset, until_offset in (result.gaps if _are_all(result) else result.gaps[:-1])
    ]


def _are_all(result: TaskResult) -> bool:
    return sum(until_offset - from_offset for from_offset, until_offset in result.gaps) == result.absent


def _verify_range(offset_range: OffsetRange, results: Sequence[TaskResult], is_compacted: bool) -> LoadedRange:
    position = offset_range.from_offset
    for result in sorted(results, key=lambda result: result.range.from_offset):
        if result.range.from_offset != position:
            raise LoadFailedError(f"partition {offset_range.partition}: tasks do not meet at offset {position}")
        _verify_counts(result)
        position = result.range.until_offset
    if position != offset_range.until_offset:
        raise LoadFailedError(
            f"partition {offset_range.partition}: tasks end at {position}, not at {offset_range.until_offset}"
        )
    rows, dead_letters = sum(result.rows for result in results), sum(result.dead_letters for result in results)
    control, aborted = sum(result.control for result in results), sum(result.aborted for result in results)
    missing = sum(result.absent for result in results if result.is_proven and not is_compacted)
    compacted = sum(result.absent for result in results) - missing
    return LoadedRange(
        *offset_range, rows, dead_letters, control, aborted, compacted, missing + sum(map(_damaged, results))
    )


def _damaged(result: TaskResult) -> int:
    return sum(until_offset - from_offset for from_offset, until_offset in result.damaged)


def _verify_counts(result: TaskResult) -> None:
    partition, from_offset, until_offset = result.range
    which = f"partition {partition}, offsets {from_offset}-{until_offset - 1}: {result.records} records"
    if result.rows + result.dead_letters != result.records:
        raise LoadFailedError(
            f"{which} were read, {result.rows} rows and {result.dead_letters} dead letters came of them"
        )
    if result.records + result.control + result.aborted + result.absent + _damaged(result) != result.range.offsets:
        raise LoadFailedError(
            f"{which}, {result.control} markers, {result.aborted} aborted, {result.absent} absent and "
            f"{_damaged(result)} damaged offsets are not all of these offsets, each once"
        )
    for file in result.files:
        if not from_offset <= file.min_offset <= file.max_offset < until_offset:
            raise LoadFailedError(f"{file.name} has offsets outside {from_offset}-{until_offset - 1}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """The result of a load; `version` is None where there was nothing new.

    `late` counts records whose event time was older than the schema's `late_after`, rows and dead letters alike;
    `value_bytes` counts the records' values as read, `bytes` the data files as written; `seconds` is the time of the
    tasks and the commit, without the start of a Spark session. `lost` are offsets that retention deleted, `missing`
    those that the log has lost, where the load was told to go on without them. `lag` has, by partition, how many
    readable offsets the table lacks. `upserted` says what became of the keys in a table with one row for each. `group`
    is the group whose offsets were committed, `group_error` the reason why they could not be. `register_error`
    says why the table could not be entered in another engine's catalog.
    """

    topic: str
    table: str
    rows: int = 0
    dead_letters: int = 0
    late: int = 0
    bytes: int = 0
    value_bytes: int = 0
    ranges: tuple[LoadedRange, ...] = ()
    lost: tuple[LostRange, ...] = ()
    missing: tuple[LostRange, ...] = ()
    lag: Mapping[int, int] = field(default_factory=dict)
    tasks: int = 0
    seconds: float = 0.0
    version: int | None = None
    load_id: str | None = None
    upserted: UpsertCounts | None = None
    group: str | None = None
    group_error: str | None = None
    register_error: str | None = None

    @property
    def skipped(self) -> tuple[LostRange, ...]:
        """Returns the offsets that the load went on without."""
        return (*self.lost, *self.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadReport:
    """The result of a reload; `version` is None where its ranges have no offset.

    `lost` are requested offsets that can't be read any more; the rows that the table has of them stay. `seconds`,
    `group`, `group_error` and `register_error` are as in a `LoadReport`.
    """

    topic: str
    table: str
    replaced: tuple[LoadedRange, ...] = ()
    backfilled: tuple[LoadedRange, ...] = ()
    lost: tuple[LostRange, ...] = ()
    rows: int = 0
    dead_letters: int = 0
    removed_rows: int = 0
    seconds: float = 0.0
    version: int | None = None
    group: str | None = None
    group_error: str | None = None
    register_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPreview:
    """A preview: the effects that a load would have now, and the offsets that it would read.

    Attributes:
        topic: The topic's name.
        table: The table, as it was given.
        version: The table's version that was looked at; None where there is none yet.
        changes: What is created, and which columns are added or widened, before rows are written.
        new_ledger: The name of the ledger that would begin first; None for the present one.
        given_up: Offsets of the present ledger that the log has no longer, where a new one would begin.
        ranges: What would be read. Each offset is a record, or a transaction marker, or of an aborted transaction, or
            compacted.
        lost: Offsets that the load would go on without.
        lag: By partition, how many readable offsets the table would lack afterwards.
    """

    topic: str
    table: str
    version: int | None
    changes: TableChanges
    new_ledger: str | None
    given_up: tuple[GivenUp, ...]
    ranges: tuple[OffsetRange, ...]
    lost: tuple[LostRange, ...]
    lag: Mapping[int, int]

    @property
    def offsets(self) -> int:
        """Returns how many offsets the load would read."""
        return sum(offset_range.offsets for offset_range in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadPreview:
    """A preview of a reload; `topic`, `table`, `version` and `changes` are as in a `LoadPreview`.

    Attributes:
        replaced: What would be read in place of what the table has.
        backfilled: What would be read and is new to the table.
        lost: Requested offsets that can't be read any more; the rows that the table has of them stay.
        removed_rows: How many rows the table has in the replaced ranges; 0 for a table with one row for each key.
    """

    topic: str
    table: str
    version: int | None
    changes: TableChanges
    replaced: tuple[OffsetRange, ...]
    backfilled: tuple[OffsetRange, ...]
    lost: tuple[LostRange, ...]
    removed_rows: int

    @property
    def offsets(self) -> int:
        """Returns how many offsets the reload would read."""
        return sum(offset_range.offsets for offset_range in (*self.replaced, *self.backfilled))
