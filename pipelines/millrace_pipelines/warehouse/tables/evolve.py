"""Schema evolution: a table is brought to the columns of a changed schema before rows of that schema are written.

    1. the declaration, a property of the table          what the table is to become
    2. the columns: added, or                             one commit of metadata
       widened, with all files rewritten                  one commit of metadata and files
    3. rows                                               the load's own commit

A crash leaves the table whole between two of these commits, and the next load, with or without a schema, goes on from
there: it reads the declaration and finds which columns are missing.

Few readers know Delta's table feature for widened columns, so that columns are widened by a rewrite: every file is read
and written once, one after the other, a row group at a time. Loads that run meanwhile are refused by the ledger.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa

from millrace.fs import FileSystem
from millrace_pipelines.arrow import Field
from millrace_pipelines.spark.envelope import ENVELOPE_COLUMNS
from millrace_pipelines.warehouse.delta.compression import settled_compression
from millrace_pipelines.warehouse.delta.data_file import DataFile
from millrace_pipelines.warehouse.delta.files import DataFileWriter, remove_files_of_load
from millrace_pipelines.warehouse.delta.leases import lease
from millrace_pipelines.warehouse.delta.lineage import WrittenLineage
from millrace_pipelines.warehouse.delta.rewrite import read_rows
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import ledger_of, swap
from millrace_pipelines.warehouse.payload.conform import conform
from millrace_pipelines.warehouse.payload.evolution import Evolution
from millrace_pipelines.warehouse.payload.schema import PayloadSchema

PAYLOAD_SCHEMA_PROPERTY = "millrace.payloadSchema"
SCHEMA_KIND = "schema"


def payload_columns(table: Table) -> pa.Schema:
    """Returns the columns of a table behind the envelope, without its partition columns."""
    others = {*ENVELOPE_COLUMNS, *table.partition_columns}
    return pa.schema([_plain(field) for field in table.schema if field.name not in others])


def _plain(field: Field) -> Field:
    return pa.field(field.name, field.type, nullable=True)


def apply_evolution(table: Table, schema: PayloadSchema, evolution: Evolution, fs: FileSystem) -> None:
    """Brings the table to a declaration and its columns, as far as it differs from them.

    Raises:
        StaleLedgerError: Another commit came first; run again.
    """
    lineage: WrittenLineage = {"kind": SCHEMA_KIND, "added": evolution.added, "widened": evolution.widened}
    if table.configuration.get(PAYLOAD_SCHEMA_PROPERTY) != schema.to_json():
        table.configure({PAYLOAD_SCHEMA_PROPERTY: schema.to_json()}, expected={}, transactions={}, lineage=lineage)
    if evolution.widened:
        _rewrite(table, evolution.columns, lineage, fs)
    elif evolution.added:
        added = {path.partition("/")[0] for path in evolution.added}
        table.add_columns(pa.schema([field for field in evolution.columns if field.name in added]), lineage=lineage)


def _rewrite(table: Table, columns: pa.Schema, lineage: WrittenLineage, fs: FileSystem) -> None:
    """Rewrites all rows under the new columns, and sets the columns, in one commit."""
    envelope = [field for field in table.schema if field.name in ENVELOPE_COLUMNS]
    partitioned = [field for field in table.schema if field.name in table.partition_columns]
    in_files = pa.schema([*envelope, *columns])
    ledger = ledger_of(table)
    expected, _ = swap(ledger, ledger.partitions)
    load_id = uuid.uuid4().hex
    try:
        with lease(table.location, load_id, fs):
            files = list(_rewritten(table, in_files, load_id, fs))
            table.replace(pa.schema([*in_files, *partitioned]), files, expected=expected, lineage=lineage)
    except BaseException:
        table_now = Table.load(table.location, fs)
        if not any(load_id in name for name in table_now.file_names()):
            remove_files_of_load(table.location, load_id, fs)
        raise


def _rewritten(table: Table, schema: pa.Schema, load_id: str, fs: FileSystem) -> Iterator[DataFile]:
    partitions, compression = table.partition_values(), settled_compression(table.configuration)
    for number, name in enumerate(table.file_names()):
        with DataFileWriter(
            table.location, load_id, number, schema, fs, partition_values=partitions[name], compression=compression
        ) as writer:
            for rows in read_rows(table, name):
                conformed, _ = conform(rows, schema, ())
                writer.write(conformed)
            if (file := writer.finish()) is not None:
                yield file
