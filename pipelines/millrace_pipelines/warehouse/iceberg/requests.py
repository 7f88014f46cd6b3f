"""What one commit asks a catalog for, in the words of Iceberg's REST catalogs.

    requirements    the table is the one that was loaded, and so are `main` and the columns
    updates         columns, the snapshot with the ledger in its summary, `main`, properties, expired snapshots

    files of the commit      operation of its snapshot
    none, or added ones      append
    added and removed        overwrite; replace where their rows are the same
    removed                  delete

A file that only gets another deletion vector counts as a removed one here.

Metadata stays small: the oldest snapshots of `main` expire with the commit, once there are more than KEPT_SNAPSHOTS, or
their summaries are larger than KEPT_BYTES. Their lineage is in files of its own before that (`table.lineage`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.snapshots import Operation

from millrace_pipelines.warehouse.iceberg.addresses import IcebergAddress
from millrace_pipelines.warehouse.iceberg.garbage import is_collected
from millrace_pipelines.warehouse.iceberg.ledger_state import (
    TOTAL_RECORDS,
    LedgerState,
    ancestors,
    copied,
    said,
    summary_of,
)
from millrace_pipelines.warehouse.iceberg.manifest_files import VECTORS_FROM, next_row_id
from millrace_pipelines.warehouse.iceberg.manifests import ListedFile
from millrace_pipelines.warehouse.iceberg.written_manifests import Marked, WrittenSnapshot
from millrace_pipelines.warehouse.table.files import DataFile, MarkedFile, NamedFile
from millrace_pipelines.warehouse.table.lineage import WrittenLineage
from millrace_pipelines.warehouse.table.table import NOTHING_MARKED

KEPT_SNAPSHOTS, LEAST_SNAPSHOTS = 100, 5
KEPT_BYTES = 256 << 10
TOTALS = {
    "total-data-files": ("added-data-files", "deleted-data-files"),
    TOTAL_RECORDS: ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
}
Update: TypeAlias = Mapping[str, object]
"""An update or requirement as Iceberg's REST catalogs spell it."""
Evolve: TypeAlias = Callable[[Schema, int], Schema]
"""Returns the schema that a commit makes of the table's, given that and the highest id that the table has given."""
NOTHING_SET: Mapping[str, str] = {}


class Change(NamedTuple):
    """What a commit does beside the ledger.

    Attributes:
        files: The data files that it adds.
        transactions: Application ids with their new versions.
        lineage: What it says of itself.
        removed: The data files that it removes, or deletes rows of.
        marked: By name, the vectors of those that it only deletes rows of.
        data_change: False where the added files hold the rows of the removed ones.
        properties: The table's properties that it sets.
        evolve: What makes the table's columns; None where they stay.
    """

    files: Sequence[DataFile]
    transactions: Mapping[str, int]
    lineage: WrittenLineage
    removed: Sequence[NamedFile] = ()
    marked: Mapping[str, MarkedFile] = NOTHING_MARKED
    data_change: bool = True
    properties: Mapping[str, str] = NOTHING_SET
    evolve: Evolve | None = None

    @property
    def operation(self) -> Operation:
        """Returns what Iceberg calls the commit."""
        if not self.removed:
            return Operation.APPEND
        if not self.data_change:
            return Operation.REPLACE
        return Operation.OVERWRITE if self.files else Operation.DELETE


class NewSnapshot(NamedTuple):
    """The snapshot of a commit.

    Attributes:
        snapshot_id: Its id.
        sequence_number: Its number.
        time_ms: Its time.
        written: Its manifests.
        removed: The files that are not in it any more.
        marked: The files in it that have another vector than before.
    """

    snapshot_id: int
    sequence_number: int
    time_ms: int
    written: WrittenSnapshot
    removed: Sequence[ListedFile]
    marked: Sequence[Marked]


def request_for(
    change: Change, new: NewSnapshot, address: IcebergAddress, metadata: TableMetadata, state: LedgerState
) -> CommitTableRequest:
    """Returns the request for a commit on this version, whose ledger is in `state`."""
    following = LedgerState(new.sequence_number, state.version, {**state.transactions, **change.transactions}, {})
    counts = counts_after(metadata, change.files, new)
    schema_id, schema_updates = _schema_updates(change, metadata)
    snapshot = {
        "snapshot-id": new.snapshot_id,
        "parent-snapshot-id": metadata.current_snapshot_id,
        "sequence-number": new.sequence_number,
        "timestamp-ms": max(new.time_ms, metadata.last_updated_ms),
        "manifest-list": new.written.manifest_list,
        "summary": {"operation": change.operation.value, **counts, **said(following, change.lineage)},
        "schema-id": schema_id,
        **_row_ids(metadata, new.written),
    }
    rows = int(counts.get(TOTAL_RECORDS, "0"))
    properties = {**change.properties, **copied(following, change.lineage, snapshot=new.snapshot_id, rows=rows)}
    expired = expired_snapshots(metadata)
    updates = [
        *schema_updates,
        {"action": "add-snapshot", "snapshot": snapshot},
        _main_at(new.snapshot_id, metadata.refs.get(MAIN_BRANCH)),
        {"action": "set-properties", "updates": properties},
        *([_without(expired)] if expired else []),
    ]
    return _request(address, _requirements(metadata), updates)


def _row_ids(metadata: TableMetadata, written: WrittenSnapshot) -> Update:
    """Returns what a snapshot says of the row ids that its manifests were given; nothing before format version 3."""
    if metadata.format_version < VECTORS_FROM:
        return {}
    return {"first-row-id": next_row_id(metadata), "added-rows": written.row_ids}


def removal_of(snapshot_ids: Sequence[int], address: IcebergAddress, metadata: TableMetadata) -> CommitTableRequest:
    """Returns the request that lets snapshots expire, while `main` is as it was loaded."""
    return _request(address, _requirements(metadata)[:2], [_without(snapshot_ids)])


def _without(snapshot_ids: Sequence[int]) -> Update:
    return {"action": "remove-snapshots", "snapshot-ids": snapshot_ids}


def _request(address: IcebergAddress, requirements: Sequence[Update], updates: Sequence[Update]) -> CommitTableRequest:
    table = {"namespace": address.namespace, "name": address.parts[-1]}
    return CommitTableRequest.model_validate({"identifier": table, "requirements": requirements, "updates": updates})


def _schema_updates(change: Change, metadata: TableMetadata) -> tuple[int, list[Update]]:
    """Returns the id of the schema after a commit, and the updates that make it the table's."""
    if change.evolve is None:
        return metadata.current_schema_id, []
    schema_id = max(one.schema_id for one in metadata.schemas) + 1
    made = change.evolve(metadata.schema(), metadata.last_column_id)
    schema = Schema(*made.fields, schema_id=schema_id, identifier_field_ids=made.identifier_field_ids)
    return schema_id, [
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": schema_id},
    ]


def _requirements(metadata: TableMetadata) -> list[Update]:
    """Returns what has to be as it was loaded for a commit to be made."""
    return [
        {"type": "assert-table-uuid", "uuid": metadata.table_uuid},
        {"type": "assert-ref-snapshot-id", "ref": MAIN_BRANCH, "snapshot-id": metadata.current_snapshot_id},
        {"type": "assert-current-schema-id", "current-schema-id": metadata.current_schema_id},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": metadata.last_column_id},
    ]


def _main_at(snapshot_id: int, main: SnapshotRef | None) -> Update:
    """Returns the update that moves `main`, whose settings stay."""
    settings = {} if main is None else {
        "max-ref-age-ms": main.max_ref_age_ms,
        "max-snapshot-age-ms": main.max_snapshot_age_ms,
        "min-snapshots-to-keep": main.min_snapshots_to_keep,
    }  # fmt: skip
    moved = {"action": "set-snapshot-ref", "ref-name": MAIN_BRANCH, "type": "branch", "snapshot-id": snapshot_id}
    return moved | {name: value for name, value in settings.items() if value is not None}


def counts_after(metadata: TableMetadata, files: Sequence[DataFile], new: NewSnapshot) -> dict[str, str]:
    """Returns what a snapshot's summary says of its files, and of all together where the one before it says that."""
    current = metadata.current_snapshot()
    before = {} if current is None else summary_of(current)
    vectors, deletes_gone = [one.vector.vector for one in new.marked], new.written.deletes_gone
    vectors_gone = [one for one in deletes_gone if one.file_format == FileFormat.PUFFIN]
    added = {
        "added-data-files": len(files),
        "added-records": sum(file.rows for file in files),
        "added-files-size": sum(file.size_bytes for file in files) + sum(int(one["size"]) for one in vectors),
        "added-delete-files": len(vectors),
        "added-dvs": len(vectors),
        "added-position-deletes": sum(int(one["cardinality"]) for one in vectors),
    }
    gone = {
        "deleted-data-files": len(new.removed),
        "deleted-records": sum(file.rows for file in new.removed),
        "removed-files-size": sum(one.size_bytes for one in new.removed) + sum(one.size_bytes for one in deletes_gone),
        "removed-delete-files": len(deletes_gone),
        "removed-dvs": len(vectors_gone),
        "removed-position-delete-files": len(deletes_gone) - len(vectors_gone),
        "removed-position-deletes": sum(one.rows for one in deletes_gone),
    }
    totals = {
        total: int(before.get(total, "0")) + added[plus] - gone[minus]
        for total, (plus, minus) in TOTALS.items()
        if current is None or total in before
    }
    numbers = {name: number for name, number in (added | gone).items() if number} | totals
    return {name: str(number) for name, number in numbers.items()}


def expired_snapshots(metadata: TableMetadata) -> list[int]:
    """Returns the oldest snapshots of `main` that a commit expires, to keep the metadata small."""
    if not is_collected(metadata):
        return []
    least = max(LEAST_SNAPSHOTS, int(metadata.properties.get("history.expire.min-snapshots-to-keep", "1")))
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    kept_bytes, expired = 0, []
    for number, snapshot in enumerate(ancestors(metadata), start=2):
        kept_bytes += sum(len(value) for value in summary_of(snapshot).values())
        is_beyond = number > max(KEPT_SNAPSHOTS, least) or (number > least and kept_bytes > KEPT_BYTES)
        if is_beyond and snapshot.snapshot_id not in named:
            expired.append(snapshot.snapshot_id)
    return expired
