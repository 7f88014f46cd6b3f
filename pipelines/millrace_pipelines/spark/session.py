"""Spark sessions for loads: quiet, in UTC, with this interpreter in the workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files

from pyspark.sql import SparkSession

from millrace.extras import require
from millrace.java import java_home_for_spark

TASK_MAX_FAILURES = 3
UNTOLD_CORES = 8
CONNECT = "sc://"
CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}
LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Djava.net.preferIPv4Stack=true"


def local_master(cores: int | None = None) -> str:
    """Returns the master of this machine's cores, or of `cores` of them; plain `local[N]` would never retry a task."""
    return f"local[{cores or os.cpu_count() or 1},{TASK_MAX_FAILURES}]"


def _remote_session(name: str, address: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yields a session of Spark Connect, and clears the variable that it leaves, which would forbid any other kind."""
    builder = SparkSession.builder.appName(name).remote(address)
    for key, value in settings.items():
        builder = builder.config(key, value)
    remote = builder.getOrCreate()
    try:
        yield remote
    finally:
        remote.stop()
        os.environ.pop(CONNECT_MODE, None)


def is_remote(spark: SparkSession) -> bool:
    """Returns whether the session is one of Spark Connect, which has no SparkContext."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def cores_of(spark: SparkSession) -> int:
    """Returns how many tasks run at once; a guess for Spark Connect, whose server does not say."""
    return UNTOLD_CORES if is_remote(spark) else max(spark.sparkContext.defaultParallelism, 1)


@contextmanager
def spark_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yields a session and stops it at the end; one that this process already has is used and left running.

    Args:
        name: The application's name.
        master: Spark's master; by default all cores of this machine. `sc://HOST:PORT` is a Spark Connect server.
        settings: Settings of the session, above Millrace's own; a server of Spark Connect takes only some of them.

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
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with as_file(files("millrace_pipelines.spark") / "log4j2.properties") as logging:
        java_options = {"spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Dlog4j2.configurationFile={logging}"}
        local_settings = LOCAL_SETTINGS if master.startswith("local") else {}
        builder = SparkSession.builder.appName(name).master(master)
        for key, value in (SETTINGS | local_settings | java_options | dict(settings or {})).items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
