"""The log's actions are read from the newest whole checkpoint, whatever its kind, and from the commits after it."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.delta.log_actions import actions_of
from millrace_pipelines.warehouse.delta.table import Table
from millrace_support.loads import Loads

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
LOADS = 3
CHECKPOINT = 2


@pytest.fixture
def log(tmp_path):
    """The log of a table with three loads, of which a checkpoint has two; the first commit is gone."""
    loads = Loads(str(tmp_path / "events"))
    for low in range(0, 10 * LOADS, 10):
        loads.load((low, low + 10), range(low, low + 10))
    log = Path(loads.directory, "_delta_log")
    DeltaTable(loads.directory, version=CHECKPOINT).create_checkpoint()
    (log / f"{1:020d}.json").unlink()
    return log


def classic(log):
    return log / f"{CHECKPOINT:020d}.checkpoint.parquet"


def in_parts(log, *, whole=True):
    rows = pq.read_table(classic(log))
    half = rows.num_rows // 2
    for number, part in enumerate((rows.slice(0, half), rows.slice(half)), 1):
        if whole or number == 1:
            pq.write_table(part, log / f"{CHECKPOINT:020d}.checkpoint.{number:010d}.{2:010d}.parquet")
    if whole:
        classic(log).unlink()


def of_the_second_kind(log, suffix, prefix=""):
    rows = pq.read_table(classic(log))
    is_file = pa.compute.or_(rows.column("add").is_valid(), rows.column("remove").is_valid())
    (log / "_sidecars").mkdir()
    pq.write_table(rows.filter(is_file), log / "_sidecars" / "a b.parquet")
    rest = rows.filter(pa.compute.invert(is_file)).drop_columns(["add", "remove"]).to_pylist()
    rest.append({"sidecar": {"path": f"{prefix}a%20b.parquet", "sizeInBytes": 1, "modificationTime": 1}})
    path = log / f"{CHECKPOINT:020d}.checkpoint.{UUID}.{suffix}"
    if suffix == "json":
        said = [{kind: action for kind, action in one.items() if action is not None} for one in rest]
        path.write_text("".join(json.dumps(one) + "\n" for one in said))
    else:
        kept = [{kind: one.get(kind) for kind in ("txn", "sidecar")} for one in rest]
        pq.write_table(pa.Table.from_pylist(kept), path)
    classic(log).unlink()


@pytest.mark.parametrize("change", [
    classic,
    in_parts,
    lambda log: in_parts(log, whole=False),
    lambda log: of_the_second_kind(log, "json"),
    lambda log: of_the_second_kind(log, "parquet"),
    lambda log: of_the_second_kind(log, "parquet", "file:///elsewhere/_delta_log/_sidecars/"),
])  # fmt: skip
def test_every_kind_of_checkpoint_is_read(log, change):
    table = Table.load(str(log.parent), OsFileSystem())
    names, version = table.file_names(), table.version
    change(log)
    assert version == LOADS
    assert sorted(action["path"] for action in actions_of(table, "add", ("path", "stats"))) == names
    moved = [txn["version"] for txn in actions_of(table, "txn", ("appId", "version"))]
    assert max(moved) == 10 * LOADS
    assert list(actions_of(table, "remove", ("path",))) == []


def test_parts_that_are_not_all_there_are_no_checkpoint(log):
    table = Table.load(str(log.parent), OsFileSystem())
    in_parts(log, whole=False)
    classic(log).unlink()
    assert len(list(actions_of(table, "add", ("path",)))) == LOADS - 1
