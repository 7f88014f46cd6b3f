"""Commits that no run reported become materializations, each once, whatever became of cursor and table."""

import shutil
from pathlib import Path

import dagster as dg
import pytest

from millrace_pipelines.defs import load_automation
from millrace_pipelines.defs.load_automation import (
    Position,
    TableAsset,
    cursor_of,
    look_at_history,
    parse_cursor,
)
from millrace_pipelines.defs.table_metadata import commit_metadata
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.load.history import COMMITS_AT_ONCE, commits_since
from millrace_support.loads import FS, Loads

KEY = dg.AssetKey(["table", "events"])


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def loads(tmp_path):
    loads = Loads(str(tmp_path / "events"))
    loads.load((0, 5), range(5))
    return loads


class Sensor:
    """Looks as the sensor does: it stores the events and keeps the cursor."""

    def __init__(self, instance, *directories, key=None):
        self.instance = instance
        self.assets = [TableAsset(directory, key or KEY) for directory in directories]
        self.cursor = None
        self.damaged = {}

    def tick(self):
        seen = look_at_history(self.instance, self.assets, parse_cursor(self.cursor), FS)
        self.cursor = cursor_of(seen.positions)
        self.damaged = seen.damaged
        for event in seen.events:
            self.instance.report_runless_asset_event(event)
        return [event.metadata["committed version"].value for event in seen.events]


@pytest.fixture
def sensor(instance, loads):
    return Sensor(instance, loads.directory)


def reported(instance, loads, version):
    """A run's own materialization of a commit."""
    table = Table.load(loads.directory, FS)
    [commit] = commits_since(table, version - 1, 1)
    metadata = commit_metadata(table, commit)
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, metadata=metadata))


def test_each_commit_is_reported_once(loads, sensor):
    assert sensor.tick() == [1]
    assert sensor.tick() == []
    loads.load((5, 6), [5])
    loads.load((6, 8), [6, 7])
    assert sensor.tick() == [2, 3]
    assert sensor.tick() == []


def test_what_leaves_the_rows_as_they_are_is_not_reported(loads, sensor):
    for lineage in ({"kind": "compact"}, {"kind": "schema"}, {"kind": "compression"}, {"kind": "replay", "rows": 2}):
        loads.add([], lineage=lineage)
    loads.add([], lineage={"kind": "erase", "absent": []})
    assert sensor.tick() == [1, 5, 6]


def test_the_newest_commit_shows_the_table(loads, instance, sensor):
    loads.load((5, 6), [5])
    sensor.tick()
    second, first = instance.fetch_materializations(KEY, limit=5).records
    assert second.asset_materialization.metadata["dagster/row_count"].value == 6
    assert second.asset_materialization.metadata["rows"].value == 1
    assert "dagster/row_count" not in first.asset_materialization.metadata


def test_what_a_run_reported_is_known(loads, instance, sensor):
    reported(instance, loads, 1)
    loads.load((5, 6), [5])
    assert sensor.tick() == [2]


def test_a_commit_of_a_run_waits_for_its_end(loads, instance, sensor):
    run = instance.create_run_for_job(noop, status=dg.DagsterRunStatus.STARTED)
    sensor.tick()
    loads.load((5, 6), [5])
    loads.load((6, 7), [6], run_id=run.run_id)
    loads.load((7, 8), [7])
    assert sensor.tick() == [2]
    assert sensor.tick() == []
    reported(instance, loads, 3)
    instance.report_run_canceled(run)
    assert sensor.tick() == [4]


def test_a_run_that_ended_without_a_report_has_its_commit_reported(loads, instance, sensor):
    run = instance.create_run_for_job(noop, status=dg.DagsterRunStatus.STARTED)
    loads.load((5, 6), [5], run_id=run.run_id)
    assert sensor.tick() == [1]
    instance.report_run_failed(run)
    loads.load((6, 7), [6], run_id="unknown to the instance")
    assert sensor.tick() == [2, 3]


@pytest.mark.parametrize("cursor", [None, "", "garbage", "[]", "7", '{"a": 1}', "null"])
def test_a_lost_cursor_repeats_nothing(loads, sensor, cursor):
    assert sensor.tick() == [1]
    loads.load((5, 6), [5])
    sensor.cursor = cursor
    assert sensor.tick() == [2]


def test_assets_are_apart(instance, tmp_path):
    first, second = (Loads(str(tmp_path / name)) for name in ("a", "b"))
    for loads in (first, second):
        loads.load((0, 5), range(5))
    assert Sensor(instance, first.directory, key=dg.AssetKey("a")).tick() == [1]
    assert Sensor(instance, first.directory, key=dg.AssetKey("a")).tick() == []
    assert Sensor(instance, second.directory, key=dg.AssetKey("b")).tick() == [1]


def test_a_table_that_was_deleted_and_created_again(loads, sensor):
    sensor.tick()
    shutil.rmtree(loads.directory)
    assert sensor.tick() == []
    again = Loads(loads.directory)
    assert sensor.tick() == []
    again.load((0, 2), [0, 1])
    assert sensor.tick() == [1]
    again.load((2, 3), [2])
    assert sensor.tick() == [2]


def test_a_damaged_table_is_told_and_delays_no_other(instance, loads, tmp_path):
    other = Loads(str(tmp_path / "other"))
    other.load((0, 3), [0, 1, 2])
    sensor = Sensor(instance, loads.directory, other.directory)
    assert sensor.tick() == [1, 1]
    loads.load((5, 6), [5])
    other.load((3, 4), [3])
    newest = Path(loads.directory) / "_delta_log" / f"{2:020d}.json"
    whole = newest.read_bytes()
    newest.write_bytes(whole[:30])
    assert sensor.tick() == [2]
    assert list(sensor.damaged) == [loads.directory]
    newest.write_bytes(whole)
    assert sensor.tick() == [2]
    assert sensor.damaged == {}


def test_a_look_is_bounded(loads, instance, tmp_path, monkeypatch):
    monkeypatch.setattr(load_automation, "EVENTS_AT_ONCE", 3)
    monkeypatch.setattr(load_automation, "COMMITS_AT_ONCE", 3)
    other = Loads(str(tmp_path / "other"))
    other.load((0, 3), [0, 1, 2])
    for offset in range(5, 10):
        loads.load((offset, offset + 1), [offset])
    sensor = Sensor(instance, loads.directory, other.directory)
    assert [sensor.tick() for _ in range(4)] == [[1, 2, 1], [3, 4, 5], [6], []]
    assert COMMITS_AT_ONCE == 100


def test_a_table_without_news_is_not_loaded(loads, sensor, monkeypatch):
    sensor.tick()
    monkeypatch.setattr(Table, "load", None)
    assert sensor.tick() == []


def test_positions_of_tables_that_are_no_assets_any_more_are_dropped(sensor):
    sensor.cursor = cursor_of({"/gone": Position("id", 3)})
    sensor.tick()
    assert "/gone" not in parse_cursor(sensor.cursor)


@pytest.mark.parametrize("entry", ["7", '["id"]', '["id", "7"]', '["id", -2]', "[7, 7]", '["id", 7.5]'])
def test_what_is_no_position_is_passed_over(entry):
    assert parse_cursor(f'{{"/a": ["id", 7], "/b": {entry}}}') == {"/a": Position("id", 7)}


@dg.job
def noop():
    """Stands for a load."""
