"""Apache Kafka's tools and broker, run from the jars that `make peers` brings.

    kafka = find_kafka("3.9")
    kafka.run("kafka.tools.DumpLogSegments", "--files", "…/00000000000000000000.log")
    with KafkaBroker(kafka, tmp_path / "data", zookeeper=zookeeper.address) as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    with KafkaBroker(find_kafka("4.1"), tmp_path / "kraft") as broker:
        …

Every JVM has a bounded heap and ends with its parent. Kafka's settings are those of one small broker, coordinated by
ZooKeeper (3.x) or by itself (KRaft, 3.3 on), and `properties` come above them. The broker's log is the file
`….kafka.log` beside its data folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from millrace.addresses import LOOPBACK
from millrace.client.cluster import Cluster
from millrace.client.fetched import IsolationLevel
from millrace.client.simple_consumer import SimpleConsumer
from millrace.errors import BrokerError, SetupError
from millrace.java import find_java
from millrace.lifeline import end_process, start_with_lifeline
from millrace.ports import free_port
from millrace.security.client_security import ClientSecurity

PEERS = ".peers"
STARTED = ("[KafkaServer id={}] started", "[KafkaRaftServer nodeId={}] Kafka Server started")
JAVA_FLAGS = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LOG_FLAGS = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-Dorg.slf4j.simpleLogger.showDateTime=true")
TOOL_TIMEOUT_S = 180.0
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 180.0
MARKERS_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.05
LOG_TAIL_CHARACTERS = 4000
SMALL = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass(frozen=True, slots=True)
class Kafka:
    """One version of Apache Kafka: the folder of its jars, the flags of its JVMs, and the folder of further classes."""

    libs: Path
    java_flags: tuple[str, ...] = JAVA_FLAGS
    further_classes: Path | None = None

    @property
    def class_archive(self) -> Path:
        """The archive of this version's classes, which `make peers` creates beside the jars."""
        return self.libs.parent / "classes.jsa"

    @property
    def class_path(self) -> str:
        """The class path, as `java -cp` takes it."""
        jars = str(self.libs / "*")
        return jars if self.further_classes is None else f"{jars}{os.pathsep}{self.further_classes}"

    def command(self, main_class: str, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
        """Returns the command line of one of Kafka's programs; raises SetupError without Java."""
        return [str(find_java()), *self.java_flags, *flags, "-cp", self.class_path, main_class, *arguments]

    def run(self, main_class: str, *arguments: str, stdin: bytes = b"") -> str:
        """Runs a tool and returns what it prints on both streams.

        Raises:
            SetupError: The tool fails, or takes longer than three minutes.
        """
        command = self.command(main_class, *arguments, flags=("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",))
        try:
            result = subprocess.run(
                command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TOOL_TIMEOUT_S,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise SetupError(f"{main_class} takes longer than {TOOL_TIMEOUT_S:.0f} s") from None
        output = result.stdout.decode(errors="replace")
        if result.returncode:
            raise SetupError(f"{main_class} ends with {result.returncode}:\n{output[-LOG_TAIL_CHARACTERS:]}")
        return output


def find_kafka(version: str, peers: Path | None = None) -> Kafka:
    """Returns a version like "3.9" from the folder `peers`, which is `.peers` by default.

    Raises:
        SetupError: The jars are not there; the message says how to get them.
    """
    libs = (peers or Path(PEERS)).absolute() / f"kafka-{version}" / "libs"
    if not any(libs.glob("kafka_2.13-*.jar")):
        raise SetupError(f"Apache Kafka {version} is not in {libs}: `make peers` brings it (needs Maven's mvn)")
    kafka = Kafka(libs)
    return replace(kafka, java_flags=(*JAVA_FLAGS, *class_archive_flags(kafka.class_archive)))


def class_archive_flags(archive: Path) -> tuple[str, ...]:
    """Returns the flags of a JVM that takes its classes from an archive (JEP 350); none where there is no archive.

    A JVM for which the archive does not fit, such as one of another build, loads its classes from the jars.
    """
    if not archive.exists():
        return ()
    return f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"


def start_broker(kafka: Kafka, properties: str, log: Path) -> subprocess.Popen[bytes]:
    """Starts a broker by its file of properties; it ends with this process (`millrace.lifeline`)."""
    command = kafka.command("kafka.Kafka", properties, flags=LOG_FLAGS)
    with log.open("wb") as output:
        return start_with_lifeline(command, stdout=output, stderr=subprocess.STDOUT)


class KafkaBroker:
    """A broker of Apache Kafka as a process; the constructor returns when it serves.

    Args:
        kafka: The version.
        data_dir: The folder of the logs. It is created if necessary, and kept at the end.
        zookeeper: `HOST:PORT[/chroot]` (3.x only); without it the broker is its own controller (KRaft).
        beside: A broker that is its own controller, and this one's, too.
        listeners: Further listeners on free ports, beside the one in plain text: security protocols by name.
        users: Passwords of users who log in by SCRAM-SHA-512.
        listen: `HOST:PORT`; a free port of the loopback interface by default.
        properties: Broker properties, above those of one small broker.
        broker_id: The broker's id in the cluster.
        security: How the broker is asked whether it serves, where `properties` secure the listener at `listen`.

    Attributes:
        bootstrap: `HOST:PORT` of the first listener, which is in plain text unless `properties` say otherwise.
        addresses: `HOST:PORT` of the further listeners, by name.
        cluster_id: The id with which its folder is formatted (KRaft).
        start_process: Starts a broker of a version by its file of properties, with its log; by default
            `start_broker`.

    Raises:
        SetupError: Kafka does not start; the message has the end of its log.
    """

    start_process: Callable[[Kafka, str, Path], subprocess.Popen[bytes]] = staticmethod(start_broker)

    def __init__(
        self,
        kafka: Kafka,
        data_dir: Path,
        *,
        zookeeper: str | None = None,
        properties: Mapping[str, str] | None = None,
        broker_id: int = 1,
        beside: Self | None = None,
        listen: str | None = None,
        listeners: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        security: ClientSecurity = ClientSecurity.PLAINTEXT,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.bootstrap = listen or _free_address()
        self._security = security
        self._kafka = kafka
        self._broker_id = broker_id
        place = (str(self.data_dir), self.bootstrap, broker_id)
        if zookeeper:
            coordinated = _with_zookeeper(*place, zookeeper)
        elif beside is not None:
            coordinated = _beside_kraft(*place, beside.voters)
        else:
            coordinated = _with_kraft(*place, _free_address())
        self._needs_format = zookeeper is None
        self.cluster_id: str = _new_cluster_id() if beside is None else beside.cluster_id
        self.addresses = dict(zip(listeners or {}, _other_addresses(coordinated["listeners"]), strict=False))
        self._properties = with_listeners(coordinated, listeners or {}, self.addresses) | dict(properties or {})
        self._users = dict(users or {})
        self._log_file = self.data_dir.parent / f"{self.data_dir.name}.kafka.log"
        self._process: subprocess.Popen[bytes]
        self.start()
        if zookeeper:
            self._add_users()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def voters(self) -> str:
        """Its controller, `ID@HOST:PORT` (KRaft)."""
        return self._properties["controller.quorum.voters"]

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self._process.pid

    def start(self) -> None:
        """Starts the broker, which must not be running."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        settings = self.data_dir.parent / f"{self.data_dir.name}.properties"
        settings.write_text("".join(f"{name}={value}\n" for name, value in self._properties.items()), encoding="utf-8")
        if self._needs_format and not (self.data_dir / "meta.properties").exists():
            users = [part for user in self._users.items() for part in ("--add-scram", _scram(*user))]
            self._kafka.run("kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(settings), *users)
        self._process = self.start_process(self._kafka, str(settings), self._log_file)
        try:
            self._await_started()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> int:
        """Sends SIGTERM and returns the exit status, 143 after a clean stop; after three minutes sends SIGKILL."""
        return end_process(self._process, signal.SIGTERM, STOP_TIMEOUT_S)

    def kill(self) -> int:
        """Sends SIGKILL, as a crash of the process, and returns the exit status."""
        return end_process(self._process, signal.SIGKILL, STOP_TIMEOUT_S)

    def read_log(self) -> str:
        """Returns everything that the broker has printed since its last start."""
        return self._log_file.read_text(errors="replace")

    def _add_users(self) -> None:
        for name, password in self._users.items():
            self._kafka.run(
                *("kafka.admin.ConfigCommand", "--bootstrap-server", self.bootstrap, "--alter"),
                *("--entity-type", "users", "--entity-name", name),
                *("--add-config", f"SCRAM-SHA-512=[password={password}]"),
            )

    def _await_started(self) -> None:
        """Waits until the broker's metadata names it: it serves earlier, but creates no topics until then."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._knows_itself():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SetupError(f"Kafka does not start:\n{self.read_log()[-LOG_TAIL_CHARACTERS:]}")
            time.sleep(POLL_INTERVAL_S)

    def _knows_itself(self) -> bool:
        said = self.read_log()
        if not any(line.format(self._broker_id) in said for line in STARTED):
            return False
        with suppress(BrokerError), Cluster(self.bootstrap, security=self._security) as cluster:
            return self._broker_id in cluster.metadata([]).brokers
        return False  # it has not heard of the cluster


def await_markers(
    bootstrap: str,
    topic: str,
    partitions: Iterable[int] = (0,),
    *,
    security: ClientSecurity = ClientSecurity.PLAINTEXT,
) -> None:
    """Waits until a topic without open transactions is readable to its end; raises SetupError after a minute.

    Kafka answers EndTxn when the decision is stored, and writes the markers afterwards. Until then readers of committed
    records don't see what was committed, and later records may come to lie before the marker.
    """
    deadline = time.monotonic() + MARKERS_TIMEOUT_S
    with SimpleConsumer(bootstrap, security=security) as consumer:
        for partition in partitions:
            while consumer.latest(topic, partition, IsolationLevel.READ_COMMITTED) < consumer.latest(topic, partition):
                if time.monotonic() > deadline:
                    raise SetupError(f"{topic}-{partition}: no marker within {MARKERS_TIMEOUT_S:.0f} s")
                time.sleep(POLL_INTERVAL_S)


def _new_cluster_id() -> str:
    """Returns 16 bytes in URL-safe base64, which Kafka's tool would take for an option if they began with a hyphen.

    A mirror takes two clusters of one id for the same.
    """
    return urlsafe_b64encode(b"M" + uuid4().bytes[1:]).rstrip(b"=").decode()


def _scram(name: str, password: str) -> str:
    return f"SCRAM-SHA-512=[name={name},password={password}]"


def _other_addresses(taken: str) -> Iterator[str]:
    """Yields free addresses, each once, without those of the listeners that there are."""
    told = {address.partition("://")[2] for address in taken.split(",")}
    while True:
        address = _free_address()
        if address not in told:
            told.add(address)
            yield address


def _free_address() -> str:
    return f"{LOOPBACK}:{free_port()}"


def _with_zookeeper(data_dir: str, address: str, broker_id: int, zookeeper: str) -> dict[str, str]:
    """Returns the properties of a broker at `address` (`HOST:PORT`) on ZooKeeper at `HOST:PORT[/chroot]`."""
    return SMALL | {
        "broker.id": str(broker_id),
        "listeners": f"PLAINTEXT://{address}",
        "log.dirs": data_dir,
        "zookeeper.connect": zookeeper,
    }


def _with_kraft(data_dir: str, address: str, broker_id: int, controller: str) -> dict[str, str]:
    """Returns the properties of a broker at `address` that is also the controller, at the address `controller`.

    A broker counts as gone after a minute without a heartbeat, and not after nine seconds: a busy machine delays them.
    The successor of one that was killed is not registered before, and waits for longer than that.
    """
    return SMALL | {
        "broker.session.timeout.ms": "60000",
        "initial.broker.registration.timeout.ms": "120000",
        "node.id": str(broker_id),
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{broker_id}@{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data_dir,
    }


def _beside_kraft(data_dir: str, address: str, broker_id: int, voters: str) -> dict[str, str]:
    """Returns the properties of a broker at `address` whose controller is another one, `ID@HOST:PORT`."""
    return _with_kraft(data_dir, address, broker_id, "") | {
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://{address}",
        "controller.quorum.voters": voters,
    }


def with_listeners(
    properties: Mapping[str, str], protocols: Mapping[str, str], addresses: Mapping[str, str]
) -> dict[str, str]:
    """Returns a broker's properties with further listeners: by name, the security protocol and the address."""
    if not protocols:
        return dict(properties)
    map_name = "listener.security.protocol.map"
    added = ",".join(f"{name}://{address}" for name, address in addresses.items())
    said = ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())
    changed = {map_name: f"{properties.get(map_name, 'PLAINTEXT:PLAINTEXT')},{said}"}
    for name in ("listeners", "advertised.listeners"):
        changed[name] = f"{properties.get(name, properties['listeners'])},{added}"
    return {**properties, **changed}
