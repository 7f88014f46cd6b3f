"""A platform whose Dagster keeps everything in Postgres, by one setting."""

import os
import signal
import subprocess
import sys

import dagster as dg
import psutil
import pytest

from millrace.ports import free_port
from millrace_ops.supervisor.dagster_instance import POSTGRES_VARIABLE, dagster_url, write_instance
from millrace_ops.supervisor.prepare_instance import fail_lost_runs, limit_pools
from millrace_pipelines.defs.instance import prune_runs
from millrace_support.log_guard import GUARD
from millrace_support.postgres import PASSWORD, find_programs, postgres

psycopg2 = pytest.importorskip("psycopg2")
pytest.importorskip("dagster_postgres")
PROGRAMS = find_programs()
pytestmark = pytest.mark.skipif(PROGRAMS is None, reason="no Postgres is installed")

UP = "from millrace_ops.cli.main import main; main()"
FREE = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--dagster-port", "0"]


@pytest.fixture(scope="module")
def url():
    with postgres(PROGRAMS) as url:
        yield url


@dg.asset(check_specs=[dg.AssetCheckSpec("sound", asset="table")])
def table():
    """Stands for a table and its check."""
    return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True)])


def rows(url, query):
    connection = psycopg2.connect(url)
    try:
        with connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()
    finally:
        connection.close()


def test_runs_are_prepared_kept_and_pruned_in_postgres(url, tmp_path, monkeypatch):
    monkeypatch.setenv(POSTGRES_VARIABLE, dagster_url(url))
    home = str(tmp_path / "dagster")
    write_instance(home, 4266, 4267, postgres=True)
    with dg.DagsterInstance.from_config(home) as instance:
        for _ in range(2):
            limit_pools(instance)
        lost = instance.create_run_for_job(prune_runs, status=dg.DagsterRunStatus.STARTED).run_id
        fail_lost_runs(instance)
        assert instance.get_run_by_id(lost).status is dg.DagsterRunStatus.FAILURE
        old, new = (dg.materialize([table], instance=instance).run_id for _ in range(2))
        config = {"ops": {"remove_old_runs": {"config": {"keep_runs": 1}}}}
        pruning = prune_runs.execute_in_process(instance=instance, run_config=config).run_id
        assert {*instance.get_run_ids()} == {new, pruning}
    assert {run_id for (run_id,) in rows(url, "SELECT run_id FROM event_logs")} == {new, pruning}
    assert rows(url, "SELECT run_id FROM asset_check_executions") == [(new,)]
    assert old != new
    assert PASSWORD not in (tmp_path / "dagster" / "dagster.yaml").read_text()


def test_a_platform_runs_on_postgres_and_shows_its_password_nowhere(url, tmp_path, monkeypatch):
    monkeypatch.setenv(POSTGRES_VARIABLE, url)
    state = tmp_path / "state"
    command = [sys.executable, "-c", UP, "up", "--dir", state, *FREE]
    with (
        GUARD.folder(state / "logs"),
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            printed = ""
            for line in process.stdout:
                printed += line
                if "Ctrl-C stops" in line:
                    break
            assert "Dagster UI" in printed
            parent = psutil.Process(process.pid)
            commands = [each.cmdline() for each in (parent, *parent.children(recursive=True))]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(120)
    assert {"SENSOR", "SCHEDULER"} <= {kind for (kind,) in rows(url, "SELECT daemon_type FROM daemon_heartbeats")}
    assert PASSWORD not in str(commands)
    assert not (state / "dagster" / "storage" / "history").exists()
    logs = [path for path in state.rglob("*") if path.is_file() and path.suffix in (".log", ".yaml")]
    assert not [path for path in logs if PASSWORD in path.read_text(errors="replace")]


def test_a_database_that_can_not_be_reached_is_said_in_a_sentence(tmp_path):
    environment = {**os.environ, POSTGRES_VARIABLE: f"postgresql://me:{PASSWORD}@127.0.0.1:{free_port()}/none"}
    done = subprocess.run(
        [sys.executable, "-c", UP, "up", "--dir", tmp_path / "state", *FREE],
        capture_output=True, text=True, env=environment, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Dagster's database can't be used: " in done.stderr
    assert "Connection refused" in done.stderr
    assert "Traceback" not in done.stderr
    assert PASSWORD not in done.stderr
