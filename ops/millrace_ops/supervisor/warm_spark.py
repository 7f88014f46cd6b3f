"""A Spark that is kept running beside Dagster, so that loads don't wait for one to start: a Spark Connect server.

Each load is a session of this server, on the loopback interface. It takes about a gigabyte while it waits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from millrace.addresses import LOOPBACK
from millrace.errors import SetupError
from millrace.extras import require
from millrace.java import java_home_for_spark
from millrace_ops.supervisor.ports import is_listening
from millrace_ops.supervisor.supervised import Service

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
STARTED = "Spark Connect server started"
JAVA_OPTIONS = "-XX:+UseSerialGC -Xshare:auto -Djava.net.preferIPv4Stack=true"
MEMORY = "1g"
SETTINGS = {
    "spark.connect.grpc.binding.address": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
}


def warm_spark_service(port: int, master: str, warehouse: str, environment: Mapping[str, str]) -> Service:
    """Returns the service of a Spark Connect server; loads reach it as `warm_master(port)`.

    Args:
        port: The port that it listens on.
        master: The Spark master that its tasks run on.
        warehouse: The folder in which Spark makes its own files.
        environment: The variables of loads, for its Python workers.

    Raises:
        SetupError: No Java of version 17 or newer, or the extra `connect` is not installed.
    """
    require("millrace up --warm", "connect")
    configured = {**SETTINGS, "spark.connect.grpc.binding.port": str(port), "spark.sql.warehouse.dir": warehouse}
    settings = [part for name, value in configured.items() for part in ("--conf", f"{name}={value}")]
    return Service(
        name="spark",
        command=(
            _program(), "--driver-memory", MEMORY, "--driver-java-options", JAVA_OPTIONS,
            "--class", SERVER, "--master", master, *settings, "spark-internal",
        ),
        environment={
            **environment,
            "JAVA_HOME": str(java_home_for_spark()),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "SPARK_LOCAL_IP": LOOPBACK,
        },
        is_ready=lambda child: STARTED in child.read_log(),
    )  # fmt: skip


def warm_master(port: int) -> str:
    """Returns the master by which loads reach the server."""
    return f"sc://{LOOPBACK}:{port}"


def warm_spark_problem(port: int) -> str:
    """Returns what is wrong with the server; "" where it listens."""
    return "" if is_listening(LOOPBACK, port) else "it does not listen; its log is spark.log"


def _program() -> str:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError("millrace up --warm needs pyspark: pip install 'millrace-log[connect]'")
    return str(Path(spec.origin).parent / "bin" / "spark-submit")
