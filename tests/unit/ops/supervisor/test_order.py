"""Order of start and stop, and what is said of a child that ends by itself."""

import os
import signal
import subprocess
import sys
import time

import pytest

from millrace.clock import SystemClock
from millrace.errors import PlatformError
from millrace_ops.supervisor.supervised import Service, SupervisedChild, session_members
from millrace_ops.supervisor.supervisor import Supervisor
from millrace_support.clock import ManualClock

SERVE = """
import signal, sys, time
journal = open(sys.argv[1], "a", buffering=1)
def stop(*_):
    journal.write(f"{sys.argv[2]} stops\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
journal.write(f"{sys.argv[2]} serves\\n")
print("ready", flush=True)
time.sleep(600)
"""


def service(name, code=SERVE, *arguments, **options):
    options.setdefault("is_ready", lambda child: "ready" in child.read_log())
    return Service(name=name, command=(sys.executable, "-c", code, *arguments), **options)


@pytest.fixture
def journal(tmp_path):
    path = tmp_path / "journal"
    path.touch()
    return path


def test_children_start_in_order_and_stop_in_reverse(tmp_path, journal):
    with Supervisor(str(tmp_path / "logs"), SystemClock()) as supervisor:
        for name in ("zookeeper", "broker", "dagster"):
            supervisor.start(service(name, SERVE, str(journal), name))
        supervisor.check()
    lines = journal.read_text().splitlines()
    assert lines == [f"{name} serves" for name in ("zookeeper", "broker", "dagster")] + [
        f"{name} stops" for name in ("dagster", "broker", "zookeeper")
    ]


def test_services_of_one_start_are_all_ready_when_it_returns(tmp_path, journal):
    with Supervisor(str(tmp_path / "logs"), SystemClock()) as supervisor:
        children = supervisor.start(*(service(name, SERVE, str(journal), name) for name in ("a", "b")))
        assert [child.name for child in children] == ["a", "b"]
        assert sorted(journal.read_text().splitlines()) == ["a serves", "b serves"]


def test_of_services_that_do_not_stop_together_the_last_one_stops_first(tmp_path, journal):
    with Supervisor(str(tmp_path / "logs"), SystemClock()) as supervisor:
        services = [service(name, SERVE, str(journal), name) for name in ("webserver", "other", "daemon")]
        supervisor.start(*services, stop_together=False)
    assert journal.read_text().splitlines()[3:] == ["daemon stops", "other stops", "webserver stops"]


def test_a_child_that_dies_while_starting_is_named_with_its_last_lines(tmp_path):
    code = "import sys; print('no port for me', file=sys.stderr); sys.exit(3)"
    expected = r"broker ended with status 3[^\n]*broker\.log:\nno port for me"
    with Supervisor(str(tmp_path), SystemClock()) as supervisor, pytest.raises(PlatformError, match=expected):
        supervisor.start(service("broker", code))


def test_a_child_that_dies_later_ends_the_wait_and_the_others_are_stopped(tmp_path, journal):
    with Supervisor(str(tmp_path / "logs"), SystemClock()) as supervisor:
        [other] = supervisor.start(service("zookeeper", SERVE, str(journal), "zookeeper"))
        [child] = supervisor.start(service("broker", SERVE, str(journal), "broker"))
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(PlatformError, match="broker was ended by SIGKILL"):
            supervisor.wait()
    assert "zookeeper stops" in journal.read_text()
    assert session_members(other.pid) == session_members(child.pid) == []


class ClockThatMoves(ManualClock):
    """A clock on which `step_ms` pass before each look at it."""

    step_ms = 0

    def monotonic_ms(self):
        self.advance(self.step_ms)
        return super().monotonic_ms()


@pytest.mark.timeout(300)
def test_the_time_that_one_takes_to_stop_counts_for_those_that_started_with_it(tmp_path):
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); "
    clock = ClockThatMoves()
    with Supervisor(str(tmp_path), clock) as supervisor:
        both = supervisor.start(*(service(name, stubborn + "time.sleep(600)", stop_timeout_s=500) for name in "ab"))
        clock.step_ms = 600_000
    assert [child.exit_status() for child in both] == [-signal.SIGKILL] * 2


def wait_until(supervisor, is_so):
    class EnoughSeenError(Exception):
        """Ends the wait."""

    def meanwhile():
        if is_so():
            raise EnoughSeenError

    with pytest.raises(EnoughSeenError):
        supervisor.wait(meanwhile)


def test_a_child_that_restarts_is_shown_and_started_again_and_the_others_stay(tmp_path, journal):
    with Supervisor(str(tmp_path / "logs"), SystemClock()) as supervisor:
        [other] = supervisor.start(service("other", SERVE, str(journal), "other"))
        [child] = supervisor.start(service("broker-2", SERVE, str(journal), "broker-2", restarts=True))
        assert supervisor.problem("broker-2") == ""
        os.kill(child.pid, signal.SIGKILL)
        wait_until(supervisor, lambda: journal.read_text().count("broker-2 serves") == 2)
        problem = (
            f"was ended by SIGKILL and is started again; the end of its log is in {tmp_path}/logs/broker-2.previous"
        )
        assert supervisor.problem("broker-2").startswith(problem)
        assert other.exit_status() is None
    assert journal.read_text().splitlines()[-2:] == ["broker-2 stops", "other stops"]


def test_a_child_that_restarts_must_be_ready_once(tmp_path):
    code = "exit(3)"
    with (
        Supervisor(str(tmp_path), SystemClock()) as supervisor,
        pytest.raises(PlatformError, match="ended with status 3"),
    ):
        supervisor.start(service("broker", code, restarts=True))


def test_the_pauses_before_a_start_grow_while_the_child_ends_soon_and_its_end_is_forgotten_at_last(tmp_path):
    clock = ManualClock()
    child = SupervisedChild(service("broker", "print('ready', flush=True)", restarts=True), str(tmp_path), clock)
    pauses = []
    for _ in range(7):
        while not child.is_ready() or child.child.exit_status() is None:
            time.sleep(0.01)
        child.look_after()
        before, pid = clock.monotonic_ms(), child.child.pid
        while child.child.pid == pid:
            clock.advance(500)
            child.look_after()
        pauses.append(clock.monotonic_ms() - before)
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
    assert "ended with status 0 and is started again" in child.problem
    clock.advance(60_000)
    assert child.problem == ""
    child.child.finish(60)


def test_a_command_runs_to_its_end_and_is_named_where_that_is_no_success(tmp_path):
    with Supervisor(str(tmp_path), SystemClock()) as supervisor:
        supervisor.complete("well", (sys.executable, "-c", "print(1)"), {})
        supervisor.check()
        with pytest.raises(PlatformError, match=r"ill ended with status 3[^\n]*ill\.log:\nno"):
            supervisor.complete("ill", (sys.executable, "-c", "print('no'); exit(3)"), {})
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            supervisor.complete("long", (sys.executable, "-c", "import time; time.sleep(600)"), {})


def test_a_child_that_is_never_ready(tmp_path):
    code = "import time; print('thinking', flush=True); time.sleep(600)"
    expected = r"slow is not ready after 0\.5 s"
    with Supervisor(str(tmp_path), SystemClock()) as supervisor, pytest.raises(PlatformError, match=expected):
        supervisor.start(service("slow", code, ready_timeout_s=0.5))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_ends_the_wait_in_good_order(tmp_path, journal, number):
    before = signal.getsignal(number)
    with Supervisor(str(tmp_path / "logs"), SystemClock()) as supervisor:
        supervisor.start(service("broker", SERVE, str(journal), "broker"))
        os.kill(os.getpid(), number)
        with pytest.raises(KeyboardInterrupt):
            supervisor.wait()
    assert journal.read_text().splitlines() == ["broker serves", "broker stops"]
    assert signal.getsignal(number) is before


SUPERVISE = """
import sys
from millrace.clock import SystemClock
from millrace_ops.supervisor.supervised import Service
from millrace_ops.supervisor.supervisor import Supervisor

CHILD = "import signal, time; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, flush=True); time.sleep(600)"
with Supervisor(sys.argv[1], SystemClock()) as supervisor:
    command = (sys.executable, "-c", CHILD)
    [child] = supervisor.start(Service(name="child", command=command, is_ready=lambda child: child.read_log().strip()))
    print(child.read_log())
"""


def test_children_do_not_inherit_an_ignored_sigint(tmp_path):
    command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", sys.executable, "-c", SUPERVISE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "False"
