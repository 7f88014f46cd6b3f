"""Programs that start warm: they run as they do by themselves, and end with the process that stands for them."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

WAITS = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


@pytest.fixture
def start(warm_programs, tmp_path):
    def start(*arguments, **how):
        return subprocess.Popen(
            [sys.executable, *arguments], env=os.environ | warm_programs | {"WHERE": "here"}, cwd=tmp_path,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how,
        )  # fmt: skip

    return start


def test_a_program_has_its_arguments_environment_directory_and_files(start, tmp_path):
    read, write = os.pipe()
    code = f"import os, sys; print(sys.argv, os.getcwd(), os.environ['WHERE'], input()); os.write({write}, b'more')"
    program = start("-c", code, "one", pass_fds=[write])
    os.close(write)
    assert program.communicate("typed\n")[0] == f"['-c', 'one'] {tmp_path} here typed\n"
    assert (program.returncode, os.read(read, 9), os.read(read, 9)) == (0, b"more", b"")
    os.close(read)


def test_a_module_is_run_as_main(start, tmp_path):
    (tmp_path / "mine.py").write_text("print(__name__, __file__)\nraise SystemExit(7)")
    program = start("-u", "-m", "mine")
    assert program.communicate()[0] == f"__main__ {tmp_path}/mine.py\n"
    assert program.returncode == 7


@pytest.mark.parametrize(
    ("code", "status", "says"),
    [
        ("raise SystemExit('why')", 1, "why\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
        ("raise KeyboardInterrupt", -2, "KeyboardInterrupt\n"),
        ("import atexit; atexit.register(print, 'bye')", 0, "bye\n"),
    ],
)
def test_a_program_ends_as_it_does_by_itself(start, code, status, says):
    program = start("-c", code)
    printed, _ = program.communicate()
    assert (program.returncode, printed.endswith(says)) == (status, True), printed


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_program(start, end):
    with start("-c", WAITS) as program:
        running = psutil.Process(int(program.stdout.readline()))
        assert "warm_python_server.py" in str(running.cmdline())
        program.send_signal(end)
        assert program.wait(60) == -end
        assert psutil.wait_procs([running], timeout=60)[1] == []
