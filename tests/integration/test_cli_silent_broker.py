"""A broker that takes connections and says nothing: whoever waits is told so before the time is up."""

import os
import pty
import socket
import subprocess
from contextlib import contextmanager

import pytest

TIMEOUT_S = 120


@contextmanager
def silent_broker():
    """Yields the address of a listener that answers nothing, and a function by which it hangs up on everybody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = []

        def hang_up():
            taken.append(server.accept()[0])
            server.close()
            taken[0].close()

        yield f"127.0.0.1:{server.getsockname()[1]}", hang_up


@pytest.mark.parametrize("command", [("topics", "list"), ("consume", "t"), ("offsets", "export", "g")])
def test_a_command_says_that_it_waits_and_then_why_it_ends(warm_millrace, command):
    with silent_broker() as (address, hang_up):
        line = [warm_millrace, *command, "--bootstrap", address]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            said = process.stderr.readline()
            assert said == f"millrace: still waiting for an answer of {address}, 30 s at most\n"
            hang_up()
            output, error = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, output, error.count("\n")) == (1, "", 1)
    assert address in error


def test_a_terminal_shows_how_long_and_clears_the_line(warm_millrace):
    with silent_broker() as (address, hang_up):
        master, terminal = pty.openpty()
        line = [warm_millrace, "topics", "list", "--bootstrap", address]
        with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=terminal) as process:
            os.close(terminal)
            shown = b""
            while not shown.endswith(b"; 3 s"):
                shown += os.read(master, 1000)
            hang_up()
            assert process.wait(TIMEOUT_S) == 1
        rest = os.read(master, 10_000)
        os.close(master)
    assert b"\n" not in shown
    assert rest.rpartition(b"\r\x1b[2K")[2].startswith(b"millrace: ")
