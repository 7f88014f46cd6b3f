"""A platform that keeps a Spark running: loads are sessions of it, and it ends with the platform."""

import contextlib

import psutil
import pytest

from millrace.client import Cluster, SyncProducer
from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace_ops.supervisor.dagster_api import DagsterApi
from millrace_ops.supervisor.platform import Platform, PlatformOptions
from millrace_ops.supervisor.services import SERVER
from millrace_pipelines.project import write_definitions
from millrace_support.log_guard import GUARD
from millrace_support.waiting import until

EVENTS = "millrace/table/events"
DECLARED = """
type: millrace_pipelines.MillraceComponent
attributes: {tables: [{topic: events, partitions: 1}]}
"""


def wait_until(is_so, platform):
    """Waits until `is_so` returns true; raises what the supervisor does where a part of the platform has ended."""

    def look():
        platform.supervisor.check()
        return is_so()

    until(look, pause_s=0.25)


def runs_of(api):
    answer = api.query("{ runsOrError { ... on Runs { results { runId } } } }")
    return [one["runId"] for one in answer["runsOrError"]["results"]]


def servers():
    return [one for one in psutil.Process().children(recursive=True) if is_server(one)]


def is_server(process):
    with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since
        return process.name() == "java" and SERVER in process.cmdline()
    return False


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("warm_processes")
def test_a_declared_table_loads_by_itself_in_a_session_of_the_spark_that_is_kept(tmp_path):
    free = "127.0.0.1:0"
    options = PlatformOptions(
        directory=str(tmp_path), listen=free, admin=free, dagster_port=0, master="local[1,3]", warm=True
    )
    write_definitions(str(tmp_path), "cluster/defs.yaml", DECLARED)
    with GUARD.folder(tmp_path / "logs"), Platform(options, OsFileSystem(), SystemClock()) as platform:
        platform.start()
        api = DagsterApi(platform.addresses.dagster)
        wait_until(lambda: platform.health()["Spark"] == "", platform)
        with Cluster(platform.addresses.broker) as cluster:
            wait_until(lambda: "events" in cluster.metadata(None).topics, platform)
            SyncProducer(cluster).send("events", 0, [NewRecord(b"one")])
        wait_until(lambda: runs_of(api), platform)
        [run] = runs_of(api)
        wait_until(lambda: api.run(run).is_finished, platform)
        done = api.run(run)
        assert (done.status, done.figures[EVENTS]["rows"]) == ("SUCCESS", 1), done.failure
        assert len(servers()) == 1
    assert servers() == []
