"""A webhook hears of runs and checks that fail: a real instance, real runs, a real HTTP server."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import dagster as dg
import pytest
from dagster._core.errors import DagsterUserCodeProcessError

from millrace_pipelines.defs.alert_sensor import alerts_sensor
from millrace_pipelines.defs.resources import MillraceResource
from millrace_support.declared import LOAD_ALL, cluster_of, definitions_of, ticked

TABLE = dg.AssetKey(["millrace", "table", "flights"])


class Hook(HTTPServer):
    """A webhook that keeps what it takes, and answers as Slack does; with `status` it refuses."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Takes)
        self.taken = []
        self.status = 200

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/services/secret"


class Takes(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = b"ok" if self.server.status == 200 else self.path.encode()
        if self.server.status == 200:
            self.server.taken.append(body)
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def hook():
    with Hook() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(params=["files", "memory"])
def instance(request, tmp_path):
    made = dg.DagsterInstance.local_temp(str(tmp_path)) if request.param == "files" else dg.DagsterInstance.ephemeral()
    with made as instance:
        yield instance


MILLRACE = MillraceResource(
    bootstrap="127.0.0.1:1",
    admin_url="",
    warehouse_dir="/nowhere",
    schema_dir="",
    master="",
    dagster_url="http://dagster:3000",
)


def first_tick(hook, instance, declared=""):
    """Makes the first tick of a cluster's sensor, and returns what makes the next one and returns what it says."""
    sensor = alerts_sensor(cluster_of(declared), hook.url)
    cursor = None

    def run():
        nonlocal cursor
        result = ticked(sensor, instance, MILLRACE, cursor)
        cursor = result.cursor
        return result.skip_reason.skip_message

    assert run() == "alerts begin with what happens from now on"
    return run


@pytest.fixture
def tick(hook, instance):
    """Runs a tick after the last one, and returns what it says."""
    return first_tick(hook, instance)


def load(instance, *, fails="", late="", key=TABLE, tags=None):
    """Runs a load that may fail, with a check that may fail, and returns the id of the run."""

    @dg.asset(key=key, check_specs=[dg.AssetCheckSpec("freshness", asset=key)])
    def table():
        yield dg.AssetCheckResult(
            passed=not late, check_name="freshness", severity=dg.AssetCheckSeverity.WARN, description=late or "fine"
        )
        if fails:
            raise dg.Failure(fails, allow_retries=False)
        yield dg.MaterializeResult()

    return dg.materialize([table], instance=instance, raise_on_error=False, tags=tags).run_id


def test_a_failed_run_is_told_in_the_words_of_its_step(hook, instance, tick):
    run_id = load(instance, fails="offsets 3 to 5 are lost <accept_lost_offsets: true>")
    assert tick() == "1 alert sent"
    (sent,) = hook.taken
    assert sent == {
        "text": "millrace: a run of millrace/table/flights failed: offsets 3 to 5 are lost "
        f"&lt;accept_lost_offsets: true&gt;\nhttp://dagster:3000/runs/{run_id}",
        "kind": "run_failed",
        "cluster": "millrace",
        "asset": "millrace/table/flights",
        "check": None,
        "job": "__ephemeral_asset_job__",
        "run_id": run_id,
        "url": f"http://dagster:3000/runs/{run_id}",
        "severity": "ERROR",
        "description": "offsets 3 to 5 are lost <accept_lost_offsets: true>",
    }
    assert tick() == "0 alerts sent"


def test_a_check_is_told_when_it_begins_to_fail_and_when_it_passes_again(hook, instance, tick):
    for late in ("", "70 s old", "970 s old"):
        load(instance, late=late)
    assert tick() == "1 alert sent"
    load(instance, late="1870 s old")
    assert tick() == "0 alerts sent"
    load(instance)
    assert tick() == "1 alert sent"
    assert [(sent["kind"], sent["check"], sent["severity"], sent["description"]) for sent in hook.taken] == [
        ("check_failed", "freshness", "WARN", "70 s old"),
        ("check_recovered", "freshness", "INFO", "fine"),
    ]


def test_what_another_cluster_does_is_not_told(hook, instance, tick):
    load(instance, fails="lost", late="late", key=dg.AssetKey(["other", "table", "flights"]))
    assert tick() == "0 alerts sent"


REPAIRS = ("reload", "backfill", "replay", "erase")


def test_of_two_clusters_whose_names_end_alike_each_tells_of_its_own_jobs(hook, instance):
    clusters = [cluster_of(f"cluster: {name}\n{LOAD_ALL}", "flights") for name in ("b", "a_b")]
    tick, tick_of_other = (first_tick(hook, instance, f"cluster: {one.name}") for one in clusters)
    both = dg.Definitions.merge(*(definitions_of(one, MILLRACE) for one in clusters))
    for number, cluster in enumerate(("a_b", "b")):
        for repair in REPAIRS[number:]:
            job = both.resolve_job_def(f"{repair}_{cluster}")
            given = {"topics": ["whether"]} | ({"keys": ["UA"]} if repair == "erase" else {})
            config = {"ops": {node.name: {"config": given} for node in job.nodes}}
            job.execute_in_process(run_config=config, instance=instance, raise_on_error=False)
    assert (tick(), tick_of_other()) == ("3 alerts sent", "4 alerts sent")
    assert [(sent["cluster"], sent["job"]) for sent in hook.taken] == [
        *(("b", f"{repair}_b") for repair in REPAIRS[1:]),
        *(("a_b", f"{repair}_a_b") for repair in REPAIRS),
    ]
    assert {sent["description"].split(": ")[-1] for sent in hook.taken} == {
        "no topic of b that becomes a table",
        "no topic of a_b that becomes a table",
    }


def test_a_job_of_ones_own_is_the_clusters_by_its_tag(hook, instance, tick):
    @dg.op
    def fail():
        raise ValueError("no such topic")

    for name, cluster in (("one", "millrace"), ("two", "other"), ("millrace_three", None)):
        tags = {} if cluster is None else {"millrace/cluster": cluster}
        job = dg.GraphDefinition(name=name, node_defs=[fail]).to_job(name, tags=tags)
        job.execute_in_process(instance=instance, raise_on_error=False)
    assert tick() == "1 alert sent"
    assert hook.taken[0]["text"].startswith("millrace: a run of one failed: ValueError: no such topic\n")


def end(instance, *, cancels):
    """Ends a run as Dagster's run monitoring does, or as a person."""
    job = dg.GraphDefinition(name="erase", node_defs=[]).to_job()
    run = instance.create_run_for_job(job, tags={"millrace/cluster": "millrace"})
    instance.report_run_canceling(run, message=cancels)
    instance.report_run_canceled(run)


def test_a_run_that_took_too_long_is_told_and_one_that_a_person_cancelled_is_not(hook, instance, tick):
    end(instance, cancels="Sending run termination request.")
    end(instance, cancels="Canceling due to exceeding maximum runtime of 3 seconds.")
    assert tick() == "1 alert sent"
    assert hook.taken[0]["description"] == "Canceling due to exceeding maximum runtime of 3 seconds."


def test_an_alert_that_is_not_taken_is_sent_by_the_next_tick_and_the_address_stays_secret(hook, instance, tick):
    load(instance, fails="lost")
    hook.status = 500
    with pytest.raises(DagsterUserCodeProcessError) as failed:
        tick()
    assert str(failed.value) == (
        "127.0.0.1 did not take the request: status 500; the field webhook or MILLRACE_WEBHOOK names it"
    )
    hook.status = 200
    assert tick() == "1 alert sent"
    assert [sent["description"] for sent in hook.taken] == ["lost"]
