"""Apache Kafka's MirrorMaker 2, run from the jars that `make peers` brings: one process between two clusters.

    with MirrorMaker2(place, source="127.0.0.1:9092", target="127.0.0.1:9093", name="here", topics="orders.*") as it:
        …                      # the topics appear at the target as `here.orders…`
        it.pid

It runs in its dedicated mode, exactly once: reads committed records, and writes records and its own offsets in one
transaction (KIP-618, KIP-710). It is set up for a high rate as its documentation advises: several tasks, large fetches
and batches. What it prints is the file `mirrormaker2.log`.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from millrace.addresses import LOOPBACK
from millrace.errors import SetupError
from millrace.lifeline import end_process, start_with_lifeline
from millrace.ports import free_port
from millrace_benchmarks.kafka_broker import LOG_FLAGS, PEERS, Kafka

MAIN_CLASS = "org.apache.kafka.connect.mirror.MirrorMaker"
TARGET_NAME = "mirrortarget"
FLAGS = ("-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true")
STOP_TIMEOUT_S = 60.0
TASKS = 2
COMMIT_INTERVAL_MS = 100
REPLICAS_OF_ONE = {
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
}


def find_mirrormaker2(peers: Path | None = None) -> Kafka:
    """Returns MirrorMaker 2 from the folder `peers`, which is `.peers` by default.

    Raises:
        SetupError: The jars are not there; the message says how to get them.
    """
    libs = (peers or Path(PEERS)).absolute() / "mirrormaker2" / "libs"
    if not any(libs.glob("connect-mirror-[0-9]*.jar")):
        raise SetupError(f"MirrorMaker 2 is not in {libs}: `make peers` brings it (needs Maven's mvn)")
    return Kafka(libs, FLAGS)


def properties_of(source: str, target: str, name: str, topics: str, rest_port: int) -> dict[str, str]:
    """Returns the properties of one flow, from the cluster `name` to the other one, exactly once."""
    flow = f"{name}->{TARGET_NAME}"
    return {
        "clusters": f"{name}, {TARGET_NAME}",
        f"{name}.bootstrap.servers": source,
        f"{TARGET_NAME}.bootstrap.servers": target,
        f"{flow}.enabled": "true",
        f"{TARGET_NAME}->{name}.enabled": "false",
        f"{flow}.topics": topics,
        "tasks.max": str(TASKS),
        "refresh.topics.interval.seconds": "5",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://{LOOPBACK}:{rest_port}",
        f"{TARGET_NAME}.exactly.once.source.support": "enabled",
        f"{name}.consumer.isolation.level": "read_committed",
        f"{name}.consumer.max.poll.records": "10000",
        f"{name}.consumer.max.partition.fetch.bytes": str(4 << 20),
        f"{TARGET_NAME}.producer.batch.size": str(512 << 10),
        f"{TARGET_NAME}.producer.linger.ms": "5",
        f"{TARGET_NAME}.producer.buffer.memory": str(128 << 20),
        **REPLICAS_OF_ONE,
    }


def for_backlog(codec: str, name: str) -> dict[str, str]:
    """Returns the further properties by which it copies fastest what producers have compressed by a codec.

    By itself it writes uncompressed, and ends a transaction with each poll, the best for records that come steadily.
    """
    flow = f"{name}->{TARGET_NAME}"
    return {
        f"{TARGET_NAME}.producer.compression.type": codec,
        f"{flow}.transaction.boundary": "interval",
        f"{flow}.transaction.boundary.interval.ms": str(COMMIT_INTERVAL_MS),
    }


class MirrorMaker2:
    """A running MirrorMaker 2; the constructor returns once its process runs, which copies some seconds later.

    Args:
        place: The folder of its file of properties and of what it prints.
        source: The addresses of the cluster that it reads.
        target: The addresses of the cluster that it writes to.
        name: What it calls the source: the beginning of the names of topics at the target.
        topics: A regular expression of the topics' names at the source.
        properties: Further properties, above those of a flow exactly once.

    Raises:
        SetupError: Its jars, or Java, are missing.
    """

    def __init__(
        self, place: Path, *, source: str, target: str, name: str, topics: str,
        properties: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        place.mkdir(parents=True, exist_ok=True)
        self._log_file = place / "mirrormaker2.log"
        settings = properties_of(source, target, name, topics, free_port()) | dict(properties or {})
        file = place / "mirrormaker2.properties"
        file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()), encoding="utf-8")
        command = find_mirrormaker2().command(MAIN_CLASS, str(file), flags=LOG_FLAGS)
        with self._log_file.open("wb") as log:
            self._process = start_with_lifeline(command, stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of its JVM."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process of MirrorMaker 2 has ended by itself."""
        return self._process.poll() is not None

    def stop(self) -> int:
        """Ends it by SIGTERM, after a minute by SIGKILL, and returns the exit status."""
        return end_process(self._process, signal.SIGTERM, STOP_TIMEOUT_S)

    def read_log(self) -> str:
        """Returns everything that it has printed."""
        return self._log_file.read_text(errors="replace")
