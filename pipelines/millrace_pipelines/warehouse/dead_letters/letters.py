"""Reading the table of dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millrace_pipelines.arrow import Booleans, Column, Columns, Flags, filled, nulls_of
from millrace_pipelines.warehouse.delta.data_file import row_blocks
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import Ledger, former_ledgers, ledger_of
from millrace_pipelines.warehouse.payload.dead_letter import DEAD_LETTER_SCHEMA

Offsets = npt.NDArray[np.int64]
BATCH_ROWS = 10_000
NO_REASON = "unclassified"  # of letters that are older than reasons


class Selection(NamedTuple):
    """Selects dead letters; a field that is None excludes none."""

    reason: str | None = None
    partition: int | None = None
    from_offset: int | None = None
    until_offset: int | None = None


EVERY_LETTER = Selection()


def letters_in(table: Table, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yields the dead letters of one data file under the current columns, at most BATCH_ROWS at a time.

    A dead letter that is older than a column has null in it, but in the column `ledger` the table's first ledger.
    """
    wanted = list(DEAD_LETTER_SCHEMA.names if columns is None else columns)
    with table.filesystem.open_input_file(table.files()[table.file_names().index(name)]) as source:
        file = pq.ParquetFile(source, page_checksum_verification=True)
        there = [one for one in wanted if one in file.schema_arrow.names]
        kept, place = table.kept_rows().get(name), 0
        for batch in row_blocks(file, BATCH_ROWS, there):
            letters = pa.table(batch)
            if kept is not None:
                letters = letters.filter(pa.array(kept[place : place + batch.num_rows]))
            place += batch.num_rows
            yield completed(table, letters, wanted)


def completed(table: Table, letters: pa.Table, names: Sequence[str]) -> pa.Table:
    """Returns dead letters under the current columns, where their file may be older than some of these."""
    first_ledger = next(iter(former_ledgers(table)), ledger_of(table).name)
    wanted = pa.schema([DEAD_LETTER_SCHEMA.field(name) for name in names])
    columns: list[Column | Columns] = []
    for field in wanted:
        if field.name in letters.column_names:
            columns.append(letters.column(field.name).cast(field.type))
        else:
            columns.append(nulls_of(field.type, letters.num_rows))
        if field.name == "ledger":
            columns[-1] = filled(columns[-1], first_ledger)
    return pa.Table.from_arrays(columns, schema=wanted)


def letters_of(table: Table, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yields all dead letters, file by file."""
    for name in table.file_names():
        yield from letters_in(table, name, columns)


def chosen(letters: pa.Table, selection: Selection, *, replayed: bool | None = None) -> Booleans:
    """Returns a mask of the selected dead letters; with `replayed`, of those that are, or are not, replayed."""
    mask: Booleans = pa.array(np.ones(letters.num_rows, np.bool_))
    if selection.reason is not None:
        mask = pc.and_(mask, pc.equal(filled(letters.column("reason"), NO_REASON), pa.scalar(selection.reason)))
    if selection.partition is not None:
        mask = pc.and_(mask, pc.equal(letters.column("partition"), pa.scalar(selection.partition)))
    if selection.from_offset is not None:
        mask = pc.and_(mask, pc.greater_equal(letters.column("offset"), pa.scalar(selection.from_offset)))
    if selection.until_offset is not None:
        mask = pc.and_(mask, pc.less(letters.column("offset"), pa.scalar(selection.until_offset)))
    if replayed is not None:
        is_replayed = letters.column("replay").is_valid()
        mask = pc.and_(mask, is_replayed if replayed else pc.invert(is_replayed))
    return mask


def is_reached(letters: pa.Table, rows: Ledger) -> Flags:
    """Returns whether the rows' ledger has reached each dead letter; others are of a load that has not ended."""
    partitions, offsets = (letters.column(name).to_numpy() for name in ("partition", "offset"))
    reached: Flags = letters.column("ledger").to_numpy(zero_copy_only=False) != rows.name
    for partition, entry in rows.partitions.items():
        inside = (offsets >= entry.start_offset) & (offsets < entry.next_offset)
        reached |= (partitions == partition) & inside
    return reached


def known_letters(dead_letters: Table, rows: Ledger) -> Mapping[int, Offsets]:
    """Returns, by partition, the offsets that are dead letters already though the rows' ledger has not reached them."""
    ahead = {
        partition: rows.next_offset(partition) or 0
        for partition, entry in ledger_of(dead_letters).partitions.items()
        if entry.next_offset > (rows.next_offset(partition) or 0)
    }
    if not ahead or ledger_of(dead_letters).name != rows.name:
        return {}
    found: dict[int, list[Offsets]] = {}
    for letters in letters_of(dead_letters, ["partition", "offset", "ledger"]):
        own = letters.filter(pc.equal(letters.column("ledger"), pa.scalar(rows.name)))
        partitions, offsets = own.column("partition").to_numpy(), own.column("offset").to_numpy()
        for partition, next_offset in ahead.items():
            mine = offsets[(partitions == partition) & (offsets >= next_offset)]
            if len(mine):
                found.setdefault(partition, []).append(mine)
    return {partition: np.sort(np.concatenate(parts)) for partition, parts in found.items()}
