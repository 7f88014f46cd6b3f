"""The instance that a platform writes: Dagster takes it, and a run that was lost is retried."""

import json

import dagster as dg
import pytest

from millrace_ops.platform.dagster_instance import fail_lost_runs, write_instance


@dg.job
def noop():
    """Stands for a load."""


@pytest.fixture
def home(tmp_path):
    write_instance(str(tmp_path / "dagster"), 4266)
    return str(tmp_path / "dagster")


def test_dagster_takes_the_configuration(home):
    with dg.DagsterInstance.from_config(home) as instance:
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled
        assert instance.run_retries_enabled
        pools = instance.get_concurrency_config().pool_config
        assert (pools.default_pool_limit, pools.pool_granularity.value) == (1, "run")


def test_the_workspace_is_the_code_server(home):
    with open(f"{home}/workspace.yaml", encoding="utf-8") as file:
        server = json.load(file)["load_from"][0]["grpc_server"]
    assert server == {"host": "127.0.0.1", "port": 4266, "location_name": "millrace"}


def test_runs_under_way_when_the_platform_ended_have_failed(home):
    states = dg.DagsterRunStatus
    expected = {
        states.STARTING: states.FAILURE,
        states.STARTED: states.FAILURE,
        states.CANCELING: states.FAILURE,
        states.SUCCESS: states.SUCCESS,
        states.NOT_STARTED: states.NOT_STARTED,
    }
    with dg.DagsterInstance.from_config(home) as instance:
        runs = {status: instance.create_run_for_job(noop, status=status).run_id for status in expected}
    fail_lost_runs(home)
    with dg.DagsterInstance.from_config(home) as instance:
        assert {status: instance.get_run_by_id(run_id).status for status, run_id in runs.items()} == expected


def test_a_first_start_has_no_runs_to_fail(tmp_path):
    fail_lost_runs(str(tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()
