"""The server of runs: each run has its own process, forked from one that has the imports, and no end of one is lost."""

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import dagster as dg
import psutil
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.events import DagsterEvent
from dagster._core.launcher.base import WorkerStatus
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from millrace.ports import free_port, is_listening
from millrace_ops.supervisor.dagster_instance import LAUNCH_RETRY_DELAY_S, write_instance
from millrace_ops.supervisor.run_launcher import Request, ask, read_line
from millrace_support.waiting import until

PATIENCE_S = 120
LOST = dg.DagsterRunStatus.FAILURE
JOBS = """
import os
import time
from pathlib import Path
import dagster as dg

@dg.op
def say():
    print({said!r})

@dg.job
def saying():
    say()

@dg.op
def wait():
    Path({marker!r}).touch()
    time.sleep(600)

@dg.job
def waiting():
    wait()

@dg.logger
def termination(context):
    # At its first call Dagster has looked at the state of the run, and has not reported its start yet.
    instance = dg.DagsterInstance.get()
    run = instance.get_run_by_id(context.run_id)
    if run.status is dg.DagsterRunStatus.STARTING:
        instance.report_run_canceling(run)
    return dg.get_dagster_logger()

@dg.job(logger_defs={{"termination": termination}}, config={{"loggers": {{"termination": {{}}}}}})
def terminated():
    wait()

@dg.op
def pause():
    Path({marker!r}).touch()
    time.sleep(1)

@dg.job
def pausing():
    pause()

@dg.asset
def chosen():
    pass

@dg.asset
def other():
    pass

@dg.definitions
def defs():
    with open({loads!r}, "a") as loads:
        print(os.getpid(), file=loads)
    return dg.Definitions([chosen, other], jobs=[saying, waiting, terminated, pausing], executor=dg.in_process_executor)
"""


@dg.job
def a_job():
    pass


@contextmanager
def run_server(home, port):
    """A server that is ready; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "millrace_ops.supervisor.run_server", str(port)]
    with subprocess.Popen(command, env={**os.environ, "DAGSTER_HOME": home}) as server:
        try:
            until(lambda: is_listening("127.0.0.1", port))
            yield psutil.Process(server.pid)
        finally:
            for process in psutil.Process(server.pid).children() if server.poll() is None else ():
                process.kill()
            server.kill()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder of an instance, and the port of its server."""
    home, port = str(tmp_path_factory.mktemp("run-server") / "dagster"), free_port()
    write_instance(home, free_port(), port)
    return home, port


@pytest.fixture(scope="module")
def server(place):
    with run_server(*place) as server:
        yield server


@pytest.fixture
def instance(place):
    with dg.DagsterInstance.from_config(place[0]) as instance:
        yield instance


@pytest.fixture
def launch(instance, tmp_path):
    """Launches a run of a job, whose step leaves a marker when it waits; `said` is what a step prints."""

    def launch(name, said="said", assets=None):
        places = {"marker": str(tmp_path / "waits"), "loads": str(tmp_path / "loads")}
        (tmp_path / "jobs.py").write_text(JOBS.format(said=said, **places))
        repository = ReconstructableRepository.for_file(str(tmp_path / "jobs.py"), "defs", str(tmp_path))
        job = repository.get_reconstructable_job(name)
        run = instance.create_run_for_job(
            job.get_subset(asset_selection=assets).get_definition(),
            job_code_origin=job.get_python_origin(),
            asset_selection=assets,
        )
        instance.launch_run(run.run_id, None)
        return run.run_id

    return launch


def status(instance, run_id):
    return instance.get_run_by_id(run_id).status


def worker_pid(instance, run_id):
    """The id of the process that said that it has started."""
    [started] = [text for text in messages(instance, run_id) if text.startswith("Started process for run")]
    return int(started.split("pid: ")[1].split(")")[0])


def messages(instance, run_id):
    return [entry.dagster_event.message or "" for entry in instance.all_logs(run_id) if entry.dagster_event]


def printed(instance, run_id):
    """What the steps of a run have printed, as the UI shows it."""
    [captured] = [
        entry.dagster_event.logs_captured_data
        for entry in instance.all_logs(run_id)
        if entry.dagster_event and entry.dagster_event.event_type is dg.DagsterEventType.LOGS_CAPTURED
    ]
    return instance.compute_log_manager.get_log_data([run_id, "compute_logs", captured.file_key]).stdout.decode()


def test_a_run_is_executed_by_a_fork_with_the_code_of_its_time(server, instance, launch):
    for said in ("the first", "and changed"):
        run_id = launch("saying", said)
        until(lambda run_id=run_id: instance.get_run_by_id(run_id).is_finished)
        assert status(instance, run_id) is dg.DagsterRunStatus.SUCCESS
        until(lambda run_id=run_id, said=said: printed(instance, run_id) == f"{said}\n")
    assert server.is_running()


@pytest.mark.usefixtures("server")
def test_a_worker_loads_the_definitions_once_for_a_run_of_some_assets(instance, launch, tmp_path):
    run_id = launch("__ASSET_JOB", assets=frozenset({dg.AssetKey("chosen")}))
    until(lambda: instance.get_run_by_id(run_id).is_finished)
    assert status(instance, run_id) is dg.DagsterRunStatus.SUCCESS
    assert instance.get_latest_materialization_event(dg.AssetKey("chosen")).run_id == run_id
    assert (tmp_path / "loads").read_text().split().count(str(worker_pid(instance, run_id))) == 1


def test_a_worker_that_is_killed_fails_its_run_at_once(server, instance, launch, tmp_path):
    run_id = launch("waiting")
    until((tmp_path / "waits").exists)
    worker, launcher = psutil.Process(worker_pid(instance, run_id)), instance.run_launcher
    assert worker.parent() == server
    assert launcher.check_run_worker_health(instance.get_run_by_id(run_id)).status is WorkerStatus.RUNNING
    worker.kill()
    until(lambda: instance.get_run_by_id(run_id).is_finished)
    assert status(instance, run_id) is LOST
    assert any("was terminated by signal 9 (SIGKILL)" in text for text in messages(instance, run_id))
    assert launcher.check_run_worker_health(instance.get_run_by_id(run_id)).status is WorkerStatus.NOT_FOUND
    until(lambda: server.children() == [])


@pytest.mark.parametrize("begun", [True, False], ids=["during a step", "before the worker can be interrupted"])
@pytest.mark.usefixtures("server")
def test_a_run_that_is_terminated_is_cancelled(instance, launch, tmp_path, begun):
    run_id = launch("waiting")
    if begun:
        until((tmp_path / "waits").exists)
    assert instance.run_launcher.terminate(run_id)
    until(lambda: instance.get_run_by_id(run_id).is_finished)
    assert status(instance, run_id) is dg.DagsterRunStatus.CANCELED
    until(lambda: not psutil.pid_exists(worker_pid(instance, run_id)))
    assert not instance.run_launcher.terminate(run_id)


@pytest.mark.usefixtures("server")
def test_a_run_that_is_terminated_as_it_starts_is_cancelled(instance, launch, tmp_path, place):
    run_id = launch("terminated")
    until((tmp_path / "waits").exists)
    assert ask(place[1], Request.INTERRUPT, run_id)
    until(lambda: instance.get_run_by_id(run_id).is_finished)
    assert status(instance, run_id) is dg.DagsterRunStatus.CANCELED


def test_what_is_no_request_is_not_answered(server, place):
    until(lambda: server.children() == [])  # a worker ends a moment after its run does
    for line in (b"dance x\n", b"launch\n", b"\xff\xfe\n"):
        with socket.create_connection(("127.0.0.1", place[1])) as connection:
            connection.sendall(line)
            assert read_line(connection) == b""
    assert not ask(place[1], Request.FIND, "unknown")
    assert not ask(place[1], Request.INTERRUPT, "unknown")
    assert server.children() == []


@pytest.mark.usefixtures("server")
def test_a_run_without_code_fails(instance):
    run = instance.create_run_for_job(a_job)
    instance.launch_run(run.run_id, None)
    until(lambda: instance.get_run_by_id(run.run_id).is_finished)
    assert status(instance, run.run_id) is LOST


def test_the_server_waits_for_runs_when_it_stops(server, instance, launch, tmp_path):
    """This comes last, as it ends the server."""
    run_id = launch("pausing")
    until((tmp_path / "waits").exists)
    server.terminate()
    server.wait(PATIENCE_S)
    assert status(instance, run_id) is dg.DagsterRunStatus.SUCCESS
    health = instance.run_launcher.check_run_worker_health(instance.get_run_by_id(run_id))
    assert health.status is WorkerStatus.NOT_FOUND
    assert health.msg == "the server of runs has ended, and its workers with it"
    with pytest.raises(DagsterUserCodeUnreachableError):
        launch("saying")


def test_a_run_waits_in_the_queue_while_there_is_no_server(tmp_path):
    home, port = str(tmp_path / "dagster"), free_port()
    write_instance(home, free_port(), port)
    with (
        dg.DagsterInstance.from_config(home) as instance,
        create_test_daemon_workspace_context(EmptyWorkspaceTarget(), instance) as workspace,
        QueuedRunCoordinatorDaemon(interval_seconds=1) as queue,
    ):
        code_server = GrpcServerCodeLocationOrigin("127.0.0.1", port, location_name="nowhere")
        origin = RemoteRepositoryOrigin(code_server, "nothing").get_job_origin(a_job.name)
        run = instance.create_run_for_job(a_job, remote_job_origin=origin)
        instance.report_dagster_event(DagsterEvent.job_enqueue(run), run_id=run.run_id)
        list(queue.run_iteration(workspace))
        assert status(instance, run.run_id) is dg.DagsterRunStatus.QUEUED
        with run_server(home, port):
            list(queue.run_iteration(workspace, time.time() + LAUNCH_RETRY_DELAY_S))
            until(lambda: instance.get_run_by_id(run.run_id).is_finished)
        assert any("the server of runs does not answer" in str(entry) for entry in instance.all_logs(run.run_id))
