"""A real ZooKeeper, or an ensemble of several, as child processes, from the jars that PySpark carries.

    DIR/zoo.cfg         written at every start        DIR/zookeeper.log   what the server prints
    DIR/version-2/      snapshots and transaction log, ZooKeeper's own; a start on the same folder keeps the data

It is ready when `srvr` answers with a mode (`ruok` answers too early) and `conf` names our folder: another
server may have taken the port. It ends with its parent, however that ends (millrace.lifeline).
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from millrace.addresses import LOOPBACK
from millrace.clock import Clock, SystemClock
from millrace.errors import SetupError
from millrace.extras import install_command
from millrace.java import find_java
from millrace.lifeline import cut_lifeline, start_with_lifeline
from millrace.ports import free_port

JARS = ("zookeeper-[0-9]*", "zookeeper-jute-*", "slf4j-api-*", "metrics-core-*", "snappy-java-*")
NETTY_JARS = tuple(
    f"netty-{one}-[0-9]*[0-9].Final"
    for one in ("buffer", "common", "codec-base", "handler", "resolver", "transport", "transport-classes-epoll",
                "transport-native-unix-common")
)  # fmt: skip
NEED_NETTY = ("secureClientPort=", "authProvider.")  # settings whose classes don't load without Netty
JAVA_FLAGS = (
    *("-Xms16m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xss512k"),
    "-Dzookeeper.jmx.log4j.disable=true",
)
MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
CONFIG = """\
clientPort={port}
clientPortAddress={host}
dataDir={directory}
tickTime=500
minSessionTimeout=2000
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
"""
QUORUM_SETTINGS = ("initLimit=20", "syncLimit=6")
QUORUM_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.02
ANSWER_TIMEOUT_S = 2.0
MAX_ANSWER_BYTES = 65_536
NOT_SERVING = b"This ZooKeeper instance is not currently serving requests\n"
PORT_ATTEMPTS = 5


def start_server(command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Starts a server; it ends with this process (`millrace.lifeline`)."""
    return start_with_lifeline(command, stdout=log, stderr=subprocess.STDOUT)


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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
            self._process = start_server(command, log)
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
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        cut_lifeline(process)

    def _last_words(self) -> str:
        return self.log_file.read_text(errors="replace")[-1000:].strip() or "it printed nothing"


class EmbeddedEnsemble:
    """An ensemble of servers, in the folders DIR/1, DIR/2 …; it serves while a majority of them runs.

    `servers[n]` can be killed and started again by itself.
    """

    def __init__(self, directory: Path, size: int = 3) -> None:
        peers = [(free_port(), free_port()) for _ in range(size)]
        lines = [
            f"server.{number}={LOOPBACK}:{quorum}:{election}" for number, (quorum, election) in enumerate(peers, 1)
        ]
        settings = "\n".join((*QUORUM_SETTINGS, *lines, ""))
        self.servers = [EmbeddedZooKeeper(directory / str(number + 1), 0, settings) for number in range(size)]
        for number, server in enumerate(self.servers, 1):
            server.directory.mkdir(parents=True, exist_ok=True)
            (server.directory / "myid").write_text(f"{number}\n", encoding="utf-8")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """All servers, with commas between."""
        return ",".join(server.address for server in self.servers)

    def start(self) -> None:
        """Starts all at once, as none serves before most of them run; raises SetupError as for one server."""
        with ThreadPoolExecutor(len(self.servers)) as pool:
            list(pool.map(EmbeddedZooKeeper.start, self.servers))

    def stop(self) -> None:
        """Stops all servers of the ensemble."""
        for server in self.servers:
            server.stop()

    def leader(self) -> EmbeddedZooKeeper:
        """Returns the server that leads; raises SetupError while none does."""
        for server in self.servers:
            if mode_of(LOOPBACK, server.port) == "leader":
                return server
        raise SetupError("no server of the ensemble leads")


def server_command(directory: Path, port: int, settings: str = "", java_flags: Sequence[str] = ()) -> tuple[str, ...]:
    """Writes the configuration for a server in `directory`, and returns the command that runs it on loopback.

    Raises:
        SetupError: Java or the jars are missing.
    """
    jars = _jars(has_netty=any(one in settings for one in NEED_NETTY))
    java, class_path = find_java(), ":".join(map(str, jars))
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "zoo.cfg"
    lines = CONFIG.format(port=port, host=LOOPBACK, directory=directory.absolute()) + settings
    config.write_text(lines, encoding="utf-8")
    main_class = QUORUM_MAIN_CLASS if "\nserver." in lines else MAIN_CLASS
    return (str(java), *JAVA_FLAGS, *java_flags, "-cp", class_path, main_class, str(config))


def is_serving(host: str, port: int, directory: Path | None = None) -> bool:
    """Returns whether a ZooKeeper answers there with a mode, and keeps its data in `directory` if that is given."""
    try:
        if mode_of(host, port) is None:
            return False
        return directory is None or f"dataDir={directory.absolute()}/" in _ask(host, port, b"conf")
    except OSError:
        return False


def mode_of(host: str, port: int) -> str | None:
    """Returns `standalone`, `leader` or `follower`; None where no server serves."""
    try:
        _, found, rest = _ask(host, port, b"srvr").partition("Mode:")
    except OSError:
        return None
    return rest.split(maxsplit=1)[0] if found else None


def _ask(host: str, port: int, word: bytes) -> str:
    """Returns an answer, which ends with the connection; a server that is starting may leave the connection open."""
    with socket.create_connection((host, port), ANSWER_TIMEOUT_S) as connection:
        connection.sendall(word)
        answer = b""
        while answer != NOT_SERVING and len(answer) < MAX_ANSWER_BYTES and (chunk := connection.recv(4096)):
            answer += chunk
    return answer.decode(errors="replace")


def _jars(*, has_netty: bool) -> list[Path]:
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SetupError(f"ZooKeeper comes with PySpark, which is not installed: {install_command('pipelines')}")
    folder = Path(spec.submodule_search_locations[0]) / "jars"
    patterns = (*JARS, *NETTY_JARS) if has_netty else JARS
    found = [sorted(folder.glob(f"{pattern}.jar")) for pattern in patterns]
    missing = [pattern for pattern, jars in zip(patterns, found, strict=True) if not jars]
    if missing:
        raise SetupError(f"ZooKeeper's jars {', '.join(missing)} are not in {folder}")
    return [jars[0] for jars in found]


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0
