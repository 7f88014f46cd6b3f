"""What a table goes on without, as a table of its own at `<table>__skipped`, a row for each range.

The truth is in the lineage of the commit that went on: in the same commit, the transaction `millrace/skipped` of the
table counts such commits. The rows here are made of it afterwards, each exactly once, for this table's own transaction
of that name says how many of those commits it has:

    crash before the commit          nothing was skipped
    crash between commit and rows    the table's count is ahead: the next load, or whoever asks, writes the rows

A lease is held while they are written, so that upkeep of this table leaves the new file alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from millrace.fs import FileSystem
from millrace.records.arrow import TIMESTAMP_TYPE
from millrace_pipelines.warehouse.delta.files import write_file
from millrace_pipelines.warehouse.delta.leases import lease
from millrace_pipelines.warehouse.delta.rewrite import files_removed_on
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import StaleLedgerError

SKIPPED_SUFFIX = "__skipped"
APP_ID = "millrace/skipped"
LINEAGE_LIST = "lost"
FIELDS: list[pa.Field[Any]] = [
    pa.field("topic", pa.string()),
    pa.field("topic_id", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("from_offset", pa.int64()),
    pa.field("until_offset", pa.int64()),
    pa.field("reason", pa.string()),
    pa.field("time", TIMESTAMP_TYPE),
    pa.field("load_id", pa.string()),
]
SCHEMA = pa.schema(FIELDS)


def skipped_location(table: str) -> str:
    """Where the skipped ranges of a table are."""
    return table.rstrip("/") + SKIPPED_SUFFIX


def count_skips(table: Table) -> tuple[dict[str, int | None], dict[str, int]]:
    """(version that a commit which skips something builds on, version that it sets)."""
    count = table.transaction_version(APP_ID)
    return {APP_ID: count}, {APP_ID: (count or 0) + 1}


def publish_skipped(table: Table, fs: FileSystem) -> int:
    """Write the rows of all commits that skipped something and are not here yet; how many rows there were to write.

    Raises StaleLedgerError where another does so at the same time.
    """
    count = table.transaction_version(APP_ID)
    if count is None:
        return 0
    location = skipped_location(table.location)
    skipped = Table.load_or_create(location, fs, schema=SCHEMA, name=f"{table.name} skipped", configuration={})
    done = skipped.transaction_version(APP_ID)
    if count == done:
        return 0
    commits = [commit for commit in table.lineage() if commit.get(LINEAGE_LIST)][(done or 0) : count]
    rows = [row for commit in commits for row in _rows(commit)]
    operation_id = uuid.uuid4().hex
    with lease(location, operation_id, fs), files_removed_on(StaleLedgerError, [location], operation_id, fs):
        file = write_file(location, operation_id, pa.Table.from_pylist(rows, SCHEMA), fs)
        skipped.commit([file], expected={APP_ID: done}, transactions={APP_ID: count}, lineage={"kind": "skipped"})
    return len(rows)


def _rows(commit: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    names = ("topic", "topic_id", "load_id")
    facts = {name: commit[name] for name in names} | {"time": commit["time_ms"] * 1000}
    return [facts | span for span in commit[LINEAGE_LIST]]
