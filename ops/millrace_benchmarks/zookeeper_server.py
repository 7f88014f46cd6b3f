"""A ZooKeeper as a child process, for benchmarks and tests; it ends with its parent, however that ends.

`millrace.zk.embedded` has its command. DIR/zookeeper.log is what the server prints.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from millrace.addresses import LOOPBACK
from millrace.clock import Clock, SystemClock
from millrace.errors import SetupError
from millrace.lifeline import end_process, start_with_lifeline
from millrace.ports import free_port
from millrace.zk.embedded import is_serving, server_command

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.02
PORT_ATTEMPTS = 5


class EmbeddedZooKeeper:
    """One server on the loopback interface.

    Args:
        directory: for its data; made if it does not exist, and kept at the end.
        port: 0 takes a free one at the first start and keeps it for the next.
        settings: further lines of its configuration; with `secureClientPort=` it listens for TLS, too.
        java_flags: further flags of its JVM.
        clock: the machine's unless given.
    """

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        settings: str = "",
        *,
        java_flags: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self._settings = settings
        self._java_flags = tuple(java_flags)
        self._clock = clock or SystemClock()
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """`127.0.0.1:PORT`, what clients connect to."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        """The server's process id; raises SetupError while it does not run."""
        if self._process is None:
            raise SetupError("ZooKeeper is not running")
        return self._process.pid

    @property
    def log_file(self) -> Path:
        """What the server prints."""
        return self.directory / "zookeeper.log"

    def start(self) -> None:
        """Returns once it serves; raises SetupError where Java or the jars are missing or the port is taken."""
        if self._process is not None:
            return
        attempts = 1 if self.port else PORT_ATTEMPTS
        for _ in range(attempts):
            port = self.port or free_port()
            if self._start_on(port):
                self.port = port
                return
        reason = "the port is in use" if _is_taken(port) else self._last_words()
        raise SetupError(f"ZooKeeper does not start on {LOOPBACK}:{port}: {reason}")

    def stop(self) -> None:
        """Sends SIGTERM, waits a while, then sends SIGKILL; does nothing if it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL, as a crash would end it."""
        self._end(signal.SIGKILL)

    def _start_on(self, port: int) -> bool:
        command = server_command(self.directory, port, self._settings, self._java_flags)
        with self.log_file.open("ab") as log:
            self._process = start_with_lifeline(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            serves = self._await_serving(self._process, port)
        except BaseException:
            self.kill()
            raise
        if not serves:
            self.kill()
        return serves

    def _await_serving(self, process: subprocess.Popen[bytes], port: int) -> bool:
        deadline_s = self._clock.monotonic_s() + START_TIMEOUT_S
        while self._clock.monotonic_s() < deadline_s:
            if process.poll() is not None:
                return False
            if is_serving(LOOPBACK, port, self.directory):
                return True
            time.sleep(POLL_INTERVAL_S)
        return False

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_process(process, number, STOP_TIMEOUT_S)

    def _last_words(self) -> str:
        return self.log_file.read_text(errors="replace")[-1000:].strip() or "it printed nothing"


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0
