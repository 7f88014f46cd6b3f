"""Files of a table written again without some of their rows, and how many rows are gone.

The audit has to know what an erasure and a reload remove: loads say how many offsets of a partition give a row, and
each commit that removes rows says under `absent` how many of these give none any more. Where keys are erased, `erased`
keeps their offsets (`table.lineage`). Of dead letters only those count that are not replayed, for the others are
among the rows.

A reload replaces the rows of some offset ranges by those of staged files, which come as they are, or, where they have
records of erased keys, without them.

Of erased keys the history remembers enough to recognize them, not the keys:

    {"kind": "erase", "salt": <hex>, "keys": [<salted hash>, …], "below": {<partition>: <next offset>, …}, …}

A hash is BLAKE2b of the key, keyed by the table's own random salt, which its first erasure draws. With it a reload
leaves the records of an erased key out, up to the offsets that the table had when it was erased. The salt is no secret:
someone who has the table and guesses a key can check whether that key was erased, and learns nothing else.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.rewrite import (
    CurrentFile,
    ReadBlocks,
    blocks_of,
    current_files,
    read_rows,
    rows_to_move,
    writer,
)
from millrace_pipelines.warehouse.table.files import DataFile
from millrace_pipelines.warehouse.table.lineage import Lineage, OffsetPage, again_paged, pages_of
from millrace_pipelines.warehouse.table.table import Table
from millrace_pipelines.warehouse.task_table import TaskTable
from millrace_pipelines.warehouse.tasks import THREADS, Tasks

ERASE = "erase"
SALT_BYTES = 16
HASH_BYTES = 16
ASKED_COLUMNS = frozenset({"key", "partition", "offset", "ledger", "replay"})
"""What the tests of rows look at, in a table of rows or of dead letters."""

Mask = np.typing.NDArray[np.bool_]
FindRows = Callable[[pa.Table], Mask]
"""Says of each row of a block whether it is meant; it is pickled, for the task that has the block."""


@dataclass(frozen=True, slots=True)
class ErasedKeys:
    """The erased keys of a table: for each salted hash of a key, by partition, the offset below which it is erased."""

    salt: bytes
    below: Mapping[str, Mapping[int, int]]

    @classmethod
    def of(cls, lineage: Iterable[Lineage]) -> ErasedKeys:
        """Returns the erased keys by a table's lineage, oldest first; with a new salt where nothing was erased yet."""
        salt = None
        below: dict[str, dict[int, int]] = {}
        for entry in lineage:
            if entry.get("kind") == ERASE:
                salt = bytes.fromhex(entry["salt"])
                offsets = {int(partition): offset for partition, offset in entry["below"].items()}
                below |= {key: below.get(key, {}) | offsets for key in entry["keys"]}
        return cls(salt or secrets.token_bytes(SALT_BYTES), below)

    def hash_of(self, key: bytes) -> str:
        """Returns the salted hash by which the history names a key."""
        return hashlib.blake2b(key, key=self.salt, digest_size=HASH_BYTES).hexdigest()

    def is_erased(self, rows: pa.Table) -> np.typing.NDArray[np.bool_]:
        """Returns a mask of the rows whose key was erased at a time when the table already had their offset."""
        if not self.below:
            return np.zeros(rows.num_rows, np.bool_)
        columns = (rows.column(name).to_pylist() for name in ("key", "partition", "offset"))
        return np.fromiter((self._has(*one) for one in zip(*columns, strict=True)), np.bool_, rows.num_rows)

    def _has(self, key: bytes | None, partition: int, offset: int) -> bool:
        return key is not None and offset < self.below.get(self.hash_of(key), {}).get(partition, 0)


def every_row(rows: pa.Table) -> Mask:
    """Returns a mask that is true for each row of a block."""
    return np.ones(rows.num_rows, np.bool_)


def no_row(rows: pa.Table) -> Mask:
    """Returns a mask that is false for each row of a block."""
    return np.zeros(rows.num_rows, np.bool_)


class Removal(NamedTuple):
    """A file to write again without the rows that `is_gone` finds; `is_counted` finds those that loads claim.

    Where `whole_of` names a partition, all rows are of that partition, claimed and gone: the file is not read, so that
    a damaged file can be replaced, too. With `is_listed`, the offsets of the rows that are gone are returned. `is_left`
    finds rows that stay for now, to be counted.
    """

    task: int
    file: CurrentFile | DataFile
    is_gone: FindRows
    is_counted: FindRows = every_row
    whole_of: int | None = None
    is_listed: bool = False
    is_left: FindRows = no_row


class Gone(NamedTuple):
    """How many rows that loads claim were left out of a file, by partition; their offsets where they are asked for.

    `left` counts the rows that `Removal.is_left` found.
    """

    counts: Counter[int]
    offsets: Sequence[OffsetPage] = ()
    left: int = 0


class Remainder(NamedTuple):
    """The new files with the remaining rows, the claimed rows that are gone by partition, and their listed offsets.

    `left` counts the rows that `Removal.is_left` found.
    """

    files: list[DataFile]
    gone: Counter[int]
    listed: list[OffsetPage]
    left: int


def files_with(
    table: TaskTable,
    files: Sequence[CurrentFile],
    columns: Sequence[str],
    is_meant: FindRows,
    tasks: Tasks,
    *,
    read: ReadBlocks = blocks_of,
) -> list[CurrentFile]:
    """Returns the files with at least one row for which `is_meant` is true, reading only `columns`."""
    has_rows = tasks.run(partial(_has_rows, table, columns, is_meant, read), files)
    return [file for file, has in zip(files, has_rows, strict=True) if has]


def count_gone(table: TaskTable, removals: Iterable[Removal], tasks: Tasks) -> Gone:
    """Counts, by partition, the claimed rows that `write_remainders` would leave out, without writing."""
    found = list(tasks.run(partial(_count_gone, table), removals))
    return Gone(sum((one.counts for one in found), Counter()), left=sum(one.left for one in found))


def write_remainders(table: TaskTable, operation_id: str, removals: Iterable[Removal], tasks: Tasks) -> Remainder:
    """Writes the remaining rows of each file to a new file, several at once; none where no row remains."""
    written = list(tasks.run(partial(_write_remainder, table, operation_id), removals))
    return Remainder(
        files=[file for file, _ in written if file is not None],
        gone=sum((gone.counts for _, gone in written), Counter()),
        listed=again_paged(page for _, gone in written for page in gone.offsets),
        left=sum(gone.left for _, gone in written),
    )


def absent_offsets(counts: Mapping[int, int]) -> Iterator[dict[str, int]]:
    """Yields, for the lineage's field `absent`, the number of offsets of each partition whose rows a commit removes.

    An audit subtracts them from the rows that loads claim; a negative number stands for rows that were added.
    """
    for partition, offsets in sorted(counts.items()):
        if offsets:
            yield {"partition": partition, "offsets": offsets}


def _has_rows(
    table: TaskTable, columns: Sequence[str], is_meant: FindRows, read: ReadBlocks, file: CurrentFile
) -> bool:
    batches = read(table, file.name, columns=columns)
    return any(bool(is_meant(pa.Table.from_batches([batch])).any()) for batch in batches)


def _count_gone(table: TaskTable, removal: Removal) -> Gone:
    if removal.whole_of is not None:
        return Gone(Counter({removal.whole_of: removal.file.rows}))
    counts, left = Counter[int](), 0
    for rows in read_rows(table, removal.file.name, ASKED_COLUMNS):
        counts += _claimed_of(_counted(removal, rows, removal.is_gone(rows)), rows)
        left += int(removal.is_left(rows).sum())
    return Gone(counts, left=left)


def _write_remainder(table: TaskTable, operation_id: str, removal: Removal) -> tuple[DataFile | None, Gone]:
    if removal.whole_of is not None:
        return None, _count_gone(table, removal)
    counts, left = Counter[int](), 0
    pages: list[OffsetPage] = []
    with writer(table, operation_id, removal.task, table.fs, removal.file) as output:
        for rows in rows_to_move(table, removal.file.name):
            gone = removal.is_gone(rows)
            counted = _counted(removal, rows, gone)
            counts += _claimed_of(counted, rows)
            left += int(removal.is_left(rows).sum())
            if removal.is_listed:
                partitions, offsets = (rows.column(name).to_numpy()[counted] for name in ("partition", "offset"))
                pages += pages_of(partitions.astype(np.int64), offsets)
            output.write(rows.filter(pa.array(~gone)))
        return output.finish(), Gone(counts, again_paged(pages), left)


def _claimed_of(counted: Mask, rows: pa.Table) -> Counter[int]:
    """Returns, by partition, how many rows of a block are both gone and claimed by the history."""
    return Counter(rows.column("partition").to_numpy()[counted].tolist())


def _counted(removal: Removal, rows: pa.Table, gone: Mask) -> Mask:
    return gone & _gives_a_row(rows) & removal.is_counted(rows)


def _gives_a_row(rows: pa.Table) -> Mask:
    """Returns a mask of the rows that stand for an offset: all rows; of dead letters, those that are not replayed."""
    if "replay" not in rows.column_names:
        return every_row(rows)
    waiting: Mask = rows.column("replay").is_null().to_numpy()
    return waiting


class Replaced(NamedTuple):
    """The files that a replacement adds and removes, and by partition the claimed rows that it removed and left out.

    `erased` has the offsets of the rows that were left out because their keys are erased.
    """

    added: list[DataFile]
    removed: list[CurrentFile]
    removed_rows: Counter[int]
    erased_rows: Counter[int]
    erased: list[OffsetPage]


def replace_ranges(
    table: Table, operation_id: str, fs: FileSystem, *, ranges: Sequence[OffsetRange], claimed: Sequence[OffsetRange],
    staged: Sequence[DataFile], erased: ErasedKeys, tasks: Tasks = THREADS,
) -> Replaced:  # fmt: skip
    """Writes the files that replace a table's rows in the ranges; loads claim only the rows in `claimed`.

    The new rows are those in `staged`, without rows of erased keys.
    """
    task_table = TaskTable.of(table, fs, operation_id)
    touched = _files_inside(table, task_table, ranges, tasks)
    is_gone, is_claimed = partial(_inside, ranges), partial(_inside, claimed)
    removals = [
        Removal(task, file, is_gone, is_claimed, _whole_of(table, file, claimed)) for task, file in enumerate(touched)
    ]
    kept = write_remainders(task_table, operation_id, removals, tasks)
    cleaned = staged if erased.below else ()
    erasures = [
        Removal(task, file, erased.is_erased, is_listed=True) for task, file in enumerate(cleaned, len(touched))
    ]
    clean = write_remainders(task_table, operation_id, erasures, tasks)
    return Replaced(
        added=kept.files + (clean.files if erased.below else list(staged)),
        removed=touched,
        removed_rows=kept.gone,
        erased_rows=clean.gone,
        erased=clean.listed,
    )


def count_rows(
    table: Table, ranges: Sequence[OffsetRange], fs: FileSystem, is_counted: FindRows = every_row,
    tasks: Tasks = THREADS,
) -> Counter[int]:  # fmt: skip
    """Returns, by partition, how many rows in the ranges fulfil `is_counted`; writes nothing.

    `replace_ranges` would remove just these, provided that the commits of loads have recorded all of the ranges.
    """
    task_table, is_inside = TaskTable.of(table, fs), partial(_inside, ranges)
    touched = _files_inside(table, task_table, ranges, tasks)
    removals = [Removal(task, file, is_inside, is_counted) for task, file in enumerate(touched)]
    return count_gone(task_table, removals, tasks).counts


def _files_inside(
    table: Table, task_table: TaskTable, ranges: Sequence[OffsetRange], tasks: Tasks
) -> list[CurrentFile]:
    """Returns the files that have rows in the ranges."""
    candidates = [file for file in current_files(table) if may_have(file, ranges)]
    whole = [file for file in candidates if _whole_of(table, file, ranges) is not None]
    others = [file for file in candidates if file not in whole]
    found = files_with(task_table, others, ["partition", "offset"], partial(_inside, ranges), tasks)
    return sorted([*whole, *found], key=lambda file: file.name)


def _whole_of(table: Table, file: CurrentFile, ranges: Iterable[OffsetRange]) -> int | None:
    """Returns the partition of a file all of whose rows lie inside one of the ranges, by the bounds in the log.

    Returns None for other files, and in a table of dead letters, of which only those that are not replayed count.
    """
    if file.offsets is None or "replay" in table.schema.names:
        return None
    first, last = file.offsets
    for offset_range in ranges:
        if (
            file.partitions == (offset_range.partition,) * 2
            and offset_range.from_offset <= first
            and last < offset_range.until_offset
        ):
            return offset_range.partition
    return None


def may_have(file: CurrentFile, ranges: Iterable[OffsetRange]) -> bool:
    """Returns whether, by the bounds in the log, a file may have rows in the ranges."""
    return any(
        _meets(file.offsets, offset_range.from_offset, offset_range.until_offset - 1)
        and _meets(file.partitions, offset_range.partition, offset_range.partition)
        for offset_range in ranges
    )


def _meets(bounds: tuple[int, int] | None, low: int, high: int) -> bool:
    return bounds is None or (bounds[0] <= high and bounds[1] >= low)


def _inside(ranges: Iterable[OffsetRange], rows: pa.Table) -> Mask:
    partitions, offsets = rows.column("partition").to_numpy(), rows.column("offset").to_numpy()
    inside = np.zeros(len(offsets), np.bool_)
    for offset_range in ranges:
        inside |= (
            (partitions == offset_range.partition)
            & (offsets >= offset_range.from_offset)
            & (offsets < offset_range.until_offset)
        )
    return inside
