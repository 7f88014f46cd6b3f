"""Spark's own servers from the package of PySpark: a standalone cluster, and a Spark Connect server.

    with SparkCluster(tmp_path / "cluster", workers=2) as cluster:
        load_topic(LoadOptions(…, master=cluster.master))
        cluster.workers[0].kill()
    with SparkConnect(tmp_path / "connect") as server:
        load_topic(LoadOptions(…, master=server.address))

Each JVM is small, listens on loopback, and has this process's environment, so its Python workers import what this
process imports. The servers' logs lie beside their work folders.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from millrace.addresses import LOOPBACK
from millrace.errors import SetupError
from millrace.java import java_home_for_spark
from millrace.lifeline import cut_lifeline, start_with_lifeline
from millrace.ports import free_port
from millrace_benchmarks.kafka_broker import class_archive_flags
from millrace_support.spark_machines import SPARK, WORK, Machine

START_TIMEOUT_S = 400.0
STOP_TIMEOUT_S = 20.0
POLL_INTERVAL_S = 0.05
LOG_TAIL_CHARACTERS = 4000
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
DAEMON_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
CLASS_ARCHIVE = Path(sys.prefix, "spark-classes.jsa")


class SparkServer:
    """One of Spark's programs in its own process group; the constructor returns when it has printed `ready`.

    Raises:
        SetupError: It does not start; the message has the end of its log.
    """

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, ready: str, variables: Mapping[str, str] | None = None
    ) -> None:
        self._name = name
        self._command = list(command)
        self._directory = directory
        self._ready = re.compile(ready)
        self._environment = _environment() | dict(variables or {})
        self._process: subprocess.Popen[bytes]
        self.said: re.Match[str]
        self.start()

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def start(self) -> None:
        """Starts the server, which must not be running."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._log_file.open("wb") as log:
            self._process = start_with_lifeline(
                self._command,
                stdout=log,
                stderr=subprocess.STDOUT,
                environment=self._environment,
                directory=self._directory,
            )
        try:
            self.said = self._await_ready()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Sends SIGKILL to the server and to everything that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        cut_lifeline(self._process)

    def stop(self) -> None:
        """Sends SIGTERM and waits; sends SIGKILL to what is left."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        cut_lifeline(self._process)

    def read_log(self) -> str:
        """Returns everything that the server has printed since its last start."""
        return self._log_file.read_text(errors="replace")

    @property
    def _log_file(self) -> Path:
        return self._directory.parent / f"{self._directory.name}.log"

    def _await_ready(self) -> re.Match[str]:
        deadline = time.monotonic() + START_TIMEOUT_S
        while (found := self._ready.search(self.read_log())) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SetupError(f"{self._name} does not start:\n{self.read_log()[-LOG_TAIL_CHARACTERS:]}")
            time.sleep(POLL_INTERVAL_S)
        return found


class SparkCluster:
    """A standalone master and its workers, of one core each by default, here or each on a machine of its own.

    `hosts` are those of workers here, in turn.
    """

    def __init__(
        self, directory: Path, *, workers: int = 2, cores: int = 1, hosts: Sequence[str] = (LOOPBACK,),
        machines: Sequence[Machine] = (),
    ) -> None:  # fmt: skip
        self._master = SparkServer(
            "Spark's master",
            [*_spark_class(MASTER), "--host", LOOPBACK, "--port", "0", "--webui-port", "0"],
            directory / "master",
            r"Starting Spark master at (spark://\S+)",
        )
        self.master = self._master.said.group(1)
        size = ["--webui-port", "0", "--cores", str(cores), "--memory", "2g", self.master]
        self.workers: list[SparkServer] = []
        try:
            for number in range(len(machines) or workers):
                work = directory / f"worker-{number}"
                place = ["--host", hosts[number % len(hosts)], *size]
                command = [*_spark_class(WORKER), "--work-dir", str(work), *place]
                if machines:
                    place = ["--host", machines[number].address, *size]
                    worker = [f"{SPARK}/bin/spark-class", WORKER, "--work-dir", WORK, *place]
                    command = machines[number].command(*worker)
                self.workers.append(
                    SparkServer("Spark's worker", command, work, r"Successfully registered with master")
                )
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops workers and master."""
        for worker in self.workers:
            worker.stop()
        self._master.stop()


class SparkConnect:
    """A Spark Connect server; `address` is what a session's `remote` takes, `python` that of the executors."""

    def __init__(
        self,
        directory: Path,
        *,
        master: str = "local[2,3]",
        settings: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        port = free_port()
        given = {"spark.connect.grpc.binding.port": str(port), "spark.ui.enabled": "false"} | dict(settings or {})
        configured = [part for name, value in given.items() for part in ("--conf", f"{name}={value}")]
        submit = [
            _program("spark-submit"),
            "--driver-memory",
            "1g",
            "--class",
            CONNECT,
            "--master",
            master,
            *configured,
            "spark-internal",
        ]
        variables = {"PYSPARK_PYTHON": python}
        self._server = SparkServer("Spark Connect", submit, directory, r"Spark Connect server started", variables)
        self.address = f"sc://{LOOPBACK}:{port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.stop()


def _spark_class(main_class: str) -> list[str]:
    return [_program("spark-class"), main_class]


def _program(name: str) -> str:
    return str(Path(pyspark.__file__).parent / "bin" / name)


def _environment() -> dict[str, str]:
    return os.environ | {
        "JAVA_HOME": str(java_home_for_spark()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *sys.path])),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "768m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join([DAEMON_JAVA_OPTIONS, *class_archive_flags(CLASS_ARCHIVE)]),
        "SPARK_SUBMIT_OPTS": f"{DAEMON_JAVA_OPTIONS} {os.environ.get('SPARK_SUBMIT_OPTS', '')}",
    }
