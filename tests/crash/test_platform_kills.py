"""Parts of a whole platform are killed while loads, retention and compaction run; started again, it goes on.

A part that ends ends the platform, and all that it has started ends with it. On the same folder the next platform has
each record once, and no run hangs.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from millrace.client import Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace_ops.supervisor.dagster_api import DagsterApi
from millrace_pipelines.project import write_definitions
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.ledger.ledger import read_ledger
from millrace_support.log_guard import GUARD
from millrace_support.waiting import until

MILLRACE = "from millrace_ops.cli.main import main; main()"
PARTS = ("run-server", "code-server", "daemon", "broker", "up", "webserver", "zookeeper")
MARKS = {
    "run-server": "millrace_ops.supervisor.run_server",
    "code-server": "millrace_pipelines.definitions",
    "daemon": "dagster-daemon",
    "broker": "millrace_broker",
    "webserver": "dagster_webserver",
    "zookeeper": "java",
}
PATIENCE_S = 900
LOAD = "millrace/table/events"
RUNS = (["millrace/retention"], ["millrace/compaction"])
DECLARED = """
type: millrace_pipelines.MillraceComponent
attributes: {load_new_records: false, tables: [{topic: events, partitions: 1, config: {cleanup.policy: compact}}]}
"""


class Up:
    """`millrace up` on a folder, with what it has started."""

    def __init__(self, directory: Path) -> None:
        GUARD.look()  # each log has a second name during the next platform, and is gone after that
        free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--dagster-port", "0"]
        command = [sys.executable, "-c", MILLRACE, "up", "--dir", str(directory), *free]
        self.process = subprocess.Popen(
            [*command, "--master", "local[1,3]"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        printed = ""
        while "Ctrl-C stops" not in printed:
            line = self.process.stdout.readline()
            assert line, printed
            printed += line
        rows = dict(line.rsplit("  ", 1) for line in printed.splitlines() if "  " in line)
        self.addresses = {name.strip(): address.strip() for name, address in rows.items()}
        self.api = DagsterApi(self.addresses["Dagster UI"])

    def kill(self, part: str) -> float:
        """Kills a part, waits until nothing of the platform is left, and returns how many seconds that took."""
        me = psutil.Process(self.process.pid)
        everything = [me, *me.children(recursive=True)]
        mark = MARKS.get(part)
        victim = me if mark is None else next(one for one in everything[1:] if mark in command_line(one))
        victim.send_signal(signal.SIGKILL)
        killed_s = time.monotonic()
        self.process.stdout.close()
        self.process.wait(PATIENCE_S)
        until(lambda: [one for one in everything if lives(one)], lambda left: not left)
        return time.monotonic() - killed_s

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Stops the platform, if it runs; its end ends all that it has started."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.stdout.read()
        self.process.wait(PATIENCE_S)

    def finished(self, run_id):
        """The state of a run that has ended."""

        def look():
            assert self.process.poll() is None
            return self.api.run(run_id)

        return until(look, lambda run: run.is_finished, pause_s=0.25)

    def started(self, run_id):
        """Waits until a run has begun."""
        until(lambda: self.api.run(run_id).status, lambda status: status in ("STARTED", "SUCCESS"), pause_s=0.1)


def command_line(process):
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def lives(process):
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


@pytest.fixture
def watched_logs(tmp_path):
    with GUARD.folder(tmp_path / "logs"):
        yield


@pytest.mark.usefixtures("watched_logs")
@pytest.mark.broker_errors(r"Caught an error dequeuing run")  # the queue may look for the server of runs before it ends
@pytest.mark.soak(rounds=1, soak_rounds=10 * len(PARTS))
@pytest.mark.timeout(2 * 3600)
def test_a_platform_of_which_a_part_was_killed_goes_on(tmp_path, rounds, record_property):
    write_definitions(str(tmp_path), "cluster/defs.yaml", DECLARED)
    table, sent, kills, left, longest_end_s = str(tmp_path / "warehouse" / "events"), 0, Counter(), [], 0.0
    for number in rounds:
        part = PARTS[number % len(PARTS)]
        with Up(tmp_path) as up:
            sent = send(up, sent)
            if number:
                check(up, left, table, sent)
            left = [up.api.launch(assets) for assets in ([LOAD], *RUNS)]
            up.started(left[0])
            longest_end_s = max(longest_end_s, up.kill(part))
        kills[part] += 1
    with Up(tmp_path) as up:
        sent = send(up, sent)
        check(up, left, table, sent)
    record_property("kills", dict(kills))
    record_property("longest_end_s", round(longest_end_s, 1))


def check(up, left, table, sent):
    """Checks that the runs that a kill left come to an end, and that the next load has each record once."""
    for run in left:
        assert up.finished(run).is_finished
    assert up.finished(up.api.launch([LOAD])).status == "SUCCESS"
    assert audit(table) == []
    assert read_ledger(table).next_offset(0) == sent


def send(up, sent):
    """Sends records, once the topic is made as it is declared; returns how many there are now."""
    with Cluster(up.addresses["broker"]) as cluster:
        until(lambda: "events" in cluster.metadata(None).topics)
        records = [NewRecord(b"value", key=b"%d" % number) for number in range(sent, sent + 10)]
        SyncProducer(cluster).send("events", 0, records)
    return sent + len(records)
