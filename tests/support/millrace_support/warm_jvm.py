"""Keeps a JVM of Spark, of which processes have a SparkContext one after the other instead of starting their own JVMs.

    with warm_jvm() as environment:
        subprocess.run([sys.executable, "-m", "millrace_pipelines.runs.child"], env={**os.environ, **environment}, …)

PySpark takes the JVM that these variables name. A process that is killed leaves its context behind, which would refuse
the next one, so tests that kill a load start the real thing.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway

from millrace.java import java_home_for_spark
from millrace_pipelines.spark.session import JAVA_OPTIONS, SUBMIT_ARGS

PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


@contextmanager
def warm_jvm(environment: Mapping[str, str], jars: Iterable[Path] = ()) -> Iterator[dict[str, str]]:
    """Yields the environment of processes that take the JVM, which ends with the context, and with this process.

    Args:
        environment: Variables that the JVM, and so Spark's Python workers, have besides those of this process.
        jars: Jars behind Spark's own ones on the class path, where the archive of Spark's classes allows others.
    """
    with (
        as_file(files("millrace_pipelines.spark") / "log4j2.properties") as logging,
        pytest.MonkeyPatch.context() as patch,
    ):
        java_options = f"{JAVA_OPTIONS} -Dlog4j2.configurationFile={logging}"
        for name, value in environment.items():
            patch.setenv(name, value)
        if class_path := os.pathsep.join(str(jar.absolute()) for jar in jars):
            patch.setenv("SPARK_DIST_CLASSPATH", class_path)
        patch.setenv("JAVA_HOME", str(java_home_for_spark()))
        patch.setenv(SUBMIT_ARGS, f"--driver-java-options '{java_options}' pyspark-shell")
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        found = gateway.gateway_parameters
        yield {PORT: str(found.port), SECRET: found.auth_token}
    finally:
        gateway.shutdown()
        gateway.proc.communicate()  # it ends where its stdin does


@contextmanager
def without_warm_jvm() -> Iterator[None]:
    """Lets a session that this process starts meanwhile have its own JVM."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (PORT, SECRET):
            patch.delenv(name, raising=False)
        yield


def forget_jvm(environment: Mapping[str, str]) -> None:
    """Lets the next session of this process start a JVM, if the one that it has used is the warm one."""
    used = SparkContext._gateway  # noqa: SLF001  PySpark keeps it nowhere else
    if used is not None and str(used.gateway_parameters.port) == environment[PORT]:
        used.shutdown_callback_server()
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
