"""One test that loads everything, and the shape of what is loaded."""

import tomllib
from pathlib import Path

import dagster as dg
import pytest

from millrace_pipelines.definitions import defs
from millrace_pipelines.defs.tables.checks.evaluate import AFTER_EACH_LOAD
from millrace_pipelines.defs.tables.checks.results import Check

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def graph():
    return defs.resolve_asset_graph()


def test_everything_loads():
    dg.Definitions.validate_loadable(defs)


def test_workspace_and_dg_name_the_same_module():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]
    module = tool["project"]["code_location_target_module"]
    assert module == "millrace_pipelines.definitions"
    assert f"module_name: {module}\n" in (ROOT / "workspace.yaml").read_text()


def test_assets_and_what_they_are_made_from(graph):
    parents = {
        key.to_user_string(): {parent.to_user_string() for parent in graph.get(key).parent_keys}
        for key in graph.get_all_asset_keys()
    }
    assert parents == {
        "topic": set(),
        "warehouse_table": {"topic"},
        "retention": {"topic"},
        "compaction": {"topic"},
        "recovery_check": {"topic"},
        "table_upkeep": {"warehouse_table"},
    }


def test_every_asset_is_described_and_grouped(graph):
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description, key
        assert node.group_name == "millrace", key  # several groups would start folded in the graph


def test_what_can_be_triggered_is_materializable(graph):
    assert {key.to_user_string() for key in graph.materializable_asset_keys} == {
        "warehouse_table",
        "retention",
        "compaction",
        "recovery_check",
        "table_upkeep",
    }


def test_checks(graph):
    names = {(key.asset_key.to_user_string(), key.name) for key in graph.asset_check_keys}
    others = {("recovery_check", "no_findings"), ("topic", "one_live_owner")}
    assert names == others | {("warehouse_table", check.value) for check in Check}


def test_assets_have_links_to_their_code(graph):
    for key in graph.materializable_asset_keys:
        [link] = graph.get(key).metadata["dagster/code_references"].code_references
        assert link.file_path.startswith(str(ROOT / "pipelines" / "millrace_pipelines" / "defs"))
        assert link.line_number > 1


@pytest.mark.parametrize(("job", "checks"), [("load", set(AFTER_EACH_LOAD)), ("audit", {Check.COMPLETENESS})])
def test_the_whole_table_is_audited_at_night_alone(job, checks):
    keys = defs.resolve_job_def(job).asset_layer.asset_graph.asset_check_keys
    assert {key.name for key in keys} == checks


def test_loads_share_a_pool():
    """They have no retry policy, by which Dagster would retry a run that is cancelled: their steps ask for retries."""
    op = defs.get_assets_def("warehouse_table").op
    assert op.pool == "spark"
    assert op.retry_policy is None


def test_schedules_run_and_the_loading_sensor_waits_to_be_turned_on():
    status = {each.name: each.default_status.value for each in [*defs.sensors, *defs.schedules]}
    assert status == {
        "topics": "RUNNING",
        "new_records": "STOPPED",
        "table_history": "RUNNING",
        "table_lag": "RUNNING",
        "hourly_retention": "RUNNING",
        "hourly_compaction": "RUNNING",
        "hourly_ownership_check": "RUNNING",
        "hourly_pruning": "RUNNING",
        "nightly_audit": "RUNNING",
        "nightly_recovery_check": "RUNNING",
        "nightly_table_upkeep": "RUNNING",
    }


def test_addresses_are_resolved_when_a_run_starts_and_a_missing_one_is_named(monkeypatch):
    for name in ("BOOTSTRAP", "ADMIN_URL", "WAREHOUSE_DIR", "SCHEMA_DIR", "SPARK_MASTER"):
        monkeypatch.delenv(f"MILLRACE_{name}", raising=False)
    job = defs.resolve_implicit_global_asset_job_def()
    with pytest.raises(dg.DagsterInvalidConfigError, match="MILLRACE_BOOTSTRAP"):
        job.execute_in_process(asset_selection=[dg.AssetKey("retention")])
