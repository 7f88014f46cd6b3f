"""A child's log, its session, and that nothing of it is left."""

import os
import sys

import psutil
import pytest

from millrace_ops.supervisor.supervised import ChildProcess, session_members

# A grandchild in a process group of its own, which ignores SIGTERM, as a worker pool may have it.
STUBBORN_GRANDCHILD = """
import os, signal, time
if os.fork() == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("up", flush=True)
time.sleep(600)
"""


def start(tmp_path, code, name="child"):
    return ChildProcess(name, [sys.executable, "-uc", code], {}, str(tmp_path / f"{name}.log"))


def await_log(child, text):
    while text not in child.read_log():
        assert child.exit_status() is None, child.read_log()
        os.sched_yield()


def test_log_holds_both_streams_and_the_former_log_is_kept(tmp_path):
    for word in ("first", "second"):
        child = start(tmp_path, f"import sys; print('{word}'); print('{word}!', file=sys.stderr)")
        child.finish(60)
    assert (tmp_path / "child.log").read_text().split() == ["second", "second!"]
    assert (tmp_path / "child.previous.log").read_text().split() == ["first", "first!"]


def test_log_tail_is_the_end(tmp_path):
    child = start(tmp_path, "print(*range(1000), sep='\\n')")
    child.finish(60)
    assert child.log_tail().splitlines() == [str(number) for number in range(980, 1000)]


def test_environment_is_added_to_ours(tmp_path):
    code = "import os; print(os.environ['MILLRACE_TEST'], os.environ['PATH'])"
    child = ChildProcess("child", [sys.executable, "-c", code], {"MILLRACE_TEST": "x"}, str(tmp_path / "child.log"))
    child.finish(60)
    assert child.read_log().split() == ["x", os.environ["PATH"]]


def test_terminate_ends_a_willing_child(tmp_path):
    child = start(tmp_path, "print('up'); import time; time.sleep(600)")
    await_log(child, "up")
    child.terminate()
    child.finish(60)
    assert child.exit_status() == -15


def test_finish_kills_a_child_that_ignores_sigterm(tmp_path):
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(600)"
    child = start(tmp_path, code)
    await_log(child, "up")
    child.terminate()
    child.finish(0.1)
    assert child.exit_status() == -9


def test_finish_leaves_no_process_of_the_session(tmp_path):
    child = start(tmp_path, STUBBORN_GRANDCHILD)
    await_log(child, "up")
    members = session_members(child.pid)
    assert len(members) == 3  # and the watcher of its lifeline
    child.terminate()
    child.finish(60)
    assert session_members(child.pid) == []
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in members)


def test_a_command_that_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match="no-such-command"):
        ChildProcess("child", ["no-such-command"], {}, str(tmp_path / "child.log"))
