"""The services of a platform: the command of each, and the sign that it is ready.

- zookeeper: it answers `srvr` with a mode; left out where the user names a ZooKeeper.
- broker: it prints `listening HOST:PORT`.
- code-server: it accepts connections, which it does once the definitions are loaded.
- run-server: it accepts connections, which it does once it has imported what workers of runs need.
- webserver: the UI and its API; it accepts connections.
- daemon: sensors, schedules, the run queue; the API says that the location is loaded and the daemons beat.
- spark: a Spark Connect server on the loopback interface, which is kept running, so that loads don't wait for one to
  start; each load is a session of it. It accepts connections. It takes about a gigabyte while it waits.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from millrace.addresses import LOOPBACK, PLAINTEXT, parse_address
from millrace.errors import SetupError
from millrace.extras import require
from millrace.java import java_home_for_spark
from millrace.ports import is_listening
from millrace.zk.embedded import is_serving, server_command
from millrace_ops.supervisor.brokers import BrokerPlace
from millrace_ops.supervisor.dagster_api import DagsterApi
from millrace_ops.supervisor.dagster_instance import LOCATION
from millrace_ops.supervisor.supervised import ChildProcess, Service

LISTENING = re.compile(r"^listening (\S+)$", re.MULTILINE)
ADMIN_ENDPOINT = re.compile(r"admin endpoint at (https?)://([^\s\"']+)")
# The program `dagster-daemon`, which may be in no folder of programs that this process knows.
DAGSTER_DAEMON = (
    "from importlib.metadata import entry_points as e; e(group='console_scripts')['dagster-daemon'].load()()"
)
RUNS_STOP_TIMEOUT_S = 2.0  # so that the whole platform ends within ten seconds; a killed run leaves its table as it was


def zookeeper_service(directory: str, port: int, settings: str = "", java_flags: Sequence[str] = ()) -> Service:
    """Returns the service of a ZooKeeper on the loopback interface; raises SetupError where Java is missing."""
    place = Path(directory)
    return Service(
        name="zookeeper",
        command=server_command(place, port, settings, java_flags),
        is_ready=lambda _: is_serving(LOOPBACK, port, place),
    )


def broker_service(
    place: BrokerPlace,
    *,
    data_dir: str,
    zookeeper: str,
    config: str | None,
    properties: Mapping[str, str],
    restarts: bool,
    protocol: str = PLAINTEXT,
) -> Service:
    """Returns the service of a broker with one listener; it is ready once its log names its addresses.

    `config` is the path of a file of further properties, such as secrets, which a process list must not show.
    """
    assignments = [f"--set={name}={value}" for name, value in properties.items()]
    file = [] if config is None else ["--config", config]
    addresses = ["--listen", f"{protocol}://{place.listen}", "--admin", place.admin, "--zookeeper", zookeeper]
    own = ["--data", data_dir, "--id", str(place.id)]
    return Service(
        name=place.service,
        command=(sys.executable, "-u", "-m", "millrace_broker", *addresses, *own, *file, *assignments),
        restarts=restarts,
        is_ready=lambda child: all(pattern.search(child.read_log()) for pattern in (LISTENING, ADMIN_ENDPOINT)),
    )


def broker_addresses(broker: ChildProcess) -> tuple[str, str]:
    """Returns the bootstrap address of a ready broker, and the URL of its admin endpoint; both are in its log."""
    log = broker.read_log()
    listening, admin = LISTENING.search(log), ADMIN_ENDPOINT.search(log)
    if listening is None or admin is None:
        raise ValueError("the broker is not ready")
    address = parse_address(admin.group(2))
    return listening.group(1), f"{admin.group(1)}://{address.from_this_machine}"


def code_server_service(port: int, environment: Mapping[str, str]) -> Service:
    """Returns the service of Dagster's code server, which evaluates sensors and schedules and reloads definitions."""
    module = ("--module-name", "millrace_pipelines.definitions", "--location-name", LOCATION)
    address = ("--host", LOOPBACK, "--port", str(port))
    return Service(
        name="code-server",
        command=(sys.executable, "-m", "dagster", "code-server", "start", *module, *address),
        environment=environment,
        is_ready=lambda _: is_listening(LOOPBACK, port),
        stop_timeout_s=10.0,
    )


def run_server_service(port: int, environment: Mapping[str, str]) -> Service:
    """Returns the service of the run server, whose children, the workers of runs, have its environment.

    When it stops, it waits for the runs under way; one that takes longer than the stop timeout is killed, which leaves
    its table as it was.
    """
    return Service(
        name="run-server",
        command=(sys.executable, "-m", "millrace_ops.supervisor.run_server", str(port)),
        environment=environment,
        is_ready=lambda _: is_listening(LOOPBACK, port),
        stop_timeout_s=RUNS_STOP_TIMEOUT_S,
    )


def webserver_service(host: str, port: int, workspace: str, environment: Mapping[str, str]) -> Service:
    """Returns the service of Dagster's webserver, with its UI and API."""
    address = ("--host", host, "--port", str(port))
    return Service(
        name="webserver",
        command=(sys.executable, "-m", "dagster_webserver", *address, "--workspace", workspace),
        environment=environment,
        is_ready=lambda _: is_listening(host, port),
    )


def daemon_service(api: DagsterApi, workspace: str, environment: Mapping[str, str]) -> Service:
    """Returns the service of Dagster's daemon, which ticks sensors and schedules, and starts queued runs."""
    return Service(
        name="daemon",
        command=(sys.executable, "-c", DAGSTER_DAEMON, "run", "--workspace", workspace),
        environment=environment,
        is_ready=lambda _: api.is_ready(),
    )


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
    """Returns the Spark master, `sc://HOST:PORT`, by which loads reach the Spark Connect server."""
    return f"sc://{LOOPBACK}:{port}"


def warm_spark_problem(port: int) -> str:
    """Returns what is wrong with the Spark Connect server; "" where it listens."""
    return "" if is_listening(LOOPBACK, port) else "it does not listen; its log is spark.log"


def _program() -> str:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError("millrace up --warm needs pyspark: pip install 'millrace-log[connect]'")
    return str(Path(spec.origin).parent / "bin" / "spark-submit")
