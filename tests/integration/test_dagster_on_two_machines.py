"""Runs on another machine than the code server's: they have its topics, though the state of those is not on their disk.

Two folders with the same declarations stand for the images of two machines; only the first has been told of topics.
"""

import json
import os
import subprocess
import sys

import dagster as dg
import pytest
from dagster._core.events import DagsterEvent, DagsterEventType
from dagster._grpc.types import ExecuteRunArgs

from millrace.client import Admin, Cluster
from millrace_pipelines.definitions import refresh_project
from millrace_pipelines.project import make_project, write_definitions

PATTERN = """
type: millrace_pipelines.MillraceComponent
attributes:
  undeclared_topics: load
  tables: [{pattern: orders-.*}]
"""
QUEUED_ONLY = {
    "telemetry": {"enabled": False},
    "run_coordinator": {"module": "dagster.core.run_coordinator", "class": "QueuedRunCoordinator"},
}
LOADS = "load_millrace"
DAGSTER = "import runpy; runpy.run_module('dagster', run_name='__main__')"
RUN_SERVER = "import sys; from millrace_ops.supervisor.run_server import execute_run; execute_run(sys.argv[1])"


@pytest.fixture
def machines(tmp_path, monkeypatch, broker):
    """Runs a program on a machine, which has a project of its own; both have the same instance and warehouse."""
    monkeypatch.setattr("sys.path", sys.path[:])
    home = tmp_path / "instance"
    home.mkdir()
    (home / "dagster.yaml").write_text(json.dumps(QUEUED_ONLY))
    shared = {"MILLRACE_BOOTSTRAP": broker.bootstrap, "MILLRACE_WAREHOUSE_DIR": str(tmp_path / "warehouse")}
    for name, value in {"DAGSTER_HOME": str(home), **shared}.items():
        monkeypatch.setenv(name, value)
    for name in ("code-server", "worker"):
        make_project(str(tmp_path / name))
        write_definitions(str(tmp_path / name), "cluster/defs.yaml", PATTERN)

    def run(machine, program, *arguments):
        environment = {**os.environ, "MILLRACE_PROJECT_DIR": str(tmp_path / machine)}
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    run.folder = tmp_path
    return run


def by_the_run_server(instance, run):
    return [RUN_SERVER, run.run_id]


def by_dagster_s_own_launchers(instance, run):
    given = ExecuteRunArgs(run.job_code_origin, run.run_id, instance.get_ref(), set_exit_code_on_failure=True)
    return [DAGSTER, "api", "execute_run", given.get_command_args()[-1]]


@pytest.mark.parametrize("execution", [by_the_run_server, by_dagster_s_own_launchers])
@pytest.mark.usefixtures("warm_processes")
def test_topics_that_no_declaration_names_are_loaded_there(machines, broker, execution):
    with Cluster(broker.bootstrap) as cluster:
        for topic in ("orders-7", "undeclared"):
            Admin(cluster).create_topic(topic, 1)
    refresh_project(str(machines.folder / "code-server"))
    launched = machines("code-server", DAGSTER, "job", "launch", "-m", "millrace_pipelines.definitions", "-j", LOADS)
    assert launched.returncode == 0, launched.stderr
    with dg.DagsterInstance.get() as instance:
        [run] = instance.get_runs()
        starting = DagsterEvent(DagsterEventType.RUN_STARTING.value, job_name=run.job_name)
        instance.report_dagster_event(starting, run_id=run.run_id)  # as who launches it does
        done = machines("worker", *execution(instance, run))
        assert done.returncode == 0, done.stderr
        assert instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.SUCCESS, done.stderr
        found = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION).records
    looked_at = {record.asset_key.to_user_string() for record in found}  # whose tables lack nothing, as all is empty
    assert looked_at == {"millrace/table/orders-7", "millrace/table/undeclared"}
    assert not list((machines.folder / "worker" / "defs" / ".local_defs_state").glob("*/state"))
