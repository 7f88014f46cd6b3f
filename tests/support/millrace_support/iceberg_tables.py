"""Iceberg tables of an embedded catalog, written as loads write them, and a catalog whose answers are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse
from pyiceberg.table import Table as PyIcebergTable

from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.formats import load_or_create, load_to_write
from millrace_pipelines.warehouse.iceberg import catalogs
from millrace_pipelines.warehouse.iceberg.addresses import parse_address
from millrace_pipelines.warehouse.ledger.ledger import (
    TOPIC_ID_PROPERTY,
    TOPIC_PROPERTY,
    LedgerEntry,
    ledger_of,
    swap,
)
from millrace_pipelines.warehouse.table.files import DataFile, write_file
from millrace_pipelines.warehouse.table.table import Table

FS = OsFileSystem()
PROPERTIES = {TOPIC_PROPERTY: "events", TOPIC_ID_PROPERTY: "id-1"}


def made(address: str, schema: pa.Schema = ENVELOPE_SCHEMA) -> Table:
    """Returns the table of the topic `events` at an address, which is created unless it is there."""
    return load_or_create(address, FS, schema=schema, name="events", configuration=PROPERTIES)


def rows_of(partition: int, from_offset: int, until_offset: int, schema: pa.Schema = ENVELOPE_SCHEMA) -> pa.Table:
    """Returns a row for each offset, whose value tells it."""
    rows = [
        {"topic": "events", "partition": partition, "offset": offset, "value": b"%d/%d" % (partition, offset)}
        for offset in range(from_offset, until_offset)
    ]
    return pa.Table.from_pylist(rows, schema)


def written(table: Table, load_id: str, partition: int, from_offset: int, until_offset: int) -> DataFile:
    """Writes the rows of a range to a file, as a task of the load does."""
    rows = rows_of(partition, from_offset, until_offset, table.schema)
    return write_file(table.location, load_id, rows, FS, table.field_ids)


def commit_range(table: Table, until_offset: int, *, partition: int = 0, load_id: str = "load") -> int:
    """Commits the rows from where the table's ledger ends up to an offset; returns the version."""
    ledger = ledger_of(table)
    start = ledger.next_offset(partition) or 0
    file = written(table, load_id, partition, start, until_offset)
    following = {partition: LedgerEntry(start, until_offset)}
    expected, transactions = swap(ledger, following)
    lineage = {
        "kind": "load", "load_id": load_id, "ledger": ledger.name,
        "ranges": [{"partition": partition, "from_offset": start, "until_offset": until_offset, "rows": file.rows}],
    }  # fmt: skip
    return table.commit([file], expected=expected, transactions=transactions, lineage=lineage)


def load_range(address: str, until_offset: int, *, partition: int = 0, load_id: str = "load") -> int:
    """Loads the table at an address and commits a range as `commit_range` does."""
    return commit_range(load_to_write(address, FS), until_offset, partition=partition, load_id=load_id)


def offsets(table: Table) -> Counter[tuple[int, int]]:
    """Returns how often the table has each offset; each row's value must be the one that the load gave it."""
    rows = table.dataset().to_table(columns=["partition", "offset", "value"]).to_pylist()
    assert all(row["value"] == b"%d/%d" % (row["partition"], row["offset"]) for row in rows)
    return Counter((row["partition"], row["offset"]) for row in rows)


def each_once(*until_offsets: int) -> Counter[tuple[int, int]]:
    """Returns each offset of the partitions 0, 1, … up to these once."""
    return Counter((partition, offset) for partition, until in enumerate(until_offsets) for offset in range(until))


def other_engine(address: str) -> PyIcebergTable:
    """Returns the table as another program sees it, which knows nothing of the ledger."""
    return catalogs.load(parse_address(address))


def kind_of(address: str) -> type[Catalog]:
    """Returns the kind of a table's catalog."""
    return type(catalogs.catalog_of(parse_address(address)))


class LostAnswerError(Exception):
    """The connection broke before the answer came."""


@contextmanager
def commits_pass(
    act: Callable[[Callable[[], CommitTableResponse]], CommitTableResponse], kind: type[Catalog] = SqlCatalog
) -> Iterator[None]:
    """Lets `act` stand between all commits and catalogs of a kind; it gets what makes the commit."""
    commit = kind.commit_table

    def between(self: Catalog, *given: Any) -> CommitTableResponse:
        return act(lambda: commit(self, *given))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "commit_table", between)
        yield
