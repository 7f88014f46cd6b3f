"""Compaction of Iceberg tables: few files of many, partition by partition, beside loads and other engines."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import Operation

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_FIELDS, ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.errors import TableRefusedError
from millrace_pipelines.warehouse.formats import load_or_create, load_table, load_to_write
from millrace_pipelines.warehouse.iceberg.ledger_state import summary_of
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.maintenance import checkpoint, compact, vacuum
from millrace_pipelines.warehouse.stores.leases import lease
from millrace_pipelines.warehouse.table.files import DataFileWriter
from millrace_support.iceberg_tables import (
    PROPERTIES,
    commit_range,
    each_once,
    load_range,
    made,
    offsets,
    other_engine,
    rows_of,
)

FS = OsFileSystem()
HOUR = pa.field("event_hour", pa.timestamp("us", "UTC"))


@pytest.fixture
def address(tmp_path):
    made(f"iceberg:{tmp_path}/lake/shop.events")
    return f"iceberg:{tmp_path}/lake/shop.events"


def test_small_files_become_one_and_all_else_stays(address):
    loaded = load_to_write(address, FS)
    for number in range(6):
        commit_range(loaded, 10 * (number + 1), partition=number % 2)
    ledger, rows = ledger_of(loaded), offsets(loaded)
    report = compact(address, FS, SystemClock())
    assert (report.files_before, report.files_after, report.version) == (6, 1, 7)
    found = load_table(address, FS)
    assert offsets(found) == rows
    assert ledger_of(found).partitions == ledger.partitions
    assert found.lineage()[-1]["kind"] == "compact"
    newest = other_engine(address).current_snapshot()
    assert newest.summary.operation is Operation.REPLACE
    assert summary_of(newest)["total-records"] == str(rows.total())
    assert other_engine(address).scan().to_arrow().num_rows == rows.total()
    assert compact(address, FS, SystemClock()).version is None
    assert load_range(address, 80) == 8


def test_files_of_other_engines_are_joined_too(address):
    load_range(address, 10)
    other_engine(address).append(rows_of(7, 0, 3))
    assert compact(address, FS, SystemClock()).files_after == 1
    assert offsets(load_table(address, FS)) == each_once(10) + each_once(*[0] * 7, 3)


def test_hours_of_event_time_are_compacted_by_themselves(tmp_path):
    address = f"iceberg:{tmp_path}/lake/shop.events"
    at = pa.field("at", pa.timestamp("us", "UTC"))
    table = load_or_create(
        address, FS, schema=pa.schema([*ENVELOPE_FIELDS, at, HOUR]), name="events", configuration=PROPERTIES,
        partition_by={"event_hour": "at"},
    )  # fmt: skip
    schema = pa.schema([*ENVELOPE_FIELDS, at])
    hours = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (0, 1)]
    for offset in range(6):
        hour = hours[offset % 2]
        row = {"topic": "events", "partition": 0, "offset": offset, "at": hour, "value": b"0/%d" % offset}
        values = {"event_hour": f"{hour:%Y-%m-%d %H:%M:%S}"}
        with DataFileWriter(
            table.location, "load", 0, schema, FS, partition_values=values, field_ids=table.field_ids
        ) as writer:
            writer.write(pa.Table.from_pylist([row], schema))
            table.commit([writer.finish()], expected={}, transactions={}, lineage={})
    report = compact(address, FS, SystemClock())
    assert (report.files_before, report.files_after) == (6, 2)
    found = load_table(address, FS)
    assert offsets(found) == each_once(6)
    assert {name.partition("/")[0] for name in found.file_names()} == {
        "event_hour=2026-01-01%2000%3A00%3A00", "event_hour=2026-01-01%2001%3A00%3A00",
    }  # fmt: skip
    planned = other_engine(address).scan(row_filter="at >= '2026-01-01T01:00:00+00:00'").plan_files()
    assert [task.file.record_count for task in planned] == [3]


def test_upkeep_beside_racing_loads_neither_doubles_nor_loses_a_row(address):
    """Vacuum without any retention, too: what running loads have written stays."""
    location = load_table(address, FS).location
    for partition in range(2):
        load_range(address, 5, partition=partition)

    def load(partition):
        for number in range(8):
            load_id = f"load{partition}x{number}"
            with lease(location, load_id, FS):
                load_range(address, 10 * (number + 1), partition=partition, load_id=load_id)

    gone = []
    with ThreadPoolExecutor(3) as pool:
        loads = [pool.submit(load, partition) for partition in range(2)]
        for _ in range(3):
            compact(address, FS, SystemClock())
            gone += vacuum(address, FS, retention_hours=0).files
        for one in loads:
            one.result()
    assert gone
    assert offsets(load_table(address, FS)) == each_once(80, 80)
    assert len([one for one in load_table(address, FS).lineage() if one["kind"] == "load"]) == 18


def test_files_are_joined_under_the_columns_of_now(address):
    load_range(address, 3)
    load_to_write(address, FS).add_columns(
        pa.schema([*ENVELOPE_SCHEMA, pa.field("more", pa.int32())]), lineage={"kind": "columns"}
    )
    load_range(address, 6)
    assert compact(address, FS, SystemClock()).files_after == 1
    assert load_table(address, FS).dataset().to_table(columns=["more"]).column("more").null_count == 6
    assert offsets(load_table(address, FS)) == Counter((0, offset) for offset in range(6))


def test_a_table_has_no_checkpoints(address):
    load_range(address, 3)
    with pytest.raises(TableRefusedError, match="read by itself"):
        checkpoint(address, FS)
