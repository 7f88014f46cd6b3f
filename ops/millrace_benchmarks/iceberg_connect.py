"""Iceberg's sink for Kafka Connect, run from the jars that `make iceberg-connect` brings: workers, and a connector.

    with ConnectWorker(place, bootstrap, name="one", cluster="all") as worker:
        worker.start_connector("sink", sink_of("events", lake=lake, table="demo.events", control="control"))

A worker is a process of Connect in its distributed mode; workers of one cluster share the load. The sink is set up for
a high rate: a task for each partition, large fetches, no conversion but that of a record into a row: the value as
bytes, and topic, partition, offset and time beside it, as a load writes them. The table is in the embedded catalog of a
folder, which the sink opens by Iceberg's JDBC catalog. What a worker prints is the file `connect-NAME.log`.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from millrace.addresses import LOOPBACK
from millrace.errors import SetupError
from millrace.json_values import Json
from millrace.lifeline import end_process, start_with_lifeline
from millrace.ports import free_port
from millrace_benchmarks.kafka_broker import LOG_FLAGS, PEERS, Kafka
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.http import ServiceUnreachableError, get_bytes, post_json

MAIN_CLASS = "org.apache.kafka.connect.cli.ConnectDistributed"
FLAGS = ("-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true")
TASKS = 2
SINK_COLUMNS = pa.schema(
    [ENVELOPE_SCHEMA.field(name) for name in ("topic", "partition", "offset", "timestamp", "value")]
)
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.2
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
TRANSFORMS = "org.apache.kafka.connect.transforms"


def find_iceberg_connect(peers: Path | None = None) -> Kafka:
    """Returns Connect and the sink from the folder `peers`, which is `.peers` by default.

    Raises:
        SetupError: The jars are not there; the message says how to get them.
    """
    libs = (peers or Path(PEERS)).absolute() / "iceberg-connect" / "libs"
    if not any(libs.glob("iceberg-kafka-connect-[0-9]*.jar")):
        raise SetupError(f"Iceberg's sink is not in {libs}: `make iceberg-connect` brings it (needs Maven's mvn)")
    return Kafka(libs, FLAGS)


def sink_of(topic: str, *, lake: Path, table: str, control: str, commit_interval_ms: int = 5_000) -> dict[str, str]:
    """Returns the settings of a connector that writes a topic to a table of a folder's embedded catalog.

    Args:
        topic: The topic.
        lake: The folder.
        table: The table, as the catalog names it.
        control: The topic by which its tasks and their coordinator speak to each other.
        commit_interval_ms: How often it commits.
    """
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": str(TASKS),
        "topics": topic,
        "key.converter": BYTES,
        "value.converter": BYTES,
        "transforms": "value,place",
        "transforms.value.type": f"{TRANSFORMS}.HoistField$Value",
        "transforms.value.field": "value",
        "transforms.place.type": f"{TRANSFORMS}.InsertField$Value",
        "transforms.place.topic.field": "topic",
        "transforms.place.partition.field": "partition",
        "transforms.place.offset.field": "offset",
        "transforms.place.timestamp.field": "timestamp",
        "iceberg.tables": table,
        "iceberg.catalog": "default",
        "iceberg.catalog.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "iceberg.catalog.uri": f"jdbc:sqlite:{lake}/catalog.sqlite",
        "iceberg.catalog.jdbc.schema-version": "V0",
        "iceberg.catalog.warehouse": f"file://{lake}",
        "iceberg.control.topic": control,
        "iceberg.control.commit.interval-ms": str(commit_interval_ms),
        "consumer.override.auto.offset.reset": "earliest",
        "consumer.override.max.poll.records": "10000",
        "consumer.override.max.partition.fetch.bytes": str(4 << 20),
    }


class ConnectWorker:
    """A worker of Connect; the constructor returns when it answers.

    Args:
        place: The folder of its file of properties and of what it prints.
        bootstrap: The addresses of the cluster that it reads, and keeps its state in.
        name: What its files are called.
        cluster: The cluster of workers that it belongs to: they share their connectors.
        properties: Further properties, above those of a worker.

    Raises:
        SetupError: Its jars, or Java, are missing, or it does not start.
    """

    def __init__(
        self, place: Path, bootstrap: str, *, name: str, cluster: str, properties: Mapping[str, str] | None = None
    ) -> None:
        self._log_file = place / f"connect-{name}.log"
        self._url = f"http://{LOOPBACK}:{free_port()}"
        settings = _worker_properties(bootstrap, self._url, cluster) | dict(properties or {})
        file = place / f"connect-{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        command = find_iceberg_connect().command(MAIN_CLASS, str(file), flags=LOG_FLAGS)
        with self._log_file.open("wb") as log:
            self._process = start_with_lifeline(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            self._await_started()
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process id of its JVM."""
        return self._process.pid

    def start_connector(self, name: str, settings: Mapping[str, str]) -> None:
        """Creates a connector, which starts some seconds later."""
        body: Json = {"name": name, "config": dict(settings)}
        post_json(f"{self._url}/connectors", body, timeout_s=REQUEST_TIMEOUT_S, advice="see the worker's log")

    def kill(self) -> int:
        """Ends it by SIGKILL, as a crash does, and returns the exit status."""
        return end_process(self._process, signal.SIGKILL, STOP_TIMEOUT_S)

    def read_log(self) -> str:
        """Returns everything that it has printed."""
        return self._log_file.read_text(errors="replace")

    def _await_started(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(ServiceUnreachableError):
                get_bytes(f"{self._url}/connectors", timeout_s=REQUEST_TIMEOUT_S, advice="it starts")
                return
            time.sleep(POLL_INTERVAL_S)
        raise SetupError(f"Connect does not start:\n{self.read_log()[-4000:]}")


def _worker_properties(bootstrap: str, url: str, cluster: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": f"workers-{cluster}",
        "listeners": url,
        "key.converter": BYTES,
        "value.converter": BYTES,
        "plugin.discovery": "hybrid_warn",
        "connector.client.config.override.policy": "All",
        "offset.flush.interval.ms": "5000",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        **{f"{kind}.storage.topic": f"connect-{kind}-{cluster}" for kind in ("config", "offset", "status")},
        **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
    }
