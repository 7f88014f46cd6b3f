"""Dagster on several machines: its parts share nothing but Postgres, the store of the tables and their addresses.

Each machine is a folder with a HOME, a DAGSTER_HOME and a folder for temporary files of its own, and has the files of
`ops/deploy/dagster` as docs/deploy.md says. The launcher is Dagster's own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.ports import free_port, is_listening
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_ops.supervisor.dagster_api import DagsterApi
from millrace_ops.supervisor.dagster_instance import POSTGRES_VARIABLE, dagster_url
from millrace_ops.supervisor.services import DAGSTER_DAEMON
from millrace_pipelines.project import make_project, write_definitions
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_support.postgres import PASSWORD, find_programs, postgres
from millrace_support.waiting import awaited, until

pytest.importorskip("dagster_postgres")
PROGRAMS = find_programs()
pytestmark = [
    pytest.mark.skipif(PROGRAMS is None, reason="no Postgres is installed"),
    pytest.mark.timeout(1200),
]
FILES = Path(__file__).parents[2] / "ops" / "deploy" / "dagster"
RUNS = "{ runsOrError { ... on Runs { results { runId status tags { key value } } } } }"
TABLE = "millrace/table/events"


class Machine:
    """One machine: its folders, and the process of Dagster's that runs there."""

    def __init__(self, folder, port, url):
        self.folder = folder
        home = folder / "dagster"
        home.mkdir(parents=True)
        (folder / "tmp").mkdir()
        shutil.copy(FILES / "dagster.yaml", home)
        workspace = (FILES / "workspace.yaml").read_text()
        (home / "workspace.yaml").write_text(workspace.replace("4266", str(port)))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MILLRACE_", "DAGSTER_"))}
        self.environment = {
            **kept,
            "HOME": str(folder),
            "TMPDIR": str(folder / "tmp"),
            "DAGSTER_HOME": str(home),
            POSTGRES_VARIABLE: dagster_url(url),
            "MILLRACE_CODE_SERVER": "127.0.0.1",
        }

    def run(self, *arguments, **variables):
        subprocess.run(
            [sys.executable, *arguments],
            env={**self.environment, **variables},
            cwd=self.folder,
            check=True,
            timeout=300,
        )

    @contextmanager
    def serving(self, *arguments, **variables):
        """Runs a process in a session of its own, which is killed as a whole at the end."""
        with (self.folder / "log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments], env={**self.environment, **variables}, cwd=self.folder,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            try:
                yield process
            finally:
                kill(process)


def kill(process):
    """Kills a process with all below it, as a machine that fails does."""
    try:
        below = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        below = []
    for one in (process, *below):
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()


class Machines:
    """A code server, a daemon and a webserver on a machine each."""

    def __init__(self, tmp_path, url, broker):
        self.port, self.ui = free_port(), free_port()
        self.code, self.daemon, self.web = (
            Machine(tmp_path / one, self.port, url) for one in ("code", "daemon", "web")
        )
        project = str(self.code.folder / "project")
        self.table = str(tmp_path / "store" / "events")
        declared = {
            "bootstrap": broker,
            "warehouse": str(tmp_path / "store"),
            "master": "local[1,3]",
            "load_new_records": False,
            "undeclared_topics": "ignore",
            "tables": [{"topic": "events", "max_records_per_run": 1_000}],
        }
        text = json.dumps({"type": "millrace_pipelines.MillraceComponent", "attributes": declared})
        write_definitions(project, "cluster/defs.yaml", text)
        make_project(project)
        self.variables = {"MILLRACE_PROJECT_DIR": project}
        self.api = DagsterApi(f"http://127.0.0.1:{self.ui}", timeout_s=120.0)

    @contextmanager
    def code_server(self):
        """Runs the code server as the page says; it has loaded the definitions once it accepts connections."""
        self.code.run("-m", "millrace_ops.supervisor.prepare_instance", **self.variables)
        address = ("--host", "127.0.0.1", "--port", str(self.port))
        module = ("--module-name", "millrace_pipelines.definitions", "--location-name", "millrace")
        with self.code.serving("-m", "dagster", "code-server", "start", *address, *module, **self.variables) as process:
            until(lambda: is_listening("127.0.0.1", self.port))
            yield process

    def others(self, stack):
        workspace = ("--workspace", str(self.daemon.folder / "dagster" / "workspace.yaml"))
        stack.enter_context(self.daemon.serving("-c", DAGSTER_DAEMON, "run", *workspace))
        workspace = ("--workspace", str(self.web.folder / "dagster" / "workspace.yaml"))
        address = ("--host", "127.0.0.1", "--port", str(self.ui))
        stack.enter_context(self.web.serving("-m", "dagster_webserver", *address, *workspace))
        until(self.api.is_ready)

    def runs(self):
        return self.api.query(RUNS)["runsOrError"]["results"]

    def finished(self, run_id):
        return until(lambda: self.api.run(run_id), lambda run: run.is_finished, pause_s=0.5)

    def retried(self, run_id):
        """Returns the run that took a lost one up again, once there is one."""

        def look():
            parent = {"key": "dagster/parent_run_id", "value": run_id}
            return next((one["runId"] for one in self.runs() if parent in one["tags"]), None)

        return awaited(look, "a retry")


@pytest.fixture(scope="module")
def url():
    with postgres(PROGRAMS) as url:
        yield url


@pytest.fixture
def machines(url, tmp_path):
    with BrokerProcess(tmp_path / "broker") as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 2)
        machines = Machines(tmp_path, url, broker.bootstrap)
        machines.send = lambda: SyncProducer(cluster).send("events", 0, [NewRecord(b"v")] * 100)
        machines.bootstrap = broker.bootstrap
        yield machines


def worker_below(server):
    """Returns the process of the run that a code server has started, once it has begun to load."""

    def look():
        for one in psutil.Process(server.pid).children(recursive=True):
            with suppress(psutil.Error):
                if "millrace_pipelines.runs.child" in one.cmdline():
                    return one.parent()
        return None

    return awaited(look, "a run")


def test_a_run_whose_process_is_lost_is_taken_up_again(machines):
    machines.send()
    with ExitStack() as stack:
        server = stack.enter_context(machines.code_server())
        machines.others(stack)
        lost = machines.api.launch([TABLE])
        worker_below(server).send_signal(signal.SIGKILL)
        assert machines.finished(lost).status == "FAILURE"
        done = machines.finished(machines.retried(lost))
        assert (done.status, done.failure) == ("SUCCESS", "")
        assert done.figures[TABLE]["rows"] == 100
    assert audit(machines.table, bootstrap=machines.bootstrap) == []
    for machine in (machines.code, machines.daemon, machines.web):
        assert [*(machine.folder / "dagster").rglob("*.db")] == []  # nothing of the instance is on this machine
        assert PASSWORD not in (machine.folder / "log").read_text()
