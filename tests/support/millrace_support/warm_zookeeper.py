"""Starts ZooKeepers in JVMs that stay: `EmbeddedZooKeeper.start_process = WarmZooKeeper().start`.

A server then starts in a twentieth of the processor time. A JVM runs one server at a time; one that was stopped in good
order leaves its JVM to the next server with the same command. A server that is killed, or does not start, ends its JVM.
Members of an ensemble, and servers with TLS or logins, whose settings are those of a JVM, have JVMs of their own.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NamedTuple

from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError

from millrace.zk.embedded import MAIN_CLASS, start_server
from millrace_support.idle_jvms import IdleJvms
from millrace_support.process_stand_in import ProcessStandIn

MAX_IDLE = 1  # most tests have one at a time, beside that of the run
STOPPED = 128 + signal.SIGTERM  # the exit status of a JVM after SIGTERM
GATEWAY = ("py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0")
ANSWER_TIMEOUT_S = 60


class Jvm(NamedTuple):
    """A JVM and the door to its objects."""

    process: subprocess.Popen[bytes]
    gateway: JavaGateway


class Server(NamedTuple):
    """A server that runs: Java's objects of its connections and of its files."""

    connections: Any
    files: Any


class ServerInJvm(ProcessStandIn):
    """A server in a JVM that others share after it, as `EmbeddedZooKeeper` sees its process."""

    def __init__(self, command: Sequence[str], jvm: Jvm, log: IO[bytes], idle: IdleJvms[Jvm]) -> None:
        super().__init__(command, jvm.process.pid)
        self._jvm, self._idle = jvm, idle
        try:
            self._server = _start_server(jvm.gateway, command[-1])
        except Py4JJavaError as error:
            log.write(str(error).encode())
            self.kill()

    def send_signal(self, sig: int) -> None:
        """Stops the server where the signal is SIGTERM; any other one goes to the JVM."""
        if sig != signal.SIGTERM:
            self._jvm.process.send_signal(sig)
        elif self.poll() is None:
            self._server.connections.shutdown()
            self._server.files.close()
            self.returncode = STOPPED
            self._idle.keep(_program(self.args), self._jvm)

    def kill(self) -> None:
        """Kills the JVM."""
        self._jvm.process.kill()

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end and returns the exit status that a process would have; raises TimeoutExpired."""
        if self.returncode is None:
            self.returncode = self._jvm.process.wait(timeout)
            _close(self._jvm)
        return self.returncode


class WarmZooKeeper:
    """The JVMs of servers; those that are idle end with `close`, or with this process."""

    def __init__(self) -> None:
        self._idle: IdleJvms[Jvm] = IdleJvms(MAX_IDLE, _end)
        self.close = self._idle.close

    def start(self, command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Starts what `start_server` of `millrace.zk.embedded` starts with these arguments."""
        if MAIN_CLASS not in command or "netty" in _class_path(command):
            return start_server(command, log)
        jvm = self._idle.take(_program(command)) or _new_jvm(command)
        return ServerInJvm(command, jvm, log, self._idle)


def _program(command: Sequence[str]) -> tuple[str, ...]:
    """Returns a command without its file of settings."""
    return tuple(command[:-1])


def _class_path(command: Sequence[str]) -> str:
    return command[command.index("-cp") + 1]


def _new_jvm(command: Sequence[str]) -> Jvm:
    """Starts a JVM with the flags and the jars of a server's command, and with Py4J behind those."""
    flags, class_path = command[: command.index("-cp")], os.pathsep.join((_class_path(command), _py4j()))
    process = subprocess.Popen(
        [*flags, "-cp", class_path, *GATEWAY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    port, token = process.stdout.readline(), process.stdout.readline().decode().strip()
    assert token, f"a JVM for ZooKeepers has ended with {process.wait()}: {command}"
    parameters = GatewayParameters(
        port=int(port), auth_token=token, enable_memory_management=False, read_timeout=ANSWER_TIMEOUT_S
    )
    return Jvm(process, JavaGateway(gateway_parameters=parameters))


def _py4j() -> str:
    """Returns the path of Py4J's jar, which PySpark carries beside ZooKeeper's."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    [jar] = Path(spec.submodule_search_locations[0], "jars").glob("py4j-*.jar")
    return str(jar)


def _start_server(gateway: JavaGateway, settings: str) -> Server:
    """Starts a server as ZooKeeper's own main class does, which does not return before the server's end.

    Raises:
        Py4JJavaError: The settings are not valid, or the port is taken.
    """
    zookeeper = gateway.jvm.org.apache.zookeeper.server
    config = zookeeper.ServerConfig()
    config.parse(settings)
    connections = zookeeper.ServerCnxnFactory.createFactory()
    backlog = config.getClientPortListenBacklog()
    connections.configure(config.getClientPortAddress(), config.getMaxClientCnxns(), backlog, False)
    files = zookeeper.persistence.FileTxnSnapLog(config.getDataLogDir(), config.getDataDir())
    sessions = (config.getTickTime(), config.getMinSessionTimeout(), config.getMaxSessionTimeout())
    connections.startup(zookeeper.ZooKeeperServer(files, *sessions, backlog, None, ""))
    return Server(connections, files)


def _end(jvm: Jvm) -> None:
    """Ends a JVM, which the end of its standard input tells."""
    _close(jvm)
    jvm.process.wait()


def _close(jvm: Jvm) -> None:
    jvm.gateway.close()
    for pipe in (jvm.process.stdin, jvm.process.stdout):
        assert pipe is not None
        pipe.close()
