"""Spark sessions: made ready for loads, quiet, and with this interpreter in the workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files

from pyspark.sql import SparkSession

from millrace.java import java_home_for_spark

TASK_MAX_FAILURES = 3
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
    """All cores of this machine, or so many; plain `local[N]` would never retry a task."""
    return f"local[{cores or os.cpu_count() or 1},{TASK_MAX_FAILURES}]"


@contextmanager
def spark_session(name: str, master: str | None = None) -> Iterator[SparkSession]:
    """A session, stopped at the end; one that this process has already is used as it is, and left running.

    Args:
        name: The application's name.
        master: As Spark's; by default all cores of this machine.

    Raises:
        SetupError: No Java of version 17 or newer.
    """
    if (active := SparkSession.getActiveSession()) is not None:
        yield active
        return
    master = master or local_master()
    os.environ["JAVA_HOME"] = str(java_home_for_spark())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with as_file(files("millrace_pipelines.spark") / "log4j2.properties") as logging:
        builder = SparkSession.builder.appName(name).master(master)
        for key, value in (SETTINGS | (LOCAL_SETTINGS if master.startswith("local") else {})).items():
            builder = builder.config(key, value)
        spark = builder.config(
            "spark.driver.extraJavaOptions", f"{JAVA_OPTIONS} -Dlog4j2.configurationFile={logging}"
        ).getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
