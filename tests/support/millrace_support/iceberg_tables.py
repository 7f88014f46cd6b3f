"""Iceberg tables of an embedded catalog, written as loads write them, and a catalog whose answers are lost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import CommitTableRequest, CommitTableResponse
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.typedef import Record

from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.formats import load_or_create, load_to_write
from millrace_pipelines.warehouse.iceberg import catalogs
from millrace_pipelines.warehouse.iceberg.addresses import parse_address
from millrace_pipelines.warehouse.iceberg.ledger_state import summary_of
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


def made(address: str, schema: pa.Schema = ENVELOPE_SCHEMA, *, by_vectors: bool = False) -> Table:
    """Returns the table of the topic `events` at an address, which is created unless it is there."""
    return load_or_create(
        address, FS, schema=schema, name="events", configuration=PROPERTIES, deletion_vectors=by_vectors
    )


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


def made_of_two_files(address: str) -> str:
    """Makes a table of two files, with the offsets 0 to 9 and 10 to 19; returns its address."""
    made(address)
    load_range(address, 10)
    load_range(address, 20)
    return address


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


def compact_elsewhere(address: str) -> None:
    """Joins all files of a table into one, in one commit of another program."""
    table = other_engine(address)
    with table.transaction() as change, change.update_snapshot().overwrite() as overwrite:
        for task in table.scan().plan_files():
            overwrite.delete_data_file(task.file)
        for file in _dataframe_to_data_files(table.metadata, table.scan().to_arrow(), table.io):
            overwrite.append_data_file(file)


class _DeletesWriter(ManifestWriterV2):
    """Writes a manifest of files with deletes, which PyIceberg has no writer of."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete_positions(address: str, positions: Mapping[str, Sequence[int]], *, by_equality: bool = False) -> None:
    """Deletes rows of files, by name, as other engines do with format version 2: by a file of positions.

    With `by_equality` the file is said to hold values instead.
    """
    table = other_engine(address)
    metadata, location = table.metadata, table.metadata.location.rstrip("/")
    assert isinstance(metadata, TableMetadataV2)
    snapshot_id, number = metadata.new_snapshot_id(), metadata.last_sequence_number + 1
    places = sorted((f"{location}/{name}", position) for name, rows in positions.items() for position in rows)
    path = f"{location}/deletes-{snapshot_id}.parquet"
    columns = {"file_path": [file for file, _ in places], "pos": [position for _, position in places]}
    pq.write_table(pa.table(columns), path.removeprefix("file://"))
    file = IcebergFile.from_args(
        content=DataFileContent.EQUALITY_DELETES if by_equality else DataFileContent.POSITION_DELETES,
        file_path=path, file_format=FileFormat.PARQUET, partition=Record(), record_count=len(places),
        file_size_in_bytes=os.path.getsize(path.removeprefix("file://")), equality_ids=[1] if by_equality else None,
    )  # fmt: skip
    manifest, listed = (f"{location}/metadata/{name}-{snapshot_id}.avro" for name in ("deletes", "snap"))
    with _DeletesWriter(
        metadata.spec(), metadata.schema(), table.io.new_output(manifest), snapshot_id, "deflate"
    ) as output:
        output.add_entry(
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file)
        )
    before = metadata.current_snapshot()
    assert before is not None
    with write_manifest_list(
        2, table.io.new_output(listed), snapshot_id, before.snapshot_id, number, "deflate"
    ) as manifests:
        manifests.add_manifests([output.to_manifest_file(), *before.manifests(table.io)])
    totals = {name: number for name, number in summary_of(before).items() if name.startswith("total-")}
    snapshot = {
        "snapshot-id": snapshot_id, "parent-snapshot-id": before.snapshot_id, "sequence-number": number,
        "timestamp-ms": metadata.last_updated_ms + 1, "manifest-list": listed, "schema-id": metadata.current_schema_id,
        "summary": {"operation": "delete", **totals, "total-delete-files": "1"},
    }  # fmt: skip
    moved = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
    updates = [{"action": "add-snapshot", "snapshot": snapshot}, moved]
    identifier = {"namespace": ["shop"], "name": "any"}
    request = CommitTableRequest.model_validate({"identifier": identifier, "requirements": [], "updates": updates})
    table.catalog.commit_table(table, request.requirements, request.updates)


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
