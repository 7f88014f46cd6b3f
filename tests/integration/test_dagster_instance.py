"""The instance that a platform writes: Dagster takes it, a lost run is retried, and one that hangs frees its pool."""

import json
import logging
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from types import SimpleNamespace

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.execution.api import create_execution_plan
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import TickStatus
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._daemon.monitoring.run_monitoring import execute_run_monitoring_iteration
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from millrace_ops.supervisor.dagster_instance import write_instance
from millrace_ops.supervisor.prepare_instance import POOLS, fail_lost_runs, limit_pools
from millrace_pipelines.defs.load_assets import SPARK_POOL
from millrace_pipelines.defs.load_automation import BEHIND_PEOPLE


@dg.job
def noop():
    """Stands for a load."""


@dg.op(pool="spark")
def hang():
    """Stands for a load in the pool of Spark."""


@dg.job
def hanging():
    """Stands for a load that does not end."""
    hang()


class Yes(StreamRequestHandler):
    """Answers as a server of runs that has a worker for each."""

    def handle(self):
        self.rfile.readline()
        self.wfile.write(b"yes\n")


@pytest.fixture
def run_server():
    """A server whose workers go on, whatever they are told."""
    with ThreadingTCPServer(("127.0.0.1", 0), Yes) as server:
        Thread(target=server.serve_forever).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture
def home(tmp_path, request):
    port = request.getfixturevalue("run_server") if "run_server" in request.fixturenames else 4267
    write_instance(str(tmp_path / "dagster"), 4266, port)
    return str(tmp_path / "dagster")


def test_dagster_takes_the_configuration(home):
    with dg.DagsterInstance.from_config(home) as instance:
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled
        assert instance.run_retries_enabled
        pools = instance.get_concurrency_config().pool_config
        assert (pools.default_pool_limit, pools.pool_granularity.value) == (1, "run")
        for kind in (InstigatorType.SENSOR, InstigatorType.SCHEDULE, InstigatorType.AUTO_MATERIALIZE):
            kept = instance.get_tick_retention_settings(kind)
            assert (kept[TickStatus.SKIPPED], kept[TickStatus.SUCCESS], kept[TickStatus.FAILURE]) == (1, 7, 7)


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
        fail_lost_runs(instance)
        assert {status: instance.get_run_by_id(run_id).status for status, run_id in runs.items()} == expected


def queued(instance, job, **how):
    """A run of a job that waits, as the UI launches it; its plan names the pools of its steps."""
    location = InProcessCodeLocationOrigin(LoadableTargetOrigin(python_file=__file__), location_name="here")
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, "repository"), job.name)
    return instance.create_run_for_job(
        job,
        status=dg.DagsterRunStatus.QUEUED,
        execution_plan=create_execution_plan(job),
        remote_job_origin=origin,
        job_code_origin=dg.reconstructable(job).get_python_origin(),
        **how,
    )


def dequeued(instance):
    daemon = QueuedRunCoordinatorDaemon(interval_seconds=1)
    return daemon._get_runs_to_dequeue(instance, instance.get_concurrency_config(), fixed_iteration_time=None)


def test_the_queue_starts_runs_of_people_before_those_of_the_sensor(home):
    with dg.DagsterInstance.from_config(home) as instance:
        for name in ("sensor 1", "sensor 2", "person 1", "person 2"):
            queued(instance, noop, tags={"name": name} | (BEHIND_PEOPLE if name.startswith("sensor") else {}))
        runs = dequeued(instance)
    assert [run.tags["name"] for run in runs] == ["person 1", "person 2", "sensor 1", "sensor 2"]


@pytest.mark.usefixtures("run_server")
def test_a_run_that_hangs_frees_its_pool_when_its_time_is_over(home):
    with dg.DagsterInstance.from_config(home) as instance:
        limit_pools(instance)
        hung = queued(instance, hanging, tags={"dagster/max_runtime": "0.001"})
        waiting = queued(instance, hanging)
        assert [run.run_id for run in dequeued(instance)] == [hung.run_id]
        report_started(instance, hung)
        assert dequeued(instance) == []
        process = SimpleNamespace(instance=instance, create_request_context=lambda: None)
        assert list(execute_run_monitoring_iteration(process, logging.getLogger("monitoring"))) == [None]
        assert instance.get_run_by_id(hung.run_id).status is dg.DagsterRunStatus.FAILURE
        said = [entry.message for entry in instance.all_logs(hung.run_id)]
        assert "Canceling due to exceeding maximum runtime of 0 seconds." in said
        assert [run.run_id for run in dequeued(instance)] == [waiting.run_id]


def report_started(instance, run):
    """What a run worker reports first."""
    for kind in (dg.DagsterEventType.RUN_STARTING, dg.DagsterEventType.RUN_START):
        instance.report_dagster_event(dg.DagsterEvent(kind.value, job_name=run.job_name), run.run_id)


def test_the_pool_of_loads_has_its_limit_from_the_start():
    assert SPARK_POOL in POOLS
