"""A downstream job under a whole platform: as long as it runs, and when it fails, loads go on."""

import pytest

from millrace.client import Cluster, SyncProducer
from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace_ops.supervisor.dagster_api import DagsterApi
from millrace_ops.supervisor.platform import Platform, PlatformOptions
from millrace_pipelines.project import write_definitions
from millrace_support.log_guard import GUARD
from millrace_support.waiting import until

EVENTS = "millrace/table/events"
DEFINITIONS = {
    "cluster/defs.yaml": """
type: millrace_pipelines.MillraceComponent
attributes: {load_new_records: false, tables: [{topic: events}, {topic: gates}]}
""",
    "gated.py": """
from millrace_pipelines.defs.downstream import micro_batch_asset
from millrace_support.downstream_jobs import gated

waits_and_fails = micro_batch_asset(gated, automation_condition=None)
""",
}


@pytest.fixture
def platform(tmp_path, warm_loads):
    options = PlatformOptions(
        directory=str(tmp_path / "state"),
        listen="127.0.0.1:0",
        admin="127.0.0.1:0",
        dagster_port=0,
        master="local[1,3]",
    )
    for name, text in DEFINITIONS.items():
        write_definitions(options.directory, name, text)
    with GUARD.folder(tmp_path / "state" / "logs"), Platform(options, OsFileSystem(), SystemClock()) as platform:
        platform.start()
        yield platform


def wait_until(is_so, platform):
    """Waits until `is_so` returns true; raises what the supervisor does where a part of the platform has ended."""

    def look():
        platform.supervisor.check()
        return is_so()

    until(look, pause_s=0.25)


def finished(api, run_id, platform):
    wait_until(lambda: api.run(run_id).is_finished, platform)
    return api.run(run_id)


@pytest.mark.timeout(900)
@pytest.mark.broker_errors(r"dagster - ERROR - .*(STEP|RUN)_FAILURE[\s\S]*ValueError: the gate is open")
def test_a_job_that_waits_and_fails_delays_no_load(platform, tmp_path):
    with Cluster(platform.addresses.broker) as cluster:
        for topic, value in (("gates", str(tmp_path)), ("events", "a")):
            wait_until(lambda name=topic: name in cluster.metadata(None).topics, platform)  # made as it is declared
            SyncProducer(cluster).send(topic, 0, [NewRecord(value.encode())])
    api = DagsterApi(platform.addresses.dagster)
    job = api.launch(["gated"])
    wait_until((tmp_path / "pid").exists, platform)

    load = finished(api, api.launch([EVENTS]), platform)
    assert (load.status, load.figures[EVENTS]["rows"]) == ("SUCCESS", 1), load.failure
    assert api.run(job).status == "STARTED"

    (tmp_path / "go").touch()
    failed = finished(api, job, platform)
    assert failed.status == "FAILURE"
    assert "gates-0, offsets 0 to 0: the job's function failed: ValueError: the gate is open" in failed.failure
