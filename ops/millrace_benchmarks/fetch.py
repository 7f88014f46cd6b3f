"""`millrace bench fetch`: consuming a topic, beside a bare file server on the same loopback.

The bare server reads the same segment file by `os.pread` and sends it without any protocol. librdkafka's mock broker is
no yardstick here: it keeps only the last 5 MB. With `--peer kafka`, librdkafka consumes the same records from Apache
Kafka in turn.

`read_topic` makes columns of Arrow of the same records, without Spark. Its goal is for small records and a second of
processor time, of all of the client's threads; the clock's seconds have the broker's in them.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.client.topic_reader import read_topic
from millrace.records.batch import walk
from millrace_benchmarks.harness import GIGABYTE, MEGABYTE, Comparison, Figure, Samples, alternate, per_second
from millrace_benchmarks.librdkafka import BULK_SETTINGS, CONSUMER, PRODUCER, Client
from millrace_benchmarks.payloads import text
from millrace_benchmarks.produce import DISTINCT_VALUES
from millrace_benchmarks.subjects import Peer, Subject, pinned, subjects

LOADS = ((100, 2_000_000), (1024, 300_000))
PEERS = (Peer.KAFKA, Peer.KAFKA_3_9)
ROUNDS = 5
READ_BYTES = 1 << 20
SMALL_BYTES = 100
READ_TOPIC_GOAL = 5_000_000


def run(place: Path, peer: Peer | None = None) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with subjects(place, peer) as brokers:
        comparison = Comparison(brokers, ROUNDS, "fetch")
        measure = _beside_bare_server if peer is None else _beside_peer
        return [figure for load in LOADS for figure in measure(comparison, *load)]


def _beside_peer(comparison: Comparison[Subject], size_bytes: int, count: int) -> list[Figure]:
    topic = fill(comparison, size_bytes, count)
    measured = comparison.measure(lambda one, _: consume_once(one, topic, one.client_settings, size_bytes, count))
    return [
        comparison.figure(f"librdkafka consume, {size_bytes} B", "records/s", "rate", measured, at_least=1.0),
        comparison.figure("· broker CPU for a GB of values", "s", "cpu", measured, at_most=1.0),
    ]


def fill(comparison: Comparison[Subject], size_bytes: int, count: int) -> str:
    """Produces records to a new topic of each broker; returns its name."""
    topic = comparison.new_topic()
    for subject in comparison.subjects:
        subject.create_topic(topic)
        with Client(PRODUCER, BULK_SETTINGS | subject.client_settings) as client:
            client.produce(topic, text(size_bytes * DISTINCT_VALUES), size_bytes, count)
    return topic


def _beside_bare_server(comparison: Comparison[Subject], size_bytes: int, count: int) -> list[Figure]:
    (broker,), topic = comparison.subjects, fill(comparison, size_bytes, count)
    segment = next((broker.data_dir / f"{topic}-0").glob("*.log"))
    log_megabytes = segment.stat().st_size / MEGABYTE
    read = partial(_read_topic, broker.bootstrap, topic)
    library, simple, bare, by_core, by_clock = alternate(
        ROUNDS,
        lambda: log_megabytes / _consume(broker.client_settings, topic, count),
        lambda: log_megabytes / _fetch(broker.bootstrap, topic),
        lambda: log_megabytes / _bare(segment),
        per_second(count, read, time.process_time),
        per_second(count, read),
    )
    beside_bare = partial(Figure, unit="MB/s", yardstick="bare file server", yardstick_value=bare)
    return [
        Figure(name=f"librdkafka consume, {size_bytes} B", value=library * count / log_megabytes, unit="records/s"),
        beside_bare(name="the same in log bytes", value=library),
        beside_bare(name=f"SimpleConsumer.fetch, {size_bytes} B", value=simple),
        _beside_goal(size_bytes, by_core),
        Figure(name="the same on the clock", value=by_clock, unit="records/s"),
    ]


def _beside_goal(size_bytes: int, rate: float) -> Figure:
    name, unit = f"read_topic, {size_bytes} B, one core", "records/s"
    if size_bytes != SMALL_BYTES:
        return Figure(name=name, value=rate, unit=unit)
    return Figure(name=name, value=rate, unit=unit, yardstick="the goal", yardstick_value=READ_TOPIC_GOAL, at_least=1.0)


def _read_topic(bootstrap: str, topic: str) -> int:
    return sum(batch.num_rows for batch in read_topic(topic, bootstrap))


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
