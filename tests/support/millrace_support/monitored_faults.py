"""Ten faults that an operator is paged for, and the way out of each, as the runbook has it.

Each is a generator: it sets up what will fail and yields where Prometheus finds it; it breaks it and yields; it takes
the way out and yields. Closing it removes everything.
"""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import confluent_kafka

from millrace.addresses import LOOPBACK, parse_address
from millrace.client import Admin, Cluster, SyncProducer
from millrace.client.groups import GroupOffset, Groups
from millrace.errors import MillraceError
from millrace.ports import free_port
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_pipelines.warehouse.delta.table import Table
from millrace_support.admin_requests import change_request
from millrace_support.loads import FS, Loads
from millrace_support.set_clock import SetClock
from millrace_support.waiting import until

PATIENCE_S = 300.0
MILLRACE = str(Path(sys.executable).with_name("millrace"))
BROKER = ("-m", "millrace_broker")
NODE_EXPORTER = "prometheus-node-exporter"
ONE_PARTITION = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
SMALL_FILES = 10_000
SLOW_CLIENTS, SENT_BYTES, FRAME_BYTES = 5, 90_000_000, 100_000_000
RECORDS_A_SECOND = 2000

Fault = Iterator[str]


def _broker(place: Path, *, program: Sequence[str] = BROKER, **options: object) -> BrokerProcess:
    """Starts a broker whose admin endpoint has the same address after a restart."""
    admin = ("--admin", f"{LOOPBACK}:{free_port()}")
    return BrokerProcess(place / "data", program=(*program, *admin), **options)  # type: ignore[arg-type]


def _target(broker: BrokerProcess) -> str:
    return broker.admin_url.removeprefix("http://")


def _millrace(*arguments: str, bootstrap: str = "") -> None:
    words = [MILLRACE, *arguments, *(("--bootstrap", bootstrap) if bootstrap else ())]
    subprocess.run(words, check=True, capture_output=True, timeout=PATIENCE_S)


def disk_full(place: Path) -> Fault:
    """Fills a disk with a topic; then keeps less of it."""
    properties = {**ONE_PARTITION, "log.segment.bytes": "1000000", "log.segment.delete.delay.ms": "1000"}
    (disk := place / "disk").mkdir()
    with (
        _small_disk(disk),
        EmbeddedZooKeeper(place / "zookeeper") as zookeeper,
        _broker(disk, zookeeper=zookeeper.address, properties=properties) as broker,
        Cluster(broker.bootstrap) as cluster,
    ):
        Admin(cluster).create_topic("full", 1)
        producer = SyncProducer(cluster)

        def has_room() -> bool:
            try:
                producer.send("full", 0, [NewRecord(bytes(100_000))])
            except MillraceError:
                return False
            return True

        yield _target(broker)
        until(lambda: not has_room())
        yield ""
        _millrace("configs", "set", "retention.bytes=2000000", "--topic", "full", bootstrap=broker.bootstrap)
        request = change_request(broker, "maintenance/retention")
        urllib.request.urlopen(request).close()  # noqa: S310 -- a broker of its own
        until(has_room)
        yield ""


@contextmanager
def _small_disk(place: Path) -> Iterator[None]:
    """Mounts a disk of 16 MB there."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def folder_lost(place: Path) -> Fault:
    """Takes one of two data directories away; then brings it back, and starts the broker again."""
    with _broker(place, more_data_dirs=[place / "lost"]) as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("t", 2)
        producer = SyncProducer(cluster)
        for partition in range(2):
            producer.send("t", partition, [NewRecord(b"v")])
        yield _target(broker)
        (place / "lost").rename(place / "elsewhere")
        for partition in range(2):
            with suppress(MillraceError):  # of the folder that is gone, once the broker has noticed it
                producer.send("t", partition, [NewRecord(b"v")])
        yield ""
        (place / "elsewhere").rename(place / "lost")
        broker.restart()
        yield ""


def zookeeper_gone(place: Path) -> Fault:
    """Stops ZooKeeper; then starts it again."""
    properties = {**ONE_PARTITION, "zookeeper.session.timeout.ms": "4000"}
    with (
        EmbeddedZooKeeper(place / "zookeeper") as zookeeper,
        _broker(place, zookeeper=zookeeper.address, properties=properties) as broker,
    ):
        yield _target(broker)
        zookeeper.stop()
        yield ""
        zookeeper.start()
        yield ""


def _consumer(bootstrap: str, group: str, topic: str) -> confluent_kafka.Consumer:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    return consumer


def consumer_stuck(place: Path) -> Fault:
    """Has a member stop polling while records come; then starts it again."""
    with _broker(place, properties=ONE_PARTITION) as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("waits", 1)
        producer = SyncProducer(cluster)
        producer.send("waits", 0, [NewRecord(b"v")])
        hangs = _consumer(broker.bootstrap, "stuck", "waits")
        assert hangs.poll(PATIENCE_S) is not None
        hangs.commit(asynchronous=False)
        yield _target(broker)
        producer.send("waits", 0, [NewRecord(b"v")] * 5)
        yield ""
        hangs.close()
        with closing(_consumer(broker.bootstrap, "stuck", "waits")) as restarted:
            for _ in range(5):
                assert restarted.poll(PATIENCE_S) is not None
            restarted.commit(asynchronous=False)
            yield ""


def lag_grows(place: Path) -> Fault:
    """Sends more records than a group consumes; then has it consume more."""
    stopped = Event()
    with _broker(place, properties=ONE_PARTITION) as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("much", 1)
        Groups(cluster).commit("slow", {("much", 0): GroupOffset(0, "")})

        def produce() -> None:
            with Cluster(broker.bootstrap) as own:
                producer, groups = SyncProducer(own), Groups(own)
                for consumed in range(10, sys.maxsize, 10):
                    producer.send("much", 0, [NewRecord(b"v")] * RECORDS_A_SECOND)
                    if not catches_up.is_set():
                        groups.commit("slow", {("much", 0): GroupOffset(consumed, "")})
                    if stopped.wait(1.0):
                        return

        catches_up = Event()
        producing = Thread(target=produce)
        yield _target(broker)
        producing.start()
        try:
            yield ""
            catches_up.set()
            with closing(_consumer(broker.bootstrap, "slow", "much")) as consumer:
                consuming = Thread(target=_consume, args=(consumer, stopped))
                consuming.start()
                try:
                    yield ""
                finally:
                    stopped.set()
                    consuming.join()
        finally:
            stopped.set()
            producing.join()


def _consume(consumer: confluent_kafka.Consumer, stopped: Event) -> None:
    while not stopped.is_set():
        if consumer.consume(RECORDS_A_SECOND, 0.5):
            consumer.commit(asynchronous=False)


def transaction_hangs(place: Path) -> Fault:
    """Leaves a transaction open; then starts its producer again."""
    properties = {**ONE_PARTITION, "transaction.max.timeout.ms": "7200000"}
    with _broker(place, properties=properties) as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("hangs", 1)

        def producer() -> confluent_kafka.Producer:
            settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": "t"}
            started = confluent_kafka.Producer({**settings, "transaction.timeout.ms": 7_200_000})
            started.init_transactions(PATIENCE_S)
            return started

        hangs = producer()
        yield _target(broker)
        hangs.begin_transaction()
        hangs.produce("hangs", b"v")
        hangs.flush(PATIENCE_S)
        yield ""
        producer()
        yield ""


def load_fails(place: Path) -> Fault:
    """Stops the broker of a continuous load; then starts it again."""
    served = f"{LOOPBACK}:{free_port()}"
    with _broker(place) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("loaded", 1)
            SyncProducer(cluster).send("loaded", 0, [NewRecord(b"v")])
        words = ("--table", str(place / "table"), "--continuous", "--interval", "1", "--metrics", served)
        command = [MILLRACE, "warehouse", "load", "loaded", "--bootstrap", broker.bootstrap, *words]
        with _running([*command, "--master", "local[1]"]):
            until((place / "table" / "_delta_log").is_dir)
            yield served
            broker.stop()
            yield ""
            broker.start()
            yield ""


@contextmanager
def _running(command: Sequence[str]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


def small_files(place: Path) -> Fault:
    """Gives a table ten thousand files; then compacts it."""
    (place / "metrics").mkdir()
    loads, served = Loads(str(place / "table")), f"{LOOPBACK}:{free_port()}"
    loads.load((0, 1), [0])

    def tell() -> None:
        _millrace("warehouse", "tables", str(place), "--textfile", str(place / "metrics" / "millrace.prom"))

    tell()
    exporter = [
        NODE_EXPORTER,
        f"--web.listen-address={served}",
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={place / 'metrics'}",
    ]
    files = [loads.write(loads.directory, [offset]) for offset in range(1, SMALL_FILES)]
    with _running(exporter):
        yield served
        Table.load(loads.directory, FS).commit(files, expected={}, transactions={}, lineage={"kind": "other"})
        tell()
        yield ""
        _millrace("warehouse", "upkeep", loads.directory)
        tell()
        yield ""


def slow_client(place: Path) -> Fault:
    """Begins large requests and does not end them; then stops those clients."""
    with _broker(place) as broker, ExitStack() as clients:
        host, port = parse_address(broker.bootstrap)
        yield _target(broker)
        for _ in range(SLOW_CLIENTS):
            client = clients.enter_context(socket.create_connection((host, port), timeout=PATIENCE_S))
            client.sendall(struct.pack(">i", FRAME_BYTES) + bytes(SENT_BYTES))
        yield ""
        clients.close()
        yield ""


def clock_moved(place: Path) -> Fault:
    """Sets the clock of a machine an hour ahead; then sets it right."""
    clock = SetClock(place / "clock")
    with _broker(place, program=clock.program) as broker:
        yield _target(broker)
        clock.set(3600)
        yield ""
        clock.set(0)
        yield ""
