"""Upkeep of the tables as Dagster runs it, on real tables."""

import os

import dagster as dg
import pyarrow as pa
import pytest

from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.defs.maintenance import table_upkeep_asset
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.table.files import DataFileWriter

FS = OsFileSystem()
LOADS = 12
table_upkeep = table_upkeep_asset("lake")


def test_every_table_is_kept(tmp_path):
    for topic in ("events", "orders"):
        directory = str(tmp_path / topic)
        Table.load_or_create(directory, FS, schema=ENVELOPE_SCHEMA, name=topic, configuration={})
        for number in range(LOADS if topic == "events" else 1):
            row = {"topic": topic, "partition": 0, "offset": number, "timestamp": 0, "value": b"v", "headers": []}
            with DataFileWriter(directory, "load", 0, ENVELOPE_SCHEMA, FS) as writer:
                writer.write(pa.Table.from_pylist([row], ENVELOPE_SCHEMA))
                Table.load(directory, FS).commit([writer.finish()], expected={}, transactions={}, lineage={})
    (tmp_path / "no table").mkdir()
    millrace = MillraceResource(
        bootstrap="127.0.0.1:1", admin_url="", warehouse_dir=str(tmp_path), schema_dir="", master="local[1,3]"
    )
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([table_upkeep], instance=instance, resources={"lake": millrace})
        [materialization] = result.asset_materializations_for_node("lake__table_upkeep")
    assert materialization.metadata["files compacted"].value == LOADS
    rows = [record.data for record in materialization.metadata["tables"].records]
    assert [(row["files compacted"], row["files made"]) for row in rows] == [(LOADS, 1), (0, 0)]
    assert rows[0]["checkpoint"] == LOADS + 1
    assert len(Table.load(str(tmp_path / "events"), FS).files()) == 1


def test_a_damaged_table_keeps_no_other_from_being_kept(tmp_path):
    for topic in ("damaged", "events"):
        Table.load_or_create(str(tmp_path / topic), FS, schema=ENVELOPE_SCHEMA, name=topic, configuration={})
    (tmp_path / "damaged" / "_delta_log" / f"{0:020d}.json").write_text("{")
    orphan = tmp_path / "events" / "part-crashed-00000-x.parquet"
    orphan.touch()
    os.utime(orphan, (0, 0))
    millrace = MillraceResource(
        bootstrap="127.0.0.1:1", admin_url="", warehouse_dir=str(tmp_path), schema_dir="", master="local[1,3]"
    )
    with pytest.raises(dg.Failure, match="1 of 2 tables"):
        table_upkeep(dg.build_asset_context(resources={"lake": millrace}))
    assert not orphan.exists()


def test_a_warehouse_that_is_not_there_yet_has_no_tables(tmp_path):
    millrace = MillraceResource(
        bootstrap="", admin_url="", warehouse_dir=str(tmp_path / "none"), schema_dir="", master="local[1,3]"
    )
    result = table_upkeep(dg.build_asset_context(resources={"lake": millrace}))
    assert result.metadata["files compacted"] == 0
