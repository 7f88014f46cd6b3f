"""Upserts by deletion vectors: files stay, vectors delete their rows, other readers see that, compaction ends it."""

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import CHECKPOINT_INTERVAL
from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.maintenance import compact, vacuum
from millrace_pipelines.warehouse.stores.leases import lease
from millrace_pipelines.warehouse.table.files import is_vector
from millrace_support.upserts import Upserts

FS = OsFileSystem()
KEYS = [b"%02d" % number for number in range(20)]


def last_adds(upserts):
    lines = max(Path(upserts.location, "_delta_log").glob("*.json")).read_text().splitlines()
    return [json.loads(line)["add"] for line in lines if "add" in json.loads(line)]


def made(address):
    upserts = Upserts(address, by_vectors=True)
    upserts.run(*KEYS)
    return upserts


@pytest.fixture(params=["", "iceberg:"], ids=["delta", "iceberg"])
def upserts(request, tmp_path):
    return made(f"{request.param}{tmp_path}/shop.events")


@pytest.fixture
def in_delta(tmp_path):
    return made(tmp_path / "events")


def test_a_file_stays_and_its_replaced_rows_are_deleted(upserts):
    [before] = upserts.names()
    content = Path(upserts.location, before).read_bytes()
    counts = upserts.run(KEYS[3], KEYS[5])
    assert (counts.inserted, counts.updated) == (0, 2)
    assert before in upserts.names()
    assert Path(upserts.location, before).read_bytes() == content
    assert (~upserts.table.kept_rows()[before]).nonzero()[0].tolist() == [3, 5]
    assert upserts.keys() == KEYS
    assert upserts.table.add_actions().column("num_records").to_pylist().count(len(KEYS) - 2) == 1
    assert before in upserts.table.digests()


def test_deltas_log_says_that_bounds_are_not_those_of_the_rows_left(in_delta):
    in_delta.run(KEYS[3], KEYS[5])
    [again] = [add for add in last_adds(in_delta) if "deletionVector" in add]
    statistics = json.loads(again["stats"])
    assert (statistics["numRecords"], statistics["tightBounds"]) == (len(KEYS), False)


def test_each_vector_has_the_rows_of_those_before(upserts):
    [before] = upserts.names()
    for number in range(0, 20, 2):
        assert upserts.run(KEYS[number], value=None if number < 4 else b"w").stale == 0
    assert (~upserts.table.kept_rows()[before]).nonzero()[0].tolist() == list(range(0, 20, 2))
    assert upserts.keys() == sorted({*KEYS} - {KEYS[0], KEYS[2]})


def test_a_file_of_which_less_than_half_stays_is_written_again(upserts):
    [before] = upserts.names()
    upserts.run(*KEYS[:11])
    assert before not in upserts.names()
    assert upserts.vectors() == []
    assert upserts.keys() == KEYS


def test_the_audit_takes_no_replaced_row_for_a_lost_one(upserts):
    upserts.run(KEYS[3], KEYS[5])
    assert not [finding for finding in audit(upserts.address) if "vector" in finding]


def test_readers_of_delta_that_know_vectors_read_the_table(in_delta):
    in_delta.run(KEYS[3], KEYS[5])
    in_delta.run(KEYS[4], value=None)
    left = len(KEYS) - 1
    assert pl.scan_delta(in_delta.location).collect().height == left
    rows = QueryBuilder().register("events", DeltaTable(in_delta.location))
    counted = rows.execute("SELECT count(*) AS n FROM events")
    assert pa.table(counted).to_pylist() == [{"n": left}]


def test_compaction_and_vacuum_leave_no_vector(upserts):
    upserts.run(KEYS[3])
    assert compact(upserts.address, FS, SystemClock(), target_bytes=1).files_after == 1
    assert not upserts.table.kept_rows()
    removed = vacuum(upserts.address, FS, retention_hours=0).files
    assert [name for name in removed if is_vector(name)]
    assert upserts.vectors() == []
    assert upserts.keys() == KEYS
    assert upserts.run(KEYS[3]).updated == 1


def test_erasure_takes_rows_that_a_vector_deletes(upserts):
    upserts.run(KEYS[3])
    erase(upserts.address, [KEYS[3]], FS)
    vacuum(upserts.address, FS, retention_hours=0)
    assert upserts.keys() == sorted({*KEYS} - {KEYS[3]})


def test_a_vector_that_no_version_names_waits_for_running_operations(upserts):
    orphan = Path(upserts.location, "deletion_vector_00000000-0000-4000-8000-000000000000.puffin")
    orphan.write_bytes(b"")
    with lease(upserts.location, "another", FS):
        assert orphan.name not in vacuum(upserts.address, FS, retention_hours=0).files
    assert orphan.name in vacuum(upserts.address, FS, retention_hours=0).files


def test_of_two_runs_one_commits(upserts):
    with pytest.raises(StaleLedgerError):
        upserts.run(KEYS[3], between=lambda: upserts.run(KEYS[3], KEYS[4]))
    assert upserts.keys() == KEYS


def test_deltas_checkpoints_come_as_with_other_commits(in_delta):
    for number in range(CHECKPOINT_INTERVAL + 1):
        in_delta.run(KEYS[number % len(KEYS)])
    assert in_delta.table.checkpoint_version() == CHECKPOINT_INTERVAL
    assert in_delta.keys() == KEYS
    assert in_delta.run(KEYS[0]).updated == 1
