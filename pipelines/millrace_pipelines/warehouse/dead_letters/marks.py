"""The marks of replayed dead letters, each the number of its replay; and the dead letters still to be marked."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.arrow import Flags, numbered, texts_of
from millrace_pipelines.warehouse.dead_letters.letters import Offsets, letters_in
from millrace_pipelines.warehouse.delta.data_file import DataFile, RemovedFile
from millrace_pipelines.warehouse.delta.files import DataFileWriter, remove_files_of_load
from millrace_pipelines.warehouse.delta.leases import lease
from millrace_pipelines.warehouse.delta.lineage import Ranges
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.payload.dead_letter import DEAD_LETTER_SCHEMA

REPLAY_APP_ID = "millrace/replay"
REPLAY_KIND = "replay"
MARK_KIND = "replay marks"
MARKED_COLUMNS = ("partition", "offset", "ledger", "replay")
ATTEMPTS = 5


class Pending(NamedTuple):
    """A replay whose rows are committed, and whose dead letters are not marked yet."""

    number: int
    letters: Ranges

    def mask(self, letters: pa.Table) -> Flags:
        """Returns which dead letters it has replayed and not marked yet."""
        found: Flags = np.zeros(letters.num_rows, np.bool_)
        ledgers = letters.column("ledger").to_numpy()
        partitions, offsets = (letters.column(name).to_numpy() for name in ("partition", "offset"))
        for ledger, by_partition in self.letters.items():
            for partition, ranges in by_partition.items():
                mine = np.flatnonzero((ledgers == ledger) & (partitions == int(partition)))
                bounds = np.array(ranges, np.int64)
                place = np.searchsorted(bounds[:, 0], offsets[mine], side="right") - 1
                found[mine] = (place >= 0) & (offsets[mine] < bounds[np.maximum(place, 0), 1])
        is_marked: Flags = letters.column("replay").is_valid().to_numpy()
        return found & ~is_marked


def replay_number(table: Table) -> int:
    """Returns the number of the last replay in a table; 0 before the first."""
    return table.transaction_version(REPLAY_APP_ID) or 0


def expected_number(number: int) -> dict[str, int | None]:
    """Returns what a commit expects that follows a replay of this number."""
    return {REPLAY_APP_ID: number or None}


def ranges_of(letters: pa.Table) -> dict[str, dict[str, list[list[int]]]]:
    """Returns the dead letters' offsets as ranges, by ledger and partition."""
    found: dict[str, dict[str, list[list[int]]]] = {}
    for ledger in texts_of(letters.column("ledger").unique()):
        of_ledger = letters.filter(pc.equal(letters.column("ledger"), pa.scalar(ledger)))
        partitions, offsets = (of_ledger.column(name).to_numpy() for name in ("partition", "offset"))
        found[ledger] = {
            str(partition): _ranges(np.sort(offsets[partitions == partition])) for partition in np.unique(partitions)
        }
    return found


def _ranges(offsets: Offsets) -> list[list[int]]:
    breaks = np.flatnonzero(np.diff(offsets) != 1)
    firsts, lasts = np.concatenate([[0], breaks + 1]), np.concatenate([breaks, [len(offsets) - 1]])
    return [[int(offsets[first]), int(offsets[last]) + 1] for first, last in zip(firsts, lasts, strict=True)]


def pending_replay(rows: Table, dead_letters: Table) -> Pending | None:
    """Returns the replay that stopped before its marks; None where there is none.

    Raises:
        WarehouseError: The rows' history no longer says which letters it replayed.
    """
    number = replay_number(rows)
    if number == replay_number(dead_letters):
        return None
    for lineage in reversed(rows.lineage()):
        if lineage.get("kind") == REPLAY_KIND and lineage["number"] == number:
            return Pending(number, lineage["letters"])
    raise WarehouseError(f"{rows.location}: replay {number} is in the table, but not in its history")


def finish_replay(rows: Table, dead_letters: Table, fs: FileSystem) -> int | None:
    """Marks the dead letters of a replay that stopped before it did so; returns its number, or None.

    Raises:
        StaleLedgerError: Others rewrote the letters' table at every attempt.
    """
    for _ in range(ATTEMPTS):
        pending = pending_replay(rows, dead_letters)
        if pending is None:
            return None
        try:
            _mark(dead_letters, pending, fs)
        except StaleLedgerError:
            dead_letters.refresh()
        else:
            return pending.number
    raise StaleLedgerError(f"{dead_letters.location}: others rewrote it at every attempt; run again")


def _mark(table: Table, pending: Pending, fs: FileSystem) -> None:
    load_id = uuid.uuid4().hex
    with lease(table.location, load_id, fs):
        _write_and_commit(table, pending, load_id, fs)


def _write_and_commit(table: Table, pending: Pending, load_id: str, fs: FileSystem) -> None:
    added: list[DataFile] = []
    removed: list[RemovedFile] = []
    marked = 0
    try:
        for number, name in enumerate(table.file_names()):
            if not any(pending.mask(letters).any() for letters in letters_in(table, name, MARKED_COLUMNS)):
                continue
            with DataFileWriter(table.location, load_id, number, DEAD_LETTER_SCHEMA, fs) as writer:
                for letters in _marked(table, name, pending):
                    writer.write(letters)
                file = writer.finish()
            if file is not None:
                added.append(file)
                removed.append(RemovedFile(name=name))
                marked += file.rows
        table.commit(
            added,
            expected=expected_number(pending.number - 1),
            transactions={REPLAY_APP_ID: pending.number},
            lineage={"kind": MARK_KIND, "number": pending.number, "rewritten": marked},
            removed=removed,
        )
    except StaleLedgerError:
        remove_files_of_load(table.location, load_id, fs)
        raise


def _marked(table: Table, name: str, pending: Pending) -> Iterator[pa.Table]:
    place = DEAD_LETTER_SCHEMA.get_field_index("replay")
    for letters in letters_in(table, name):
        marked = numbered(pending.mask(letters), pending.number, letters.column("replay"))
        yield letters.set_column(place, DEAD_LETTER_SCHEMA.field("replay"), marked)
