"""Dead letters: records that don't fit the declared payload, kept in `<table>__dead_letters`, each exactly once.

The dead letters are another table (the envelope, then `error`, `reason`, `schema_id`, `load_id`, `ledger`, `replay`)
with its own ledger under the same application ids; the first load with a declared schema creates it. A load with dead
letters commits them first, then the rows; each commit is a compare-and-swap on its own ledger:

    crash before both        neither ledger has moved, and the next load does everything again
    crash between the two    the dead letters' ledger is ahead, and the next load reads the range again: a record that
                             is a dead letter already stays one, whatever the schema has become since; one that is not
                             becomes one if it doesn't fit now

So a crash neither loses nor doubles a record. A load without dead letters leaves this ledger behind the table's: there
are none at the offsets between. Those that decode later are appended to the rows by a replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace.records.absent import intervals_of
from millrace_pipelines.arrow import Booleans, Flags, filled, numbered, python_rows, texts_of
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.formats import address_of, load_if_there, load_table
from millrace_pipelines.warehouse.ledger.ledger import Ledger, former_ledgers, ledger_of
from millrace_pipelines.warehouse.payload.outcome import DEAD_LETTER_SCHEMA, DeadLetter
from millrace_pipelines.warehouse.rewrite import (
    CurrentFile,
    Rewrite,
    blocks_of,
    current_files,
    rewrite,
)
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.columns import as_schema
from millrace_pipelines.warehouse.table.files import DataFile, DataFileWriter
from millrace_pipelines.warehouse.table.lineage import Ranges
from millrace_pipelines.warehouse.table.table import Table

Offsets = npt.NDArray[np.int64]
BATCH_ROWS = 10_000
NO_REASON = "unclassified"  # of dead letters that are older than reasons
REPLAY_APP_ID = "millrace/replay"
REPLAY_KIND = "replay"
MARK_KIND = "replay marks"
MARKED_COLUMNS = ("partition", "offset", "ledger", "replay")
LEDGER = "ledger"


def companions(address: str, fs: FileSystem) -> list[str]:
    """Returns the address of a table's dead letters, in a list; an empty one where there is no such table."""
    dead_letters = dead_letters_dir(address)
    return [] if load_if_there(dead_letters, fs) is None else [dead_letters]


class Selection(NamedTuple):
    """A choice of dead letters by the values of some columns; a field that is None excludes none."""

    reason: str | None = None
    partition: int | None = None
    from_offset: int | None = None
    until_offset: int | None = None


EVERY_DEAD_LETTER = Selection()


def dead_letters_in(table: Table, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yields the dead letters of one data file under the current columns, at most BATCH_ROWS at a time.

    A dead letter that is older than a column has null in it, but in the column `ledger` the table's first ledger.
    """
    wanted = list(DEAD_LETTER_SCHEMA.names if columns is None else columns)
    ledger = first_ledger(table)
    for batch in blocks_of(table, name, BATCH_ROWS, wanted):
        yield completed(ledger, pa.table(batch), wanted)


def first_ledger(table: Table) -> str:
    """Returns the name of a table's first ledger, to which dead letters belong that are older than ledgers' names."""
    return next(iter(former_ledgers(table)), ledger_of(table).name)


def completed(ledger: str, dead_letters: pa.Table, names: Sequence[str]) -> pa.Table:
    """Returns dead letters with the columns in `names`; what an older file lacks is null, or the first ledger."""
    found = as_schema(dead_letters, pa.schema([DEAD_LETTER_SCHEMA.field(name) for name in names]))
    if LEDGER not in names:
        return found
    return found.set_column(list(names).index(LEDGER), LEDGER, filled(found.column(LEDGER), ledger))


def dead_letters_of(table: Table, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yields all dead letters of a table, in blocks, file by file."""
    for name in table.file_names():
        yield from dead_letters_in(table, name, columns)


def chosen(dead_letters: pa.Table, selection: Selection, *, replayed: bool | None = None) -> Booleans:
    """Returns a mask of the selected dead letters; `replayed` restricts it to those that are, or are not, replayed."""
    mask: Booleans = pa.array(np.ones(dead_letters.num_rows, np.bool_))
    if selection.reason is not None:
        mask = pc.and_(mask, pc.equal(filled(dead_letters.column("reason"), NO_REASON), pa.scalar(selection.reason)))
    if selection.partition is not None:
        mask = pc.and_(mask, pc.equal(dead_letters.column("partition"), pa.scalar(selection.partition)))
    if selection.from_offset is not None:
        mask = pc.and_(mask, pc.greater_equal(dead_letters.column("offset"), pa.scalar(selection.from_offset)))
    if selection.until_offset is not None:
        mask = pc.and_(mask, pc.less(dead_letters.column("offset"), pa.scalar(selection.until_offset)))
    if replayed is not None:
        is_replayed = dead_letters.column("replay").is_valid()
        mask = pc.and_(mask, is_replayed if replayed else pc.invert(is_replayed))
    return mask


def is_reached(dead_letters: pa.Table, rows: Ledger) -> Flags:
    """Returns a mask of the dead letters below the ledger's offsets; others are of a load that has not ended."""
    partitions, offsets = (dead_letters.column(name).to_numpy() for name in ("partition", "offset"))
    reached: Flags = dead_letters.column("ledger").to_numpy(zero_copy_only=False) != rows.name
    for partition, entry in rows.partitions.items():
        inside = (offsets >= entry.start_offset) & (offsets < entry.next_offset)
        reached |= (partitions == partition) & inside
    return reached


def known_dead_letters(dead_letters: Table, rows: Ledger) -> Mapping[int, Offsets]:
    """Returns, by partition, the offsets of dead letters above the ledger: their load stopped before its rows."""
    ahead = {
        partition: rows.next_offset(partition) or 0
        for partition, entry in ledger_of(dead_letters).partitions.items()
        if entry.next_offset > (rows.next_offset(partition) or 0)
    }
    if not ahead or ledger_of(dead_letters).name != rows.name:
        return {}
    found: dict[int, list[Offsets]] = {}
    for some in dead_letters_of(dead_letters, ["partition", "offset", "ledger"]):
        own = some.filter(pc.equal(some.column("ledger"), pa.scalar(rows.name)))
        partitions, offsets = own.column("partition").to_numpy(), own.column("offset").to_numpy()
        for partition, next_offset in ahead.items():
            mine = offsets[(partitions == partition) & (offsets >= next_offset)]
            if len(mine):
                found.setdefault(partition, []).append(mine)
    return {partition: np.sort(np.concatenate(parts)) for partition, parts in found.items()}


class Pending(NamedTuple):
    """A replay that committed its rows, and has yet to write its number into the dead letters that became rows."""

    number: int
    dead_letters: Ranges

    def mask(self, dead_letters: pa.Table) -> Flags:
        """Returns a mask of the dead letters that this replay has made rows of, and not marked yet."""
        found: Flags = np.zeros(dead_letters.num_rows, np.bool_)
        ledgers = dead_letters.column("ledger").to_numpy()
        partitions, offsets = (dead_letters.column(name).to_numpy() for name in ("partition", "offset"))
        for ledger, by_partition in self.dead_letters.items():
            for partition, ranges in by_partition.items():
                mine = np.flatnonzero((ledgers == ledger) & (partitions == int(partition)))
                bounds = np.array(ranges, np.int64)
                index = np.searchsorted(bounds[:, 0], offsets[mine], side="right") - 1
                found[mine] = (index >= 0) & (offsets[mine] < bounds[np.maximum(index, 0), 1])
        is_marked: Flags = dead_letters.column("replay").is_valid().to_numpy()
        return found & ~is_marked


def replay_number(table: Table) -> int:
    """Returns the number of the last replay in a table; 0 before the first."""
    return table.transaction_version(REPLAY_APP_ID) or 0


def expected_number(number: int) -> dict[str, int | None]:
    """Returns, by application id, the version that a commit expects where the last replay had this number."""
    return {REPLAY_APP_ID: number or None}


def ranges_of(dead_letters: pa.Table) -> dict[str, dict[str, list[list[int]]]]:
    """Returns the dead letters' offsets as [from, until] pairs, by ledger and partition."""
    found: dict[str, dict[str, list[list[int]]]] = {}
    for ledger in texts_of(dead_letters.column("ledger").unique()):
        of_ledger = dead_letters.filter(pc.equal(dead_letters.column("ledger"), pa.scalar(ledger)))
        partitions, offsets = (of_ledger.column(name).to_numpy() for name in ("partition", "offset"))
        found[ledger] = {
            str(partition): intervals_of(np.unique(offsets[partitions == partition])).tolist()
            for partition in np.unique(partitions)
        }
    return found


def pending_replay(rows: Table, dead_letters: Table) -> Pending | None:
    """Returns the replay that stopped before it marked its dead letters as replayed; None where there is none.

    Raises:
        WarehouseError: The rows' history no longer says which dead letters it replayed.
    """
    number = replay_number(rows)
    if number == replay_number(dead_letters):
        return None
    for lineage in reversed(rows.lineage()):
        if lineage.get("kind") == REPLAY_KIND and lineage["number"] == number:
            return Pending(number, lineage["letters"])
    raise WarehouseError(f"{rows.address}: replay {number} is in the table, but not in its history")


def finish_replay(rows: Table, dead_letters: Table, fs: FileSystem) -> int | None:
    """Marks the dead letters of a replay that stopped before that as replayed; returns its number, None without one.

    Raises:
        StaleLedgerError: Others rewrote their table at every attempt.
    """
    pending: Pending | None = None

    def make(table: Table, operation_id: str) -> Rewrite | None:
        nonlocal pending
        pending = pending_replay(rows, table)
        return None if pending is None else _marks(table, operation_id, pending, fs)

    if pending_replay(rows, dead_letters) is None:
        return None
    try:
        rewrite(dead_letters.address, fs, make)
    except StaleLedgerError:
        if pending_replay(rows, load_table(dead_letters.address, fs)) is not None:
            raise
        return None
    return None if pending is None else pending.number


def _marks(table: Table, operation_id: str, pending: Pending, fs: FileSystem) -> Rewrite:
    """Writes the files with a replay's dead letters again, with the replay's number in the column `replay`."""
    added: list[DataFile] = []
    removed: list[CurrentFile] = []
    for number, file in enumerate(current_files(table)):
        if any(pending.mask(some).any() for some in dead_letters_in(table, file.name, MARKED_COLUMNS)):
            with DataFileWriter(
                table.location, operation_id, number, DEAD_LETTER_SCHEMA, fs, field_ids=table.field_ids
            ) as writer:
                for dead_letters in dead_letters_in(table, file.name):
                    writer.write(_with_pending(dead_letters, pending))
                if (marked := writer.finish()) is not None:
                    added.append(marked)
                    removed.append(file)
    return Rewrite(
        added=added,
        removed=removed,
        lineage={"kind": MARK_KIND, "number": pending.number, "rewritten": sum(file.rows for file in added)},
        expected=expected_number(pending.number - 1),
        transactions={REPLAY_APP_ID: pending.number},
    )


@dataclass(slots=True)
class ReasonCount:
    """The number of dead letters of one reason; `example` is the message of the first, at `partition` and `offset`."""

    reason: str
    letters: int = 0
    replayed: int = 0
    partition: int = -1
    offset: int = -1
    example: str = ""

    @property
    def waiting(self) -> int:
        """Returns the number of dead letters that are not replayed."""
        return self.letters - self.replayed


def count_reasons(table_dir: str, selection: Selection, fs: FileSystem = DISK) -> list[ReasonCount]:
    """Counts the selected dead letters by reason, most frequent first.

    Raises TableNotFoundError where there is no table.
    """
    counts: dict[str, ReasonCount] = {}
    for found in _dead_letters(table_dir, selection, fs):
        reasons = found.column("reason")
        for reason in reasons.unique().to_pylist():
            some = found.filter(pc.equal(reasons, pa.scalar(reason)) if reason else pc.is_null(reasons))
            count = counts.setdefault(reason or NO_REASON, ReasonCount(reason or NO_REASON))
            if count.letters == 0:
                [first] = some.slice(0, 1).select(["partition", "offset", "error"]).to_pylist()
                count.partition, count.offset, count.example = first["partition"], first["offset"], first["error"]
            count.letters += some.num_rows
            count.replayed += some.num_rows - some.column("replay").null_count
    return sorted(counts.values(), key=lambda count: -count.letters)


def each_dead_letter(table_dir: str, selection: Selection, fs: FileSystem = DISK) -> Iterator[DeadLetter]:
    """Yields the selected dead letters as dictionaries by column name."""
    for found in _dead_letters(table_dir, selection, fs):
        yield from cast("list[DeadLetter]", python_rows(found))


def _dead_letters(table_dir: str, selection: Selection, fs: FileSystem) -> Iterator[pa.Table]:
    """Yields the selected dead letters; those replayed but not marked yet have their replay's number filled in."""
    rows, dead_letters = load_table(table_dir, fs), load_table(dead_letters_dir(address_of(table_dir, fs)), fs)
    pending = pending_replay(rows, dead_letters)
    for found in dead_letters_of(dead_letters):
        selected = found.filter(chosen(found, selection))
        if selected.num_rows:
            yield selected if pending is None else _with_pending(selected, pending)


def _with_pending(found: pa.Table, pending: Pending) -> pa.Table:
    replay = numbered(pending.mask(found), pending.number, found.column("replay"))
    return found.set_column(found.column_names.index("replay"), "replay", replay)
