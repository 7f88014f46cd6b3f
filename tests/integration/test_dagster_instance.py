"""The instance that a platform writes: Dagster takes it, and a run that was lost is retried."""

import json

import dagster as dg
import pytest
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from millrace_ops.platform.dagster_instance import fail_lost_runs, write_instance
from millrace_pipelines.defs.loads.sensors import BEHIND_PEOPLE


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


def test_the_queue_starts_runs_of_people_before_those_of_the_sensor(home):
    location = InProcessCodeLocationOrigin(LoadableTargetOrigin(python_file=__file__), location_name="here")
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, "repository"), "noop")
    with dg.DagsterInstance.from_config(home) as instance:
        for name in ("sensor 1", "sensor 2", "person 1", "person 2"):
            instance.create_run_for_job(
                noop,
                status=dg.DagsterRunStatus.QUEUED,
                tags={"name": name} | (BEHIND_PEOPLE if name.startswith("sensor") else {}),
                remote_job_origin=origin,
                job_code_origin=dg.reconstructable(noop).get_python_origin(),
            )
        daemon = QueuedRunCoordinatorDaemon(interval_seconds=1)
        runs = daemon._get_runs_to_dequeue(instance, instance.get_concurrency_config(), fixed_iteration_time=None)
    assert [run.tags["name"] for run in runs] == ["person 1", "person 2", "sensor 1", "sensor 2"]
