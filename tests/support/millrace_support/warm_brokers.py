"""Starts brokers without importing their modules for each: `BrokerProcess.start_process = WarmBrokers(servers).start`.

A server that has imported the broker forks a process for each, which is the broker: it has its own session, lifeline,
signals and exit status. Any other command than a plain `python -m millrace_broker` is started as it is, and so is one
whose environment differs in a variable that counts when modules are imported.

Two files that start many brokers take 46 s of processor time instead of 107. What it hides is a module that a broker
misses when it imports for itself; `tests/integration/test_cold_starts.py` starts one so, and `test_up.py` several.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

from millrace.testing.broker import start_broker
from millrace_support.process_stand_in import ProcessStandIn
from millrace_support.warm_servers import WarmServers

SERVER = "warm_broker_server"
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
    """Starts brokers by the server, which starts with the first of them."""

    def __init__(self, servers: WarmServers) -> None:
        self._servers = servers

    def start(self, command: Sequence[str], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        """Starts what `start_broker` starts with these arguments."""
        is_plain = list(command[: len(PLAIN)]) == PLAIN
        if not is_plain or _at_import(os.environ) != _at_import(self._servers.environment):
            return start_broker(command, stderr)
        connection = self._servers.connect(SERVER)
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


def _read_line(connection: socket.socket) -> int:
    line = b""
    while not line.endswith(b"\n"):
        received = connection.recv(1)
        if not received:
            raise OSError("the server of brokers has ended")
        line += received
    return int(line)


def _at_import(environment: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_IMPORT)}
