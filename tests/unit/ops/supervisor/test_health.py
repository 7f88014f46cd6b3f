"""What is said of parts that are not well."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from millrace.ports import free_port
from millrace_ops.cli.up import changes
from millrace_ops.supervisor.dagster_api import daemon_problem, is_loaded, load_error
from millrace_ops.supervisor.health import HealthWatch, broker_problem, dagster_problems, zookeeper_problem


@contextmanager
def serving(status, content):
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            body = content(self) if callable(content) else content
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_broker_that_is_not_ready_says_why():
    reasons = {"reasons": ["the session with ZooKeeper is lost", "the disk is full"]}
    with serving(503, json.dumps(reasons).encode()) as url:
        assert broker_problem(url, "") == "the session with ZooKeeper is lost; the disk is full"
    with serving(500, b"?") as url:
        assert broker_problem(url, "").startswith(f"{url}/readyz: status 500")
    asked = []
    with serving(200, lambda request: asked.append(request.headers["Authorization"]) or b"{}") as url:
        assert broker_problem(url, "hush") == ""
    assert asked == ["Bearer hush"]


def test_what_does_not_answer():
    port = free_port()
    assert zookeeper_problem(f"127.0.0.1:{port},127.0.0.1:{port}/chroot") == "it does not answer, or has no leader"
    assert broker_problem(f"http://127.0.0.1:{port}", "").endswith("its log is broker.log")
    assert broker_problem(f"http://127.0.0.1:{port}", "", service="broker-2").endswith("its log is broker-2.log")
    problems = dagster_problems(f"http://127.0.0.1:{port}")
    assert "webserver.log" in problems["webserver"]
    assert problems["code server"] == problems["daemon"] == "the webserver can't be asked"


def answer(status="LOADED", error=None, **threads):
    entry = {"loadStatus": status, "locationOrLoadError": error}
    statuses = [
        {"daemonType": name, "required": True, "healthy": errors is None, "lastHeartbeatErrors": errors or []}
        for name, errors in threads.items()
    ]
    statuses.append({"daemonType": "BACKFILL", "required": False, "healthy": None, "lastHeartbeatErrors": []})
    return {
        "workspaceOrError": {"locationEntries": [entry]},
        "instance": {"daemonHealth": {"allDaemonStatuses": statuses}},
    }


def test_what_dagster_says():
    well = answer(SENSOR=None)
    assert (is_loaded(well), load_error(well), daemon_problem(well)) == (True, "", "")
    error = {"__typename": "PythonError", "message": "no such module", "causes": []}
    assert load_error(answer(error=error)) == "no such module"
    causes = [{"message": "SetupError: defs.yaml:5: what is wrong\n"}]
    assert load_error(answer(error=error | {"causes": causes})) == "SetupError: defs.yaml:5: what is wrong"
    assert not is_loaded(answer("LOADING"))
    ill = answer(SENSOR=[], SCHEDULER=[{"message": "Traceback\nOSError: the disk is full\n"}])
    assert daemon_problem(ill) == "SENSOR: it has not been heard of lately; SCHEDULER: OSError: the disk is full"


def test_each_change_is_a_line():
    well, ill = {"broker": "", "daemon": ""}, {"broker": "the disk is full", "daemon": ""}
    assert changes(None, well) == ["well: broker, daemon"]
    assert changes(None, ill) == ["well: daemon", "broker: the disk is full"]
    assert changes(well, ill) == ["broker: the disk is full"]
    assert changes(ill, well) == ["broker: well again"]
    assert changes(well, dict(well)) == []


def test_a_watch_looks_again_and_again():
    looks, seen_twice = [], threading.Event()

    def look():
        looks.append(len(looks))
        if len(looks) == 2:
            seen_twice.set()
        return {"part": str(looks[-1])}

    with HealthWatch(look, interval_s=0.01) as watch:
        assert seen_twice.wait(60)
    assert watch.latest is not None
