"""`millrace bench produce`: librdkafka, and bare requests from C, produce to Millrace and to its peer in turn.

    --peer mock     librdkafka's own C mock broker in the client's process; it keeps nothing, so its rate is the upper
                    bound of this client on this machine
    --peer kafka    Apache Kafka; see `bench.subjects`

Every round has its own topic, and before it a file of the log's size is written and deleted: so the log goes to memory
that the machine has just used, as on a machine that has been up for a while. (A virtual machine's first touch of a page
can cost more than all the rest.) Other figures are how long a broker takes until it is ready, its memory, and the
processor time that it takes for a gigabyte and for a million requests.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.errors import ClientError
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks import raw
from millrace_benchmarks.figures import GIGABYTE, Figure, Samples, alternate, interleave
from millrace_benchmarks.librdkafka import BULK_SETTINGS, PRODUCER, Client
from millrace_benchmarks.payloads import text
from millrace_benchmarks.subjects import Peer, Subject, apache_kafka, millrace, pinned

MOCK = BULK_SETTINGS | {"test.mock.num.brokers": "1"}
LOADS = ((100, 2_000_000), (1024, 500_000))
CODECS = ("none", "lz4")


class RawLoad(NamedTuple):
    """Bare requests, each with `records` records of 100 B."""

    name: str
    records: int
    requests: int
    in_flight: int
    goal: float | None


RAW_LOADS = (
    RawLoad("1-record requests, 64 in flight", 1, 200_000, 64, 8.0),
    RawLoad("16 KB batches, 16 in flight", 150, 60_000, 16, 3.0),
    RawLoad("1 MB batches, 4 in flight", 9_300, 800, 4, None),
)
PEERS = tuple(Peer)
RAW_VALUE_BYTES = 100
DISTINCT_VALUES = 1000
ROUNDS = 5
DELETE_CHECKS = 1_800  # Kafka deletes nothing in its first half minute
DELETE_CHECK_INTERVAL_S = 0.05
STARTS = 5


def run(peer: Peer | None = None) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory:
        if peer in (None, Peer.MOCK):
            return [_ready(Path(directory, "ready")), *_beside_mock(Path(directory))]
        with millrace(Path(directory)) as ours, apache_kafka(peer, Path(directory)) as theirs:
            return _beside_kafka(ours, theirs)


def _ready(directory: Path) -> Figure:
    def start() -> float:
        started = time.perf_counter()
        with BrokerProcess(directory):
            return time.perf_counter() - started

    (seconds,) = alternate(STARTS, start)
    return Figure(name="broker ready, standalone", value=seconds, unit="s")


def _beside_mock(directory: Path) -> list[Figure]:
    with millrace(directory) as ours:
        figures = [Figure(name="memory, idle", value=ours.resident_mebibytes, unit="MiB")]
        figures += [_mock_figure(ours, size_bytes, count) for size_bytes, count in LOADS]
        figures.append(Figure(name="memory, after the load", value=ours.resident_mebibytes, unit="MiB"))
    return figures


def _mock_figure(ours: Subject, size_bytes: int, count: int) -> Figure:
    topics = _topics()
    values = text(size_bytes * DISTINCT_VALUES)
    rate, mock_rate = alternate(
        ROUNDS,
        lambda: produce_once(ours, next(topics), plain(ours), size_bytes, count)["rate"],
        lambda: _rate(MOCK, "mock", values, size_bytes, count),
    )
    return Figure(
        name=f"librdkafka produce, {size_bytes} B, acks=all",
        value=rate,
        unit="records/s",
        yardstick="librdkafka's mock broker",
        yardstick_value=mock_rate,
    )


def _beside_kafka(ours: Subject, theirs: Subject) -> list[Figure]:
    figures = [
        _beside("ready after start", "s", ours.ready_s, theirs.ready_s, theirs.name),
        _beside("memory, idle", "MiB", ours.resident_mebibytes, theirs.resident_mebibytes, theirs.name),
    ]
    for (size_bytes, count), codec in itertools.product(LOADS, CODECS):
        figures += _library_figures(ours, theirs, codec, size_bytes, count)
    for load in RAW_LOADS:
        figures += _raw_figures(ours, theirs, load)
    memory = ours.resident_mebibytes, theirs.resident_mebibytes
    figures.append(_beside("memory, after the load", "MiB", *memory, theirs.name, at_most=1 / 6))
    return figures


def _beside(
    name: str, unit: str, value: float, other: float, peer: str, *, at_least: float | None = None,
    at_most: float | None = None,
) -> Figure:  # fmt: skip
    return Figure(
        name=name, value=value, unit=unit, yardstick=peer, yardstick_value=other, at_least=at_least, at_most=at_most
    )


def _library_figures(ours: Subject, theirs: Subject, codec: str, size_bytes: int, count: int) -> list[Figure]:
    topics = _topics()

    def measure(subject: Subject) -> Callable[[], Samples]:
        settings = plain(subject) | {"compression.type": codec}
        return lambda: produce_once(subject, next(topics), settings, size_bytes, count)

    mine, other = interleave(ROUNDS, measure(ours), measure(theirs))
    name = f"librdkafka produce, {size_bytes} B" + (f", {codec}" if codec != "none" else "")
    return [
        _beside(name, "records/s", mine["rate"], other["rate"], theirs.name, at_least=1.1),
        _beside("· broker CPU for a GB of values", "s", mine["cpu"], other["cpu"], theirs.name, at_most=1.0),
    ]


def _raw_figures(ours: Subject, theirs: Subject, load: RawLoad) -> list[Figure]:
    topics = _topics()

    def measure(subject: Subject) -> Callable[[], Samples]:
        return lambda: send_raw(subject, next(topics), load)

    mine, other = interleave(ROUNDS, measure(ours), measure(theirs))
    return [
        _beside(f"raw, {load.name}", "requests/s", mine["rate"], other["rate"], theirs.name, at_least=load.goal),
        _beside("· broker CPU for a million requests", "s", mine["cpu"], other["cpu"], theirs.name),
    ]


def send_raw(subject: Subject, topic: str, load: RawLoad) -> Samples:
    """Sends a load to a new topic; returns the requests a second, and the broker's processor time for a million."""
    frame = raw.produce_frame(topic, 0, text(RAW_VALUE_BYTES), load.records)
    _touch_memory(subject.data_dir.parent / "touched", len(frame) * load.requests)
    with Cluster(subject.bootstrap) as cluster:
        Admin(cluster).create_topic(topic, 1)
    with pinned():
        result = raw.produce(subject, topic, [frame], requests=load.requests, in_flight=load.in_flight)
    _check_and_delete(subject, topic, load.records * load.requests)
    return {"rate": load.requests / result.seconds, "cpu": result.cpu_s / load.requests * 1_000_000}


def plain(subject: Subject) -> dict[str, str]:
    """Returns the settings by which a client reaches the listener without security."""
    return {"bootstrap.servers": subject.bootstrap}


def produce_once(subject: Subject, topic: str, settings: Mapping[str, str], size_bytes: int, count: int) -> Samples:
    """Produces to a new topic; returns the records a second, and the broker's processor time for a GB of values."""
    _touch_memory(subject.data_dir.parent / "touched", size_bytes * count)
    values = text(size_bytes * DISTINCT_VALUES)
    before = subject.cpu_s
    rate = _rate({**BULK_SETTINGS, **settings}, topic, values, size_bytes, count)
    cpu_s = subject.cpu_s - before
    _check_and_delete(subject, topic, count + 1)
    return {"rate": rate, "cpu": cpu_s * GIGABYTE / (size_bytes * count)}


def _topics() -> Iterator[str]:
    return (f"produce-{number}" for number in itertools.count())


def _touch_memory(file: Path, size_bytes: int) -> None:
    block = bytes(1 << 20)
    with file.open("wb") as touched:
        for _ in range(size_bytes // len(block)):
            touched.write(block)
    file.unlink()


def _rate(settings: dict[str, str], topic: str, values: bytes, size_bytes: int, count: int) -> float:
    with pinned(), Client(PRODUCER, settings) as client:
        client.produce(topic, values, size_bytes, 1)
        started = time.perf_counter()
        client.produce(topic, values, size_bytes, count)
        return count / (time.perf_counter() - started)


def _check_and_delete(subject: Subject, topic: str, sent: int) -> None:
    with Cluster(subject.bootstrap) as cluster:
        end = SimpleConsumer(cluster).latest(topic, 0)
        Admin(cluster).delete_topic(topic)
    if end != sent:
        raise ClientError(f"{topic} ends at {end}, {sent} records were acknowledged")
    for _ in range(DELETE_CHECKS):
        if not any(subject.data_dir.glob(f"{topic}-0*")):
            return
        time.sleep(DELETE_CHECK_INTERVAL_S)
    raise ClientError(f"the files of {topic} are still there after its deletion")
