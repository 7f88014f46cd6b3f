"""The rows of a data file that have one of the keys of a run, found by the file's index (`keys.key_index`).

    index of the file    numbers of the rows that have the hash of one of the keys; none: the data file is not opened
    data file            key, partition, offset and timestamp of these rows, from the row groups that have some

Where a file has no index that can be used, its keys are read and it gets one. So it is where an index says of a row
what the file does not: the keys in the file count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millrace_pipelines.arrow import binaries, combined
from millrace_pipelines.warehouse.keys.coordinates import COORDINATE_SCHEMA, ENVELOPE, Numbers, coordinates_of
from millrace_pipelines.warehouse.keys.key_hashes import Hashes, hashes_of
from millrace_pipelines.warehouse.keys.key_index import EntriesOfRows, KeyIndex, Matches, WrongIndexError
from millrace_pipelines.warehouse.rewrite import every_block_of, reading
from millrace_pipelines.warehouse.stores.store import Store
from millrace_pipelines.warehouse.table.columns import FileColumn, file_columns, under_present_names
from millrace_pipelines.warehouse.table.files import blocks_of_group, index_name
from millrace_pipelines.warehouse.task_table import AnyTable, TaskTable

BLOCK_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class AskedKeys:
    """The keys that an upsert looks for in files: their hashes, in rising order, and the salt that made these."""

    hashes: Hashes
    salt: bytes


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows of a file that may have an asked key, which others may share its hash with.

    Attributes:
        numbers: The numbers of these rows in the file, rising, those that a deletion vector deletes counted, too.
        coordinates: Their coordinates, beside the numbers.
        asked: The places of the asked keys that may have a row here, rising.
        rows: The number of all rows in the file.
    """

    numbers: Numbers
    coordinates: pa.Table
    asked: Numbers
    rows: int


def rows_with_keys(table: TaskTable, name: str, asked: AskedKeys) -> FoundRows:
    """Returns the rows of a file that may have one of the keys, without those that a deletion vector deletes.

    Raises:
        FileNotFoundError: There is no such file.
        WarehouseError: The file can't be read.
    """
    try:
        with table.filesystem.open_input_file(table.store.path(index_name(name))) as file:
            return _found(table, name, asked, file)
    except (FileNotFoundError, WrongIndexError):
        entries = EntriesOfRows(asked.salt)
        for block in every_block_of(table, name, BLOCK_ROWS, ["key"]):
            entries.add(block.column("key"))
        return _found(table, name, asked, pa.BufferReader(keep_index(table.store, name, entries)))


def keep_index(store: Store, name: str, entries: EntriesOfRows) -> bytes:
    """Writes the index of a data file and returns its content; it is not synced, for a torn one is made again."""
    content = entries.content(name)
    with store.output(index_name(name)) as stream:
        stream.write(content)
    return content


def _found(table: AnyTable, name: str, asked: AskedKeys, file: pa.NativeFile) -> FoundRows:
    """Returns the rows that an index names; raises WrongIndexError where it is not the file's."""
    index = KeyIndex(file, name, asked.salt)
    matches = index.find(asked.hashes)
    if not len(matches.rows):
        return FoundRows(matches.rows, COORDINATE_SCHEMA.empty_table(), matches.asked, index.rows)
    with reading(table, name) as data:
        if data.metadata.num_rows != index.rows or matches.rows.max() >= index.rows:
            raise WrongIndexError(f"{index.rows} rows, and the data file has {data.metadata.num_rows}")
        numbers = np.unique(matches.rows)
        present = file_columns(data.schema_arrow, table.field_ids, ENVELOPE)
        coordinates = pa.concat_tables([COORDINATE_SCHEMA.empty_table(), *_coordinates_at(data, numbers, present)])
    _check_hashes(matches, asked, numbers, coordinates)
    kept = table.kept_rows().get(name)
    is_there = np.ones(len(numbers), np.bool_) if kept is None else kept[numbers]
    return FoundRows(numbers[is_there], coordinates.filter(pa.array(is_there)), np.unique(matches.asked), index.rows)


def _coordinates_at(file: pq.ParquetFile, numbers: Numbers, present: Mapping[str, FileColumn]) -> Iterator[pa.Table]:
    """Yields the coordinates of a file's rows, given by rising number, from the row groups that have some of them."""
    first, names = 0, [column.name for column in present.values()]
    for group in range(file.num_row_groups):
        end = first + file.metadata.row_group(group).num_rows
        low, high = np.searchsorted(numbers, [first, end])
        blocks = blocks_of_group(file, group, BLOCK_ROWS, names) if high > low else ()
        for block in blocks:
            low, high = np.searchsorted(numbers, [first, first + block.num_rows])
            yield coordinates_of(under_present_names(block, present)).take(numbers[low:high] - first)
            first += block.num_rows
        first = end


def _check_hashes(matches: Matches, asked: AskedKeys, numbers: Numbers, coordinates: pa.Table) -> None:
    """Raises WrongIndexError where a row has another hash than its index says."""
    there = hashes_of(binaries(combined(coordinates.column("key"))), asked.salt)
    said = asked.hashes[matches.asked]
    if not np.array_equal(there[np.searchsorted(numbers, matches.rows)], said):
        raise WrongIndexError("a row has another key than the index says")
