"""A Dagster that was down while schedules were due runs each of them once when it is back."""

import logging
from collections import Counter
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.workspace.load_target import ModuleTarget
from dagster._scheduler.scheduler import launch_scheduled_runs

from millrace_ops.supervisor.dagster_instance import write_instance
from millrace_pipelines.project import make_project, write_definitions

DECLARED = """
type: millrace_pipelines.MillraceComponent
attributes:
  tables:
    - {topic: flights, schedule: "*/5 * * * *", freshness: 1h}
    - {topic: weather, schedule: "30 2 * * *"}
"""
SCHEDULE = "dagster/schedule_name"
STARTED_AT = datetime(2026, 3, 1, 12, 2, tzinfo=UTC)
DOWN = timedelta(days=4)  # each schedule is due at least daily


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    write_definitions(str(tmp_path), "cluster/defs.yaml", DECLARED)
    make_project(str(tmp_path))
    monkeypatch.setenv("MILLRACE_PROJECT_DIR", str(tmp_path))
    monkeypatch.setenv("MILLRACE_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("MILLRACE_WAREHOUSE_DIR", str(tmp_path / "warehouse"))
    write_instance(str(tmp_path / "dagster"), 4266, 4267)
    target = ModuleTarget("millrace_pipelines.definitions", None, str(tmp_path), "millrace")
    with (
        dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance,
        create_test_daemon_workspace_context(target, instance) as workspace,
    ):
        yield workspace


def look(workspace, now):
    """Does what the daemon does when it looks at the schedules."""
    errors = [one for one in launch_scheduled_runs(workspace, logging.getLogger(), now, {}) if one is not None]
    assert errors == []


def test_a_dagster_that_was_down_over_several_due_ticks_runs_each_schedule_once(workspace):
    look(workspace, STARTED_AT)
    instance = workspace.instance
    schedules = {one.name for one in instance.all_instigator_state(instigator_type=InstigatorType.SCHEDULE)}
    assert {"nightly_audit_millrace", "bounds_millrace", "hourly_pruning"} < schedules
    assert {name for name in schedules if name.startswith("load_")} == {
        "load_flights_millrace",
        "load_weather_millrace",
    }
    assert instance.get_runs() == []

    for now in (STARTED_AT + DOWN, STARTED_AT + DOWN + timedelta(seconds=30)):
        look(workspace, now)
        assert Counter(run.tags[SCHEDULE] for run in instance.get_runs()) == dict.fromkeys(schedules, 1)
