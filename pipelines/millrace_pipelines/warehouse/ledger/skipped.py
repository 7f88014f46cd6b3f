"""The offset ranges that a table goes on without, as rows of another table at `<table>__skipped`.

The lineage of the commit that went on holds the truth; in the same commit, the transaction `millrace/skipped` of the
table counts such commits. The rows are made from the lineage afterwards, each exactly once, for the transaction of that
name in the table of skipped ranges counts the commits whose rows it has:

    crash before the commit          nothing was skipped
    crash between commit and rows    the table's count is ahead, and the next load or reload writes the rows

A lease is held while they are written, so that maintenance of this table leaves the new file alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from millrace.fs import FileSystem
from millrace.records.arrow import TIMESTAMP_TYPE
from millrace_pipelines.arrow import Field
from millrace_pipelines.warehouse.delta.files import write_file
from millrace_pipelines.warehouse.delta.leases import lease
from millrace_pipelines.warehouse.delta.lineage import Lineage, LineageRange
from millrace_pipelines.warehouse.delta.rewrite import files_removed_on
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import StaleLedgerError

SKIPPED_SUFFIX = "__skipped"
APP_ID = "millrace/skipped"
LINEAGE_LIST: Final = "lost"
MISSING_LIST: Final = "missing"
FIELDS: list[Field] = [
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
    """Returns the location of the table of skipped ranges."""
    return table.rstrip("/") + SKIPPED_SUFFIX


def count_skips(table: Table) -> tuple[dict[str, int | None], dict[str, int]]:
    """Returns, by application id, the versions that a commit with skipped ranges expects and sets."""
    count = table.transaction_version(APP_ID)
    return {APP_ID: count}, {APP_ID: (count or 0) + 1}


def publish_skipped(table: Table, fs: FileSystem) -> int:
    """Writes the rows of commits that skipped something, as far as they are missing, and returns their number.

    Raises:
        StaleLedgerError: Another process wrote them at the same time.
    """
    count = table.transaction_version(APP_ID)
    if count is None:
        return 0
    location = skipped_location(table.location)
    skipped = Table.load_or_create(location, fs, schema=SCHEMA, name=f"{table.name} skipped", configuration={})
    done = skipped.transaction_version(APP_ID)
    if count == done:
        return 0
    commits = [commit for commit in table.lineage() if _skipped(commit)][(done or 0) : count]
    rows = [row for commit in commits for row in _rows(commit)]
    operation_id = uuid.uuid4().hex
    with lease(location, operation_id, fs), files_removed_on(StaleLedgerError, [location], operation_id, fs):
        file = write_file(location, operation_id, pa.Table.from_pylist(rows, SCHEMA), fs)
        skipped.commit([file], expected={APP_ID: done}, transactions={APP_ID: count}, lineage={"kind": "skipped"})
    return len(rows)


def _rows(commit: Lineage) -> Sequence[Mapping[str, object]]:
    topic, topic_id, load_id, time_us = commit["topic"], commit["topic_id"], commit["load_id"], commit["time_ms"] * 1000
    return [
        {"topic": topic, "topic_id": topic_id, "load_id": load_id, "time": time_us, **span} for span in _skipped(commit)
    ]


def _skipped(commit: Lineage) -> list[LineageRange]:
    return [*commit.get(LINEAGE_LIST, ()), *commit.get(MISSING_LIST, ())]
