"""A broker as a process, for tests that start, stop, kill and restart it.

    with BrokerProcess(tmp_path / "data") as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

After a restart it listens at the same address, so clients find it again. It ends when the tests end, even if they are
killed. It needs the `broker` extra, no container, and, without `zookeeper`, no Java.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from millrace.addresses import FREE_PORT, Address, parse_listen_address
from millrace.errors import SetupError
from millrace.lifeline import end_process, start_with_lifeline
from millrace.ports import free_port

READY_PREFIX = "listening "
START_TIMEOUT_S = 180.0  # a broker waits for a minute for its cluster, and before that for its former session
STOP_TIMEOUT_S = 180.0
PORT_ATTEMPTS = 10
LOG_TAIL_LINES = 20


def start_broker(command: Sequence[str], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    """Starts a broker's command, whose stdout can be read; the broker is killed when this process ends."""
    return start_with_lifeline(command, stdout=subprocess.PIPE, stderr=stderr)


class BrokerProcess:
    """A broker as a process; the constructor returns when the broker serves.

    Args:
        data_dir: The folder of the logs. It is created if necessary, and kept at the end.
        zookeeper: `HOST:PORT[/chroot]`; without it the broker is standalone.
        properties: Broker properties by Kafka's names.
        broker_id: The broker's id in the cluster.
        listen: `HOST:PORT`; port 0 takes a free one. Not used where `listeners` is among the properties.
        protocol: The security protocol of that listener.
        config: A file of further properties, for secrets, which a list of processes must not show.
        open_files: The limit of open descriptors; that of this process by default.
        more_data_dirs: Further folders for logs.
        program: What Python runs instead of the broker's module.

    Raises:
        SetupError: The broker does not start; the message has the end of its log.

    Attributes:
        bootstrap: Where the broker listens, by its first listener.
        program: What Python runs at the next start.
        start_process: Starts a command whose stderr is given; by default `start_broker`.
    """

    start_process: Callable[[Sequence[str], IO[bytes]], subprocess.Popen[bytes]] = staticmethod(start_broker)

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        *,
        zookeeper: str | None = None,
        properties: Mapping[str, str] | None = None,
        broker_id: int = 1,
        listen: str = "127.0.0.1:0",
        protocol: str = "PLAINTEXT",
        config: str | os.PathLike[str] | None = None,
        open_files: int | None = None,
        more_data_dirs: Sequence[str | os.PathLike[str]] = (),
        program: Sequence[str] = ("-m", "millrace_broker"),
    ) -> None:
        self.data_dir = Path(data_dir)
        self._data = [part for path in (data_dir, *more_data_dirs) for part in ("--data", str(path))]
        self.bootstrap = listen
        self._coordination = ["--standalone"] if zookeeper is None else ["--zookeeper", zookeeper]
        self._protocol = protocol
        self._settings = [part for item in (properties or {}).items() for part in ("--set", "=".join(item))]
        self._settings += [] if config is None else ["--config", str(config)]
        self._given_token = (properties or {}).get("admin.token", "")
        self._names_listeners = "listeners" in (properties or {})
        self._admin_scheme = "https" if (properties or {}).get("admin.security.protocol") == "SSL" else "http"
        self._broker_id = broker_id
        self.program = program
        self._limit = ["prlimit", f"--nofile={open_files}"] if open_files is not None else []
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process: subprocess.Popen[bytes]
        address = parse_listen_address(listen)
        if address.port == FREE_PORT and not self._names_listeners:
            self._start_on_a_free_port(address.host)
        else:
            self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self._process.pid

    @property
    def admin_url(self) -> str:
        """The URL of the admin endpoint, `http://HOST:PORT`, once it is open; raises SetupError if it does not open."""
        file = self.data_dir / "admin.address"
        deadline = time.monotonic() + START_TIMEOUT_S
        while not file.exists():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise SetupError(f"the admin endpoint does not open:\n{self._log_tail()}")
            time.sleep(0.01)
        return f"{self._admin_scheme}://{file.read_text(encoding='utf-8').strip()}"

    @property
    def admin_token(self) -> str:
        """The token for changes by the broker's admin endpoint: that of the properties, or the broker's own."""
        return self._given_token or (self.data_dir / "admin.token").read_text(encoding="utf-8").strip()

    def start(self) -> None:
        """Starts the broker, which must not be running."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start_on_a_free_port(self, host: str) -> None:
        """Starts the broker on a free port, and tries further ports if another process takes one in the meantime."""
        for _ in range(PORT_ATTEMPTS - 1):
            self.bootstrap = str(Address(host, free_port(host)))
            try:
                return self._start()
            except SetupError as error:
                self.stop()
                if f"{self.bootstrap} is in use" not in str(error):
                    self._log.close()
                    raise
        self.bootstrap = str(Address(host, free_port(host)))
        return self.start()

    def _start(self) -> None:
        (self.data_dir / "admin.address").unlink(missing_ok=True)  # a killed broker leaves it
        command = [
            *(
                *self._limit,
                sys.executable,
                *self.program,
                *(() if self._names_listeners else ("--listen", f"{self._protocol}://{self.bootstrap}")),
            ),
            *self._data,
            *("--id", str(self._broker_id), *self._coordination, *self._settings),
        ]
        self._process = self.start_process(command, self._log)
        self.bootstrap = self._await_listening()

    def stop(self) -> int:
        """Sends SIGTERM, waits, and returns the exit status; sends SIGKILL after three minutes."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """Sends SIGKILL, as a crash of the process, and returns the exit status."""
        return self._end(signal.SIGKILL)

    def send_signal(self, signal_number: signal.Signals) -> None:
        """Sends a signal: SIGSTOP pauses the broker, SIGCONT lets it go on."""
        self._process.send_signal(signal_number)

    def restart(self) -> None:
        """Stops the broker, unless it has ended, and starts it at the same address."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops the broker and deletes its messages (`read_log`); its data stays."""
        self.stop()
        self._log.close()

    def read_log(self) -> str:
        """Returns all messages that the broker has written to stderr, since the first start."""
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode(errors="replace")

    def _end(self, signal_number: signal.Signals) -> int:
        status = end_process(self._process, signal_number, STOP_TIMEOUT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return status

    def _await_listening(self) -> str:
        assert self._process.stdout is not None
        stdout = self._process.stdout.fileno()
        deadline = time.monotonic() + START_TIMEOUT_S
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([stdout], [], [], max(deadline - time.monotonic(), 0))
            chunk = os.read(stdout, 4096) if ready else b""
            if not chunk:
                raise SetupError(f"the broker does not start:\n{self._log_tail()}")
            line += chunk
        return line.decode().strip().removeprefix(READY_PREFIX)

    def _log_tail(self) -> str:
        return "\n".join(self.read_log().splitlines()[-LOG_TAIL_LINES:])
