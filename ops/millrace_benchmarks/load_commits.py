"""What a commit costs in a table of many commits: its compare-and-swap, log file and syncs, and loading the table."""

from __future__ import annotations

import statistics
import tempfile
import time
from itertools import count

import pyarrow as pa

from millrace.times import SECOND_MS
from millrace_benchmarks.harness import Samples
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.formats import load_or_create, load_table
from millrace_pipelines.warehouse.ledger.ledger import (
    TOPIC_ID_PROPERTY,
    TOPIC_PROPERTY,
    LedgerEntry,
    ledger_of,
    swap,
)
from millrace_pipelines.warehouse.table.files import write_file
from millrace_pipelines.warehouse.table.table import Table

COMMITS_BEFORE = 1_000
MEASURED = 21  # more than lie between two checkpoints
PROPERTIES = {TOPIC_PROPERTY: "bench", TOPIC_ID_PROPERTY: "bench"}


def commit_after(commits: int = COMMITS_BEFORE) -> Samples:
    """Returns the median milliseconds of a commit, and of loading table and ledger, in a table of `commits` commits."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory:
        table = made_table(directory)
        offsets = count()
        for _ in range(commits):
            commit_row(table, next(offsets))
        loading, committing = [], []
        for _ in range(MEASURED):
            started = time.perf_counter()
            table = load_table(directory, DISK)
            ledger_of(table)
            loading.append((time.perf_counter() - started) * SECOND_MS)
            committing.append(commit_row(table, next(offsets)) * SECOND_MS)
    return {"load": statistics.median(loading), "commit": statistics.median(committing)}


def made_table(address: str) -> Table:
    """Returns a new table at an address, in its format."""
    return load_or_create(address, DISK, schema=ENVELOPE_SCHEMA, name="bench", configuration=PROPERTIES)


def commit_row(table: Table, offset: int) -> float:
    """Commits one row as a load would, and returns the seconds of the commit alone."""
    row = {name: pa.nulls(1, table.schema.field(name).type) for name in table.schema.names}
    row |= {"partition": pa.array([0], pa.int32()), "offset": pa.array([offset], pa.int64())}
    rows = pa.table(row, schema=table.schema)
    file = write_file(table.location, f"{offset:032d}", rows, DISK, table.field_ids)
    expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, offset + 1)})
    span = {"partition": 0, "from_offset": offset, "until_offset": offset + 1, "rows": 1, "dead_letters": 0}
    started = time.perf_counter()
    table.commit([file], expected=expected, transactions=transactions, lineage={"kind": "load", "ranges": [span]})
    return time.perf_counter() - started
