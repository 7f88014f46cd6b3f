"""Starts brokers without importing their modules for each: `BrokerProcess.start_process = WarmBrokers().start`.

A server that has imported the broker forks a process for each, which is the broker: it has its own session, lifeline,
signals and exit status. Any other command than a plain `python -m millrace_broker` is started as it is, and so is one
whose environment differs in a variable that counts when modules are imported.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import IO

from millrace.testing.broker import start_with_lifeline
from millrace_support.process_stand_in import ProcessStandIn

SERVER = Path(__file__).with_name("warm_broker_server.py")
PLAIN = [sys.executable, "-m", "millrace_broker"]
AT_IMPORT = ("MILLRACE", "PYTHON", "LD_")  # how the variables begin that count when modules are imported


class ForkedProcess(ProcessStandIn):
    """A process that the server has forked.

    Args:
        connection: To the server, which says how the process ends.
        pid: Its process id.
        lifeline: Its standard input, which it sees as /dev/null.
        stdout: Its standard output.
    """

    def __init__(self, connection: socket.socket, pid: int, lifeline: IO[bytes], stdout: IO[bytes]) -> None:
        super().__init__(PLAIN, pid, lifeline, stdout)
        self._connection = connection

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end and returns the exit status; raises TimeoutExpired."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                line = self._connection.recv(16)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._connection.close()
            assert line, "the server of brokers has ended"
            self.returncode = int(line)
        return self.returncode


class WarmBrokers:
    """Starts the server with the first broker; it ends with `close`, or with this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._environment = _at_import()
        self._directory = TemporaryDirectory(prefix="millrace-warm-brokers-")
        self._server: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        """Starts what `start_with_lifeline` starts with these arguments."""
        if list(command[: len(PLAIN)]) != PLAIN or _at_import() != self._environment:
            return start_with_lifeline(command, stderr)
        with self._lock:
            connection = self._connect()
        ours, theirs = os.pipe()
        lifeline_theirs, lifeline = os.pipe()
        request = json.dumps([command[len(PLAIN) :], os.getcwd(), dict(os.environ)]).encode()
        streams = [lifeline_theirs, theirs, stderr.fileno()]
        socket.send_fds(connection, [len(request).to_bytes(4, "big")], streams)
        connection.sendall(request)
        os.close(theirs)
        os.close(lifeline_theirs)
        pid = _read_line(connection)
        return ForkedProcess(connection, pid, os.fdopen(lifeline, "wb", 0), os.fdopen(ours, "rb"))

    def close(self) -> None:
        """Ends the server; brokers that run go on."""
        if self._server is not None and self._server.stdin is not None:
            self._server.stdin.close()
            self._server.wait()
        self._directory.cleanup()

    def _connect(self) -> socket.socket:
        address = str(Path(self._directory.name, "socket"))
        if self._server is None:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(address)
                listener.listen()
                number = listener.fileno()
                command = [sys.executable, str(SERVER), str(number)]
                self._server = subprocess.Popen(
                    command, pass_fds=[number], stdin=subprocess.PIPE, start_new_session=True
                )
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        return connection


def _read_line(connection: socket.socket) -> int:
    line = b""
    while not line.endswith(b"\n"):
        received = connection.recv(1)
        if not received:
            raise OSError("the server of brokers has ended")
        line += received
    return int(line)


def _at_import() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(AT_IMPORT)}
