"""The checks of a table together: which are asked, and what they say of a table that can't be looked at."""

from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from millrace_pipelines.declaration.attributes import Check
from millrace_pipelines.declaration.cluster import RAW
from millrace_pipelines.defs import table_checks
from millrace_pipelines.defs.table_checks import AFTER_EACH_LOAD, CheckedTable, check_specs
from millrace_support.loads import FS, Loads

KEY = dg.AssetKey("events")
NOW_MS = 100_000


@pytest.fixture
def loads(tmp_path):
    loads = Loads(str(tmp_path / "events"))
    loads.load((0, 100), range(99), dead=[99], time_ms=40_000)
    return loads


@pytest.fixture(autouse=True)
def cluster(monkeypatch):
    """Answers in place of a cluster: the topic is the table's, and has 7 records more."""
    monkeypatch.setattr("millrace_pipelines.warehouse.completeness.audit.topic_findings", lambda *_: [])
    monkeypatch.setattr("millrace_pipelines.warehouse.completeness.audit.topic_findings", lambda *_: [])
    monkeypatch.setattr(table_checks, "lag_of", lambda ledger, bootstrap, client_config: {0: 7})


def results(location, checks=Check, **bounds):
    checked = CheckedTable(location=location, bootstrap="host:1", declared=RAW.model_copy(update=bounds), asset_key=KEY)
    return {result.check_name: result for result in table_checks.evaluate(checked, checks, NOW_MS, FS)}


def test_a_sound_table_passes_all(loads):
    found = results(loads.directory)
    assert list(found) == list(Check)
    assert all(result.passed and result.asset_key == KEY for result in found.values())


def test_only_what_is_asked_is_looked_at(loads):
    assert set(results(loads.directory, AFTER_EACH_LOAD)) == set(Check) - {"completeness", "stored_files"}


@pytest.mark.parametrize(
    ("bound", "check"),
    [
        ({"max_dead_letter_share": 0.009}, "dead_letters"),
        ({"freshness": timedelta(seconds=59)}, "freshness"),
        ({"lag_bound": 6}, "lag"),
        ({"max_skipped_offsets": -1}, "skipped_offsets"),
    ],
)
def test_each_bound_is_that_of_its_check(loads, bound, check):
    assert {name for name, result in results(loads.directory, **bound).items() if not result.passed} == {check}


def test_a_table_that_no_load_has_created_passes(tmp_path):
    found = results(str(tmp_path / "none"))
    assert all(result.passed for result in found.values())
    assert found["load_completeness"].description == "No load has created the table yet."


def test_a_table_that_can_t_be_read_fails_in_words(loads):
    newest = max((Path(loads.directory) / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:20])
    found = results(loads.directory)
    assert {name for name, result in found.items() if result.passed} == {"skipped_offsets"}
    assert found["lag"].description.startswith(f"The table can't be read: {loads.directory}")


def test_specs_are_those_of_the_results():
    names = [spec.name for spec in check_specs(KEY)]
    assert names == list(Check)
    assert {type(name) for name in names} == {str}  # Dagster stores no other kind
    assert not any(spec.blocking for spec in check_specs(KEY))
