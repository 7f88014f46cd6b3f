"""Tables of one row, as a load leaves them, without a broker."""

from datetime import UTC, datetime

import pyarrow as pa

from millrace.fs import FileSystem, OsFileSystem
from millrace_pipelines.warehouse.choices import Compression, Mode
from millrace_pipelines.warehouse.formats import load_to_write
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.payload.schema import PayloadSchema
from millrace_pipelines.warehouse.table.files import write_file
from millrace_pipelines.warehouse.tables.find import State, tables_below
from millrace_pipelines.warehouse.tables.open import LoadTables, look_at_tables, make_tables

LATE = datetime(2024, 1, 1, 23, 30, tzinfo=UTC)


def make_table(location: str, topic: str) -> str:
    """Makes a table with one row, whose value is the topic's name and whose timestamp is late on a day in UTC."""
    fs = OsFileSystem()
    table = open_tables(location, topic, f"id of {topic}", None, fs).rows
    columns = {name: pa.nulls(1, table.schema.field(name).type) for name in table.schema.names}
    columns |= {
        "partition": pa.array([0], pa.int32()),
        "offset": pa.array([0], pa.int64()),
        "timestamp": pa.array([LATE], table.schema.field("timestamp").type),
        "value": pa.array([topic.encode()], table.schema.field("value").type),
    }
    file = write_file(table.location, "load0", pa.table(columns, table.schema), fs)
    expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, 1)})
    table.commit([file], expected=expected, transactions=transactions, lineage={})
    return location


def open_tables(
    location: str,
    topic: str,
    topic_id: str,
    payload: PayloadSchema | None,
    fs: FileSystem,
    *,
    mode: Mode | None = None,
    compression: Compression | None = None,
) -> LoadTables:
    """Looks at the tables and makes what is missing; raises what `look_at_tables` and `make_tables` raise."""
    found = look_at_tables(
        location, topic, topic_id, payload, fs, mode=mode, compression=compression, load=load_to_write
    )
    return make_tables(found, fs)


def find_tables(directory: str) -> list[str]:
    """Returns the locations of all tables of topics in or below a folder or a bucket, without those of dead letters."""
    return [place.location for place in tables_below(directory) if place.state is State.LOADED]
