"""`millrace bench fetch`: consuming a topic, beside a bare file server on the same loopback.

The bare server reads the same segment file by `os.pread` and sends it without any protocol. librdkafka's mock broker is
no yardstick here: it keeps only the last 5 MB. With `--peer kafka`, librdkafka consumes the same records from Apache
Kafka in turn.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.records.batch import walk
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.figures import GIGABYTE, MEGABYTE, Figure, Samples, alternate, interleave
from millrace_benchmarks.librdkafka import BULK_SETTINGS, CONSUMER, PRODUCER, Client
from millrace_benchmarks.payloads import text
from millrace_benchmarks.produce import DISTINCT_VALUES, plain
from millrace_benchmarks.subjects import Peer, Subject, apache_kafka, millrace, pinned

LOADS = ((100, 2_000_000), (1024, 300_000))
PEERS = (Peer.KAFKA, Peer.KAFKA_3_9)
ROUNDS = 5
READ_BYTES = 1 << 20


def run(peer: Peer | None = None) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    if peer is not None:
        return _beside_peer(peer)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory, BrokerProcess(directory) as broker:
        for size_bytes, count in LOADS:
            topic = f"fetch-{size_bytes}"
            with Client(PRODUCER, BULK_SETTINGS | {"bootstrap.servers": broker.bootstrap}) as client:
                client.produce(topic, bytes(size_bytes), size_bytes, count)
            figures += _figures(broker, topic, size_bytes, count)
    return figures


def _beside_peer(peer: Peer) -> list[Figure]:
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory,
        millrace(Path(directory)) as ours,
        apache_kafka(peer, Path(directory)) as theirs,
    ):
        return [figure for size_bytes, count in LOADS for figure in _peer_figures(ours, theirs, size_bytes, count)]


def _peer_figures(ours: Subject, theirs: Subject, size_bytes: int, count: int) -> list[Figure]:
    topic = f"fetch-{size_bytes}"
    for subject in (ours, theirs):
        with Cluster(subject.bootstrap) as cluster:
            Admin(cluster).create_topic(topic, 1)
        with Client(PRODUCER, BULK_SETTINGS | {"bootstrap.servers": subject.bootstrap}) as client:
            client.produce(topic, text(size_bytes * DISTINCT_VALUES), size_bytes, count)

    def measure(subject: Subject) -> Callable[[], Samples]:
        return lambda: consume_once(subject, topic, plain(subject), size_bytes, count)

    mine, other = interleave(ROUNDS, measure(ours), measure(theirs))
    return [
        Figure(
            name=f"librdkafka consume, {size_bytes} B", value=mine["rate"], unit="records/s", yardstick=theirs.name,
            yardstick_value=other["rate"], at_least=1.0,
        ),
        Figure(
            name="· broker CPU for a GB of values", value=mine["cpu"], unit="s", yardstick=theirs.name,
            yardstick_value=other["cpu"], at_most=1.0,
        ),
    ]  # fmt: skip


def _figures(broker: BrokerProcess, topic: str, size_bytes: int, count: int) -> list[Figure]:
    segment = next((broker.data_dir / f"{topic}-0").glob("*.log"))
    log_megabytes = segment.stat().st_size / MEGABYTE
    library, simple, bare = alternate(
        ROUNDS,
        lambda: log_megabytes / _consume({"bootstrap.servers": broker.bootstrap}, topic, count),
        lambda: log_megabytes / _fetch(broker.bootstrap, topic),
        lambda: log_megabytes / _bare(segment),
    )
    yardstick = {"yardstick": "bare file server", "yardstick_value": bare}
    return [
        Figure(name=f"librdkafka consume, {size_bytes} B", value=library * count / log_megabytes, unit="records/s"),
        Figure(name="the same in log bytes", value=library, unit="MB/s", **yardstick),  # type: ignore[arg-type]
        Figure(name=f"SimpleConsumer.fetch, {size_bytes} B", value=simple, unit="MB/s", **yardstick),  # type: ignore[arg-type]
    ]


def consume_once(subject: Subject, topic: str, settings: Mapping[str, str], size_bytes: int, count: int) -> Samples:
    """Consumes a topic; returns the records a second, and the broker's processor time for a GB of values."""
    before = subject.cpu_s
    with pinned():
        seconds = _consume(settings, topic, count)
    return {"rate": count / seconds, "cpu": (subject.cpu_s - before) * GIGABYTE / (size_bytes * count)}


def _consume(settings: Mapping[str, str], topic: str, count: int) -> float:
    with Client(CONSUMER, {"group.id": "bench", "queued.min.messages": "1000000", **settings}) as client:
        started = time.perf_counter()
        client.consume(topic, count)
        return time.perf_counter() - started


def _fetch(bootstrap: str, topic: str) -> float:
    with Cluster(bootstrap) as cluster:
        consumer = SimpleConsumer(cluster)
        end = consumer.latest(topic, 0)
        started = time.perf_counter()
        offset = 0
        while offset < end:
            fetched = consumer.fetch(topic, 0, offset, max_bytes=READ_BYTES)
            for _, header in walk(fetched.records):
                offset = header.next_offset
        return time.perf_counter() - started


def _bare(segment: Path) -> float:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve_file, args=(str(segment), theirs))
    server.start()
    theirs.close()
    with socket.create_connection(("127.0.0.1", ours.recv())) as client:
        buffer = bytearray(READ_BYTES)
        started = time.perf_counter()
        client.sendall(b"!")
        while client.recv_into(buffer):
            pass
        seconds = time.perf_counter() - started
    server.join()
    return seconds


def _serve_file(path: str, port: Connection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port.send(listener.getsockname()[1])
        client, _ = listener.accept()
        with client:
            client.recv(1)
            fd = os.open(path, os.O_RDONLY)
            position = 0
            while chunk := os.pread(fd, READ_BYTES, position):
                client.sendall(chunk)
                position += len(chunk)
            os.close(fd)
