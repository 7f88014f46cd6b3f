"""Every table below a folder is named: those of Millrace, of other programs, and those that can't be read."""

import json
import os
import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from millrace_ops.cli.warehouse import app
from millrace_pipelines.defs.maintenance import table_upkeep_asset
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.warehouse.errors import QueryError
from millrace_pipelines.warehouse.tables.find import State, describe_all, table_locations, tables_below
from millrace_support.command_runner import CommandRunner
from millrace_support.small_tables import find_tables, make_table

ROWS = pa.table({"id": pa.array([1, 2])})
NOBODY = 65534


def commit(path, number, *actions):
    log = path / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{number:020d}.json").write_text("\n".join(json.dumps(action) for action in actions))


def first_of(path):
    return (path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()


def demand(path, feature):
    """Makes a table demand a feature of its readers that nobody has."""
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature], "writerFeatures": [feature]}
    (path / "_delta_log" / "_last_checkpoint").unlink(missing_ok=True)
    commit(path, len(list((path / "_delta_log").glob("*.json"))), {"protocol": protocol})


def plain(path):
    write_deltalake(path, ROWS)


def with_unknown_feature(path):
    plain(path)
    demand(path, "colonies-of-mars")


def loaded_with_unknown_feature(path):
    make_table(str(path), path.name)
    demand(path, "colonies-of-mars")


def empty_log(path):
    (path / "_delta_log").mkdir(parents=True)


def broken_log(path):
    make_table(str(path), path.name)
    (path / "_delta_log" / f"{1:020d}.json").write_bytes(b"\x00garbage{")


def gap_in_log(path):
    make_table(str(path), path.name)
    os.rename(path / "_delta_log" / f"{1:020d}.json", path / "_delta_log" / f"{7:020d}.json")


def iceberg(path):
    (path / "metadata").mkdir(parents=True)
    (path / "metadata" / "00000-a.metadata.json").write_text("{}")


def hudi(path):
    (path / ".hoodie").mkdir(parents=True)


def parquet(path):
    path.mkdir()
    pq.write_table(ROWS, path / "part-0.parquet")


def parquet_by_day(path):
    (path / "day=1").mkdir(parents=True)
    pq.write_table(ROWS, path / "day=1" / "part-0.parquet")


def log_without_metadata(path):
    commit(path, 0, {"commitInfo": {}})


OTHERS = {
    plain: ("foreign", "a Delta table that Millrace does not load"),
    with_unknown_feature: ("foreign", "colonies-of-mars"),
    loaded_with_unknown_feature: ("unreadable", "colonies-of-mars"),
    empty_log: ("unreadable", "a Delta log without a commit"),
    broken_log: ("unreadable", ""),
    gap_in_log: ("unreadable", ""),
    log_without_metadata: ("unreadable", ""),
    iceberg: ("foreign", "an Iceberg table"),
    hudi: ("foreign", "a Hudi table"),
    parquet: ("foreign", "Parquet files without a Delta log"),
    parquet_by_day: ("foreign", "Parquet files without a Delta log"),
}


@pytest.fixture(params=OTHERS, ids=lambda make: make.__name__)
def other(request, tmp_path):
    """A folder with two tables of Millrace, and one that is none between them; and what is said of that one."""
    for name in ("a", "z"):
        make_table(str(tmp_path / name), name)
    request.param(tmp_path / "m")
    return OTHERS[request.param]


def test_another_table_is_listed_with_its_reason_and_hides_none(other, tmp_path):
    state, reason = other
    assert find_tables(str(tmp_path)) == [f"{tmp_path}/a", f"{tmp_path}/z"]
    facts, [place] = describe_all(str(tmp_path))
    assert [(one.topic, one.rows) for one in facts] == [("a", 1), ("z", 1)]
    assert (place.location, place.state) == (f"{tmp_path}/m", state)
    assert reason in place.reason
    assert place.reason.isprintable()
    run = CommandRunner().invoke(app, ["tables", str(tmp_path)])
    assert run.exit_code == 0
    assert f"m {state} {place.reason}" in [" ".join(line.split()) for line in run.stdout.splitlines()]
    told = json.loads(CommandRunner().invoke(app, ["tables", str(tmp_path), "--json"]).stdout)
    assert [one.get("state", "loaded") for one in told] == ["loaded", "loaded", state]


def test_another_table_keeps_no_query_from_its_neighbours(other, tmp_path):
    state, reason = other
    run = CommandRunner().invoke(app, ["query", str(tmp_path), "SELECT count(*) AS n FROM a, z", "--json"])
    assert json.loads(run.stdout) == {"n": 1}
    run = CommandRunner().invoke(app, ["query", str(tmp_path), "SELECT * FROM m"])
    assert isinstance(run.exception, QueryError)
    assert str(run.exception).startswith(f"{tmp_path}/m is {state}: ")
    assert reason in str(run.exception)


def test_upkeep_looks_after_the_others(other, tmp_path):
    state, reason = other
    millrace = MillraceResource(bootstrap="", admin_url="", warehouse_dir=str(tmp_path), schema_dir="", master="")
    has_log = f"{tmp_path}/m" in table_locations(str(tmp_path))
    succeeds = state == State.FOREIGN or "without a commit" in reason or not has_log
    # The asset itself: a run of Dagster would try a failure again after five seconds, twice.
    with nullcontext() if succeeds else pytest.raises(dg.Failure, match="1 of 3 tables could not be maintained"):
        table_upkeep_asset("lake")(dg.build_asset_context(resources={"lake": millrace}))


def test_a_folder_that_can_not_be_listed_is_named():
    root = Path(tempfile.mkdtemp())
    try:
        root.chmod(0o755)
        (root / "locked").mkdir(mode=0o700)
        make_table(str(root / "a"), "a")
        (root / "locked").chmod(0)
        as_user = os.geteuid()
        if not as_user:
            os.seteuid(NOBODY)
        try:
            found = {place.location: (place.state, place.reason) for place in tables_below(str(root))}
        finally:
            os.seteuid(as_user)
    finally:
        shutil.rmtree(root)
    assert found == {
        f"{root}/a": (State.LOADED, ""),
        f"{root}/locked": (State.UNREADABLE, "the folder can't be listed: Permission denied"),
    }


def test_a_topic_may_be_called_as_dead_letters_are(tmp_path):
    make_table(str(tmp_path / "x__dead_letters"), "x__dead_letters")
    assert find_tables(str(tmp_path)) == [f"{tmp_path}/x__dead_letters"]
    make_table(str(tmp_path / "x"), "x")
    assert find_tables(str(tmp_path)) == [f"{tmp_path}/x"]
