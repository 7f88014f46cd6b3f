"""Spark sessions for loads: quiet, in UTC, with this interpreter in the workers unless another one is named."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.resources import as_file, files
from tempfile import NamedTemporaryFile
from types import FrameType, TracebackType
from typing import Self

import javaproperties
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from millrace.extras import require
from millrace.java import java_home_for_spark

TASK_MAX_FAILURES = 3
UNTOLD_CORES = 8
CONNECT = "sc://"
CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
WORKERS_PYTHON = "PYSPARK_PYTHON"
WORKERS_PYTHON_SETTING = "spark.pyspark.python"
SESSIONS_PYTHON_SETTING = "spark.sql.execution.pyspark.python"
ARCHIVES_SETTING = "spark.archives"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}
LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
PY4J_LOGGERS = (None, "py4j.clientserver", "py4j.java_gateway")  # None is the root's, to which it logs, too
INTERRUPTED_CALL = ("KeyboardInterrupt while sending command.", "Exception occurred while shutting down connection")
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Djava.net.preferIPv4Stack=true"


def local_master(cores: int | None = None) -> str:
    """Returns the master of all or `cores` cores of this machine; plain `local[N]` would never retry a task."""
    return f"local[{cores or os.cpu_count() or 1},{TASK_MAX_FAILURES}]"


def _remote_session(name: str, address: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yields a Spark Connect session; removes the variable that it sets, which would forbid sessions of other kinds."""
    archives, own = _of_connect(settings)
    remote = SparkSession.builder.appName(name).remote(address).config(map={**own}).getOrCreate()
    try:
        if archives:
            remote.addArtifacts(*archives, archive=True)
        yield remote
    finally:
        remote.stop()
        os.environ.pop(CONNECT_MODE, None)


def _of_connect(settings: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Returns the archives that a session sends to executors, and its settings.

    A server's own `spark.archives` reaches no session: each has folders of its own on the executors.
    """
    own = dict(settings)
    archives = [one for one in own.pop(ARCHIVES_SETTING, "").split(",") if one]
    if (python := own.pop(WORKERS_PYTHON_SETTING, None)) is not None:
        own[SESSIONS_PYTHON_SETTING] = python
    return archives, own


def is_remote(spark: SparkSession) -> bool:
    """Returns whether the session is one of Spark Connect, which has no SparkContext."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def cores_of(spark: SparkSession) -> int:
    """Returns how many tasks run at once; UNTOLD_CORES for Spark Connect, whose server does not say."""
    return UNTOLD_CORES if is_remote(spark) else max(spark.sparkContext.defaultParallelism, 1)


def workers_python(master: str, settings: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Returns the Python of Spark's workers: that of the settings, on a cluster else PYSPARK_PYTHON, else this one's.

    Spark itself follows the setting only in programs that spark-submit starts.
    """
    named = "" if master.startswith("local") else environment.get(WORKERS_PYTHON, "")
    return settings.get(WORKERS_PYTHON_SETTING) or named or sys.executable


@contextmanager
def spark_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yields a session and stops it at the end; one that this process already has is used and left running.

    Args:
        name: The application's name.
        master: Spark's master; by default all cores of this machine. `sc://HOST:PORT` is a Spark Connect server.
        settings: Settings of the session, above Millrace's own; a server of Spark Connect takes only some of them,
            among these `spark.archives` and `spark.pyspark.python`, for this session's executors.

    Raises:
        SetupError: No Java of version 17 or newer, or no client of Spark Connect.
    """
    if (active := SparkSession.getActiveSession()) is not None:
        yield active
        return
    master = master or local_master()
    if master.startswith(CONNECT):
        require("a load over Spark Connect", "connect")
        yield from _remote_session(name, master, settings or {})
        return
    os.environ["JAVA_HOME"] = str(java_home_for_spark())
    os.environ[WORKERS_PYTHON] = workers_python(master, settings or {}, os.environ)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with as_file(files("millrace_pipelines.spark") / "log4j2.properties") as log4j:
        java_options = {"spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Dlog4j2.configurationFile={log4j}"}
        local_settings = LOCAL_SETTINGS if master.startswith("local") else {}
        named = {"spark.app.name": name, "spark.master": master}
        everything = SETTINGS | local_settings | java_options | named | dict(settings or {})
        with ExitStack() as stack:
            with _interrupted_later():
                _start_jvm(everything)
                spark = SparkSession.builder.config(map={**everything}).getOrCreate()
                stack.callback(spark.stop)
            yield spark


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Raises KeyboardInterrupt for a Ctrl-C in this context at its end, and for a second one at once.

    A JVM that loses its starter writes pages to stderr. And Spark sets a handler that calls the JVM, which fails within
    another call: the former one is put back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.getsignal(signal.SIGINT)
    noted: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    for name in PY4J_LOGGERS:
        logging.getLogger(name).addFilter(_is_no_interrupt)
    if noted:
        raise KeyboardInterrupt


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Drops what py4j logs, with its traceback, where Ctrl-C ends a call of the JVM: who is interrupted tells it."""
    return record.msg not in INTERRUPTED_CALL


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Starts this process's JVM, if it has none, with settings from a file that only this user can read.

    PySpark itself would put them onto a command line, which every user of the machine can see.
    """
    if _jvm() is not None:
        return
    with NamedTemporaryFile("w", prefix="millrace-spark-", suffix=".properties", encoding="ascii") as file:
        file.write(javaproperties.dumps(settings))
        file.flush()
        given = os.environ.get(SUBMIT_ARGS)
        options = f"--properties-file {shlex.quote(file.name)} --load-spark-defaults"
        os.environ[SUBMIT_ARGS] = f"{options} {given or 'pyspark-shell'}"
        try:
            SparkContext._ensure_initialized()  # noqa: SLF001  PySpark has no other way to start a JVM without a context
        finally:
            del os.environ[SUBMIT_ARGS]
            if given is not None:
                os.environ[SUBMIT_ARGS] = given


class SharedSession:
    """A Spark session that several operations share; it starts when the first of them needs it.

    with SharedSession("loads", master) as shared:
        load_topic(options, spark=shared)
    """

    def __init__(self, name: str, master: str | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._master = master
        self._settings = settings
        self._stack = ExitStack()
        self._session: SparkSession | None = None
        self._lock = threading.Lock()  # loads on several threads may need it at once

    def get(self) -> SparkSession:
        """Returns the session, which it starts at the first call; raises SetupError where it can't start."""
        with self._lock:
            if self._session is None:
                self._session = self._stack.enter_context(spark_session(self._name, self._master, self._settings))
            return self._session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        unreachable = () if jvm_status() is None else (Py4JError, OSError)
        with suppress(*unreachable):
            self._stack.close()


def jvm_status(timeout_s: float = 0.0) -> int | None:
    """Returns the exit status of this process's JVM, negative for a signal; None where it runs on, or there is none.

    Args:
        timeout_s: How long to wait for its end; a JVM that has just been killed takes a moment to be gone.
    """
    jvm = _jvm()
    if jvm is None:
        return None
    with suppress(subprocess.TimeoutExpired):
        return jvm.wait(timeout_s)
    return None


def end_jvm(timeout_s: float) -> None:
    """Ends this process's JVM, if there is one, and waits until it has removed its temporary files."""
    jvm = _jvm()
    if jvm is not None and jvm.stdin is not None:
        jvm.stdin.close()
        jvm_status(timeout_s)


def _jvm() -> subprocess.Popen[bytes] | None:
    gateway = SparkContext._gateway  # noqa: SLF001  PySpark keeps the JVM's process nowhere else
    return None if gateway is None else gateway.proc
