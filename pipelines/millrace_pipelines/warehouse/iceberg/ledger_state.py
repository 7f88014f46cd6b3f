"""The ledger in Iceberg's metadata: which snapshot says it, and what it says.

    snapshot's summary     millrace.transactions   {"millrace": {"<topic id>": {"0": {"": 12, "start": 0}}}}
                           millrace.lineage        what the commit says of itself
                           millrace.after          the version of the commit of Millrace's before it
    table's properties     millrace.ledger         the same of the newest commit, with its snapshot's id and rows

Every snapshot of Millrace's has all transactions, so that one is enough. Snapshots of others have none: a compaction,
a deletion or an append of another engine moves no offset. So the newest snapshot of Millrace's among the ancestors of
`main` tells the ledger. After a rollback that is an older one, which has the rows of its offsets and no others; what
was loaded after it is loaded again.

Others may expire that snapshot. Then the properties tell the ledger, if it can be shown that nothing was rolled back
meanwhile: the oldest ancestor that is left follows on the expired snapshot, or had at least its rows before it.

A version is a snapshot's sequence number, which only grows; the version after it is not always the next one, as a
rollback abandons some.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from millrace_pipelines.warehouse.errors import LedgerError
from millrace_pipelines.warehouse.table.lineage import LINEAGE_KEY, Lineage, WrittenLineage, parse_lineage

TRANSACTIONS = "millrace.transactions"
AFTER = "millrace.after"
COPY = "millrace.ledger"
TOTAL_RECORDS = "total-records"
Nested: TypeAlias = dict[str, Any]


class LedgerState(NamedTuple):
    """The newest commit that Millrace made: its version (0 for none), the version before it, and all transactions."""

    version: int
    after: int
    transactions: Mapping[str, int]
    lineage: Lineage


NOTHING = LedgerState(0, 0, {}, {})


def ancestors(metadata: TableMetadata, snapshot_id: int | None = None) -> list[Snapshot]:
    """Returns the snapshots of `main`, or from another one on, newest first, as far as they are not expired."""
    by_id, found = {one.snapshot_id: one for one in metadata.snapshots}, []
    first = metadata.current_snapshot_id if snapshot_id is None else snapshot_id
    newest = None if first is None else by_id.get(first)
    while newest is not None:
        found.append(newest)
        newest = None if newest.parent_snapshot_id is None else by_id.get(newest.parent_snapshot_id)
    return found


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Returns the properties in a snapshot's summary; none where it has no summary."""
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def version_of(snapshot: Snapshot) -> int:
    """Returns a snapshot's version, its sequence number."""
    return snapshot.sequence_number or 0


def state_of(snapshot: Snapshot, where: str) -> LedgerState | None:
    """Returns what a snapshot of Millrace's says; None for one of another writer."""
    summary = summary_of(snapshot)
    if TRANSACTIONS not in summary:
        return None
    lineage = parse_lineage(summary.get(LINEAGE_KEY, "{}"), f"{where}: {LINEAGE_KEY} of {snapshot.snapshot_id}")
    return LedgerState(
        version_of(snapshot), int(summary.get(AFTER, "0")), flat(json.loads(summary[TRANSACTIONS])), lineage
    )


def newest_state(metadata: TableMetadata, where: str) -> LedgerState:
    """Returns what the newest commit of Millrace's says that the table still builds on.

    Raises:
        LedgerError: That commit's snapshot is expired, and rows may have been rolled back since.
    """
    line = ancestors(metadata)
    for snapshot in line:
        if (state := state_of(snapshot, where)) is not None:
            return state
    if COPY not in metadata.properties:
        return NOTHING
    copy = json.loads(metadata.properties[COPY])
    if not line or not _builds_on(line[-1], copy):
        raise LedgerError(
            f"{where}: the newest snapshot of Millrace's is expired, and the rows are fewer than it had, so that it "
            "can't be told whether a rollback took some: roll forward to a snapshot that has them all, or load into "
            "another table"
        )
    return LedgerState(copy["version"], copy["after"], flat(copy["transactions"]), copy["lineage"])


def _builds_on(oldest: Snapshot, copy: Mapping[str, Any]) -> bool:
    if oldest.parent_snapshot_id == copy["snapshot"]:
        return True
    summary = summary_of(oldest)
    if TOTAL_RECORDS not in summary:
        return False
    total, added, deleted = (
        int(summary.get(name, "0")) for name in (TOTAL_RECORDS, "added-records", "deleted-records")
    )
    return version_of(oldest) > int(copy["version"]) and total - added + deleted >= int(copy["rows"])


def said(state: LedgerState, lineage: WrittenLineage) -> dict[str, str]:
    """Returns what a snapshot's summary has of a state."""
    return {
        TRANSACTIONS: json.dumps(nested(state.transactions), separators=(",", ":")),
        LINEAGE_KEY: json.dumps(lineage, separators=(",", ":")),
        AFTER: str(state.after),
    }


def copied(state: LedgerState, lineage: WrittenLineage, *, snapshot: int, rows: int) -> dict[str, str]:
    """Returns the property that has a copy of a state, and of the snapshot that said it."""
    copy = {
        "snapshot": snapshot,
        "version": state.version,
        "after": state.after,
        "rows": rows,
        "transactions": nested(state.transactions),
        "lineage": lineage,
    }
    return {COPY: json.dumps(copy, separators=(",", ":"))}


def copied_snapshot(metadata: TableMetadata) -> int | None:
    """Returns the id of the snapshot that the copy in the table's properties was written with; None without one."""
    copy = metadata.properties.get(COPY)
    return None if copy is None else int(json.loads(copy)["snapshot"])


def nested(transactions: Mapping[str, int]) -> Nested:
    """Returns transactions by the parts of their application ids, which many of them share."""
    tree: Nested = {}
    for app_id, version in transactions.items():
        *parts, last = app_id.split("/")
        inner = tree
        for part in parts:
            if not isinstance(inner.get(part), dict):
                inner[part] = {"": inner[part]} if part in inner else {}
            inner = inner[part]
        if isinstance(inner.get(last), dict):
            inner[last][""] = version
        else:
            inner[last] = version
    return tree


def flat(tree: Nested, prefix: str = "") -> dict[str, int]:
    """Returns the transactions in what `nested` returned."""
    found: dict[str, int] = {}
    for part, inner in tree.items():
        app_id = prefix if part == "" else f"{prefix}/{part}" if prefix else part
        found |= flat(inner, app_id) if isinstance(inner, dict) else {app_id: inner}
    return found
