"""Processes that load ranges into one Iceberg table until it has all of them, or they are killed.

They append ranges, or upsert them by key: the records of a range have KEYS keys in turn, and every TOMBSTONE_EVERYth is
a tombstone, so that what the table is to have follows from the offset that it has reached.
"""

from __future__ import annotations

import multiprocessing
import random
import uuid
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any, TypeAlias

import pyarrow as pa

from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.errors import NOT_COMMITTED, CatalogError, StaleLedgerError
from millrace_pipelines.warehouse.formats import load_to_write
from millrace_pipelines.warehouse.keys.upsert import Upsert
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.rewrite import files_removed_on
from millrace_pipelines.warehouse.table.files import remove_files_of_load, write_file
from millrace_pipelines.warehouse.table.table import Table
from millrace_support.iceberg_tables import FS, commit_range

LONGEST_RANGE = 10
KEYS, TOMBSTONE_EVERY = 40, 7
LoadRange: TypeAlias = Callable[[Table, int, int, str], None]
"""Commits a range of a partition, up to an offset, under a load's id."""


def prepared() -> ForkServerContext:
    """Returns how such processes are started: from a new one that has imported what they need, and this environment."""
    server: Any = vars(forkserver)["_forkserver"]  # it has the environment of when it was started
    vars(type(server))["_stop"](server)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "millrace_pipelines.warehouse.iceberg.table"])
    return context


def append(table: Table, partition: int, until_offset: int, load_id: str) -> None:
    """Appends a range."""
    with files_removed_on(StaleLedgerError, [table.location], load_id, FS):
        commit_range(table, until_offset, partition=partition, load_id=load_id)


def upsert(table: Table, partition: int, until_offset: int, load_id: str) -> None:
    """Merges a range by key."""
    ledger = ledger_of(table)
    start = ledger.next_offset(partition) or 0
    rows = pa.Table.from_pylist([record(partition, offset) for offset in range(start, until_offset)], ENVELOPE_SCHEMA)
    staged = write_file(table.location, load_id, rows, FS, table.field_ids)
    expected, transactions = swap(ledger, {partition: LedgerEntry(start, until_offset)})
    span = {"partition": partition, "from_offset": start, "until_offset": until_offset, "rows": staged.rows}
    lineage = {"kind": "load", "load_id": load_id, "ledger": ledger.name, "ranges": [span]}
    try:
        Upsert([staged], FS, expected=expected, transactions=transactions, lineage=lineage).commit(table.address)
    finally:
        remove_files_of_load(table.location, load_id, FS)


def record(partition: int, offset: int) -> dict[str, object]:
    """Returns the record of an offset as a row."""
    value = None if offset % TOMBSTONE_EVERY == 0 else b"%d/%d" % (partition, offset)
    key = b"%d/%d" % (partition, offset % KEYS)
    return {"topic": "events", "partition": partition, "offset": offset, "timestamp": 0, "key": key, "value": value}


def started(
    context: ForkServerContext, address: str, partitions: int, until_offset: int, load: LoadRange = append
) -> ForkServerProcess:
    """Starts a process that loads ranges of random partitions and lengths."""
    process = context.Process(target=load_all, args=(address, partitions, until_offset, load), daemon=True)
    process.start()
    return process


def load_all(
    address: str, partitions: int, until_offset: int, load: LoadRange = append, longest_range: int = LONGEST_RANGE
) -> None:
    """Loads ranges until the table has all offsets of all partitions; gives way to others, and goes on."""
    is_done = False
    while not is_done:
        with suppress(*NOT_COMMITTED, CatalogError):
            is_done = _load_one(address, partitions, until_offset, load, longest_range)


def _load_one(address: str, partitions: int, until_offset: int, load: LoadRange, longest_range: int) -> bool:
    """Loads a range of a random partition and length; returns whether there was none."""
    table = load_to_write(address, FS)
    ledger = ledger_of(table)
    reached = [ledger.next_offset(partition) or 0 for partition in range(partitions)]
    open_ones = [partition for partition in range(partitions) if reached[partition] < until_offset]
    if open_ones:
        chosen = random.Random()  # noqa: S311  # no secret
        partition, load_id = chosen.choice(open_ones), uuid.uuid4().hex
        until = min(until_offset, reached[partition] + chosen.randint(1, longest_range))
        load(table, partition, until, load_id)
    return not open_ones
