"""Rewrites of a small table by any `Tasks`, and what is in its folder after them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pyarrow.parquet as pq
from deltalake import DeltaTable

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.keys.upsert import Upsert
from millrace_pipelines.warehouse.maintenance import compact
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.tasks import Tasks
from millrace_support.loads import PROPERTIES, Loads

FS = OsFileSystem()
FILES, ROWS = 5, 20


def values(first: int, count: int) -> dict[str, list[bytes]]:
    """Returns keys, of which each file has one in common with every other, and values that name the offset."""
    numbers = range(first, first + count)
    return {"key": [b"%d" % (n % ROWS or 100 * n) for n in numbers], "value": [b"v%d" % n for n in numbers]}


def table_of_files(directory: str, properties: Mapping[str, str] = PROPERTIES) -> Loads:
    """Makes a table of FILES files with ROWS rows each."""
    made = Loads(directory, properties)
    for first in range(0, FILES * ROWS, ROWS):
        made.load((first, first + ROWS), range(first, first + ROWS), values=values(first, ROWS))
    return made


def upserted(loads: Loads, tasks: Tasks) -> None:
    """Merges a newer record of one of the keys, and one of a new key, into the table."""
    staged = loads.write(loads.directory, [1000, 1001], values={"key": [b"3", b"new"], "value": [b"w", b"w"]})
    try:
        Upsert([staged], FS, expected={}, transactions={}, lineage={}, tasks=tasks).commit(loads.directory)
    finally:
        store_at(loads.directory, FS).remove(staged.name)


def compacted(loads: Loads, tasks: Tasks) -> None:
    """Joins files in pairs: two pairs in one commit."""
    largest = max(path.stat().st_size for path in loads.files())
    compact(loads.directory, FS, SystemClock(), target_bytes=2 * largest, tasks=tasks)


def erased(loads: Loads, tasks: Tasks) -> None:
    """Erases two keys that each file has."""
    erase(loads.directory, [b"3", b"4"], FS, tasks=tasks)


def reloaded(loads: Loads, tasks: Tasks) -> None:
    """Replaces a range that begins and ends inside of files by the same rows."""
    loads.reload((10, 50), range(10, 50), values=values(10, 40), tasks=tasks)


REWRITES: Mapping[str, Callable[[Loads, Tasks], None]] = {
    "upsert": upserted,
    "erase": erased,
    "compact": compacted,
    "reload": reloaded,
}


def rows_in(directory: str) -> Counter[tuple[int, bytes]]:
    """Returns how often each offset, with its value, is in the table's files, which are read without Millrace."""
    found = [pq.read_table(path, columns=["offset", "value"]).to_pylist() for path in Table.load(directory, FS).files()]
    return Counter((row["offset"], row["value"]) for rows in found for row in rows)


def unnamed_files(directory: str) -> set[str]:
    """Returns the data files below a table that no version names."""
    everything = {name for name in store_at(directory, FS).names() if name.endswith(".parquet")}
    versions = (DeltaTable(directory, version) for version in range(Table.load(directory, FS).version + 1))
    return everything - {name.removeprefix(f"{directory}/") for one in versions for name in one.file_uris()}
