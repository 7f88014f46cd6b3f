"""Vacuum of tables whose folders have names that are written with percent signs."""

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_FIELDS, ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.maintenance import compact, vacuum
from millrace_pipelines.warehouse.stores.lease import LEASE_SUFFIX, LEASES_DIRECTORY
from millrace_pipelines.warehouse.stores.leases import lease
from millrace_pipelines.warehouse.table.files import DataFileWriter
from millrace_support.unchanged import unchanged

FS = OsFileSystem()
HOURS = {"event_hour": "2026-01-01 00:00:00"}


@pytest.fixture
def table(tmp_path):
    """Two files of one hour, made one; those of before are old as files, and were removed just now."""
    directory = str(tmp_path / "t")
    schema = pa.schema([*ENVELOPE_FIELDS, pa.field("event_hour", pa.timestamp("us", "UTC"))])
    Table.load_or_create(directory, FS, schema=schema, name="events", configuration={}, partition_by=["event_hour"])
    for offset in range(2):
        row = {"topic": "events", "partition": 0, "offset": offset, "timestamp": 0, "value": b"v", "headers": []}
        with DataFileWriter(directory, "load", 0, ENVELOPE_SCHEMA, FS, partition_values=HOURS) as writer:
            writer.write(pa.Table.from_pylist([row], ENVELOPE_SCHEMA))
            Table.load(directory, FS).commit([writer.finish()], expected={}, transactions={}, lineage={})
    assert compact(directory, FS, SystemClock()).files_before == 2
    for path in there(directory):
        os.utime(path, (0, 0))
    return directory


def there(directory):
    return {str(path) for path in Path(directory).glob("event_hour=*/*.parquet")}


def test_removed_files_of_such_folders_go_and_named_ones_stay(table):
    assert len(vacuum(table, FS, retention_hours=0).files) == 2
    assert there(table) == set(Table.load(table, FS).files())


def test_removed_files_of_such_folders_stay_for_the_retention(table):
    assert vacuum(table, FS, retention_hours=1).files == ()
    assert len(there(table)) == 3


def test_orphans_of_such_folders_go(table):
    orphan = Path(Table.load(table, FS).files()[0]).with_name("part-crashed-00000-x.parquet")
    orphan.touch()
    os.utime(orphan, (0, 0))
    assert [name.rpartition("/")[2] for name in vacuum(table, FS, retention_hours=1).files] == [orphan.name]


def test_a_dry_run_removes_neither_files_nor_leases_of_crashed_operations(table, tmp_path):
    leases = Path(table, LEASES_DIRECTORY)
    leases.mkdir(exist_ok=True)
    (leases / f"crashed{LEASE_SUFFIX}").touch()
    with lease(table, "running", FS), unchanged(tmp_path):
        would = vacuum(table, FS, retention_hours=0, dry_run=True)
    with lease(table, "running", FS):
        done = vacuum(table, FS, retention_hours=0)
        assert os.listdir(leases) == [f"running{LEASE_SUFFIX}"]
    assert would == replace(done, dry_run=True)
    assert len(would.files) == 2
