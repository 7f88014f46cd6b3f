"""`millrace bench produce`: librdkafka, and bare requests from C, produce to Millrace and to its peer in turn.

    --peer mock     librdkafka's own C mock broker in the client's process; it keeps nothing, so its rate is the upper
                    bound of this client on this machine
    --peer kafka    Apache Kafka; see `subjects`

Every round has its own topic, and before it a file of the log's size is written and deleted: so the log goes to memory
that the machine has just used, as on a machine that has been up for a while. (A virtual machine's first touch of a page
can cost more than all the rest.) Other figures are how long a broker takes until it is ready, its memory, and the
processor time that it takes for a gigabyte and for a million requests.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.errors import ClientError
from millrace_benchmarks import raw
from millrace_benchmarks.harness import GIGABYTE, Comparison, Figure, Samples, alternate, per_second
from millrace_benchmarks.librdkafka import BULK_SETTINGS, PRODUCER, Client
from millrace_benchmarks.payloads import text
from millrace_benchmarks.raw import RawLoad
from millrace_benchmarks.subjects import Peer, Subject, millrace, pinned, subjects

MOCK = BULK_SETTINGS | {"test.mock.num.brokers": "1"}
LOADS = ((100, 2_000_000), (1024, 500_000))
CODECS = ("none", "lz4")


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


def run(place: Path, peer: Peer | None = None) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    if peer in (None, Peer.MOCK):
        return [_ready(place), *_beside_mock(place)]
    with subjects(place, peer) as brokers:
        return list(_beside_kafka(Comparison(brokers, ROUNDS, "produce")))


def _ready(place: Path) -> Figure:
    def start() -> float:
        with millrace(place, "ready") as broker:
            return broker.ready_s

    (seconds,) = alternate(STARTS, start)
    return Figure(name="broker ready, standalone", value=seconds, unit="s")


def _beside_mock(place: Path) -> list[Figure]:
    with millrace(place) as ours:
        figures = [Figure(name="memory, idle", value=ours.resident_mebibytes, unit="MiB")]
        figures += [_mock_figure(Comparison([ours], ROUNDS, f"mock-{load[0]}"), *load) for load in LOADS]
        figures.append(Figure(name="memory, after the load", value=ours.resident_mebibytes, unit="MiB"))
    return figures


def _mock_figure(comparison: Comparison[Subject], size_bytes: int, count: int) -> Figure:
    (ours,) = comparison.subjects
    values = text(size_bytes * DISTINCT_VALUES)
    rate, mock_rate = alternate(
        ROUNDS,
        lambda: produce_once(ours, comparison.new_topic(), {}, size_bytes, count)["rate"],
        lambda: _produce(MOCK, "mock", values, size_bytes, count),
    )
    return Figure(
        name=f"librdkafka produce, {size_bytes} B, acks=all", value=rate, unit="records/s",
        yardstick="librdkafka's mock broker", yardstick_value=mock_rate,
    )  # fmt: skip


def _beside_kafka(comparison: Comparison[Subject]) -> Iterator[Figure]:
    def figure_of_all(name: str, unit: str, of: Callable[[Subject], float], at_most: float | None = None) -> Figure:
        measured = [{name: of(subject)} for subject in comparison.subjects]
        return comparison.figure(name, unit, name, measured, at_most=at_most)

    yield figure_of_all("ready after start", "s", lambda one: one.ready_s)
    yield figure_of_all("memory, idle", "MiB", lambda one: one.resident_mebibytes)
    for (size_bytes, count), codec in itertools.product(LOADS, CODECS):
        yield from _library_figures(comparison, codec, size_bytes, count)
    for load in RAW_LOADS:
        yield from _raw_figures(comparison, load)
    yield figure_of_all("memory, after the load", "MiB", lambda one: one.resident_mebibytes, at_most=1 / 6)


def _library_figures(comparison: Comparison[Subject], codec: str, size_bytes: int, count: int) -> Iterator[Figure]:
    settings = {"compression.type": codec}
    measured = comparison.measure(lambda one, topic: produce_once(one, topic, settings, size_bytes, count))
    name = f"librdkafka produce, {size_bytes} B" + (f", {codec}" if codec != "none" else "")
    yield comparison.figure(name, "records/s", "rate", measured, at_least=1.1)
    yield comparison.figure("· broker CPU for a GB of values", "s", "cpu", measured, at_most=1.0)


def _raw_figures(comparison: Comparison[Subject], load: RawLoad) -> Iterator[Figure]:
    measured = comparison.measure(lambda one, topic: send_raw(one, topic, load))
    yield comparison.figure(f"raw, {load.name}", "requests/s", "rate", measured, at_least=load.goal)
    yield comparison.figure("· broker CPU for a million requests", "s", "cpu", measured)


def send_raw(subject: Subject, topic: str, load: RawLoad) -> Samples:
    """Sends a load to a new topic; returns the requests a second, and the broker's processor time for a million."""
    frame = raw.produce_frame(topic, 0, text(RAW_VALUE_BYTES), load.records)
    _touch_memory(subject.data_dir.parent / "touched", len(frame) * load.requests)
    subject.create_topic(topic)
    result = raw.produce(subject, topic, [frame], requests=load.requests, in_flight=load.in_flight)
    _check_and_delete(subject, topic, load.records * load.requests)
    return result.samples


def produce_once(subject: Subject, topic: str, settings: Mapping[str, str], size_bytes: int, count: int) -> Samples:
    """Produces to a new topic; returns the records a second, and the broker's processor time for a GB of values."""
    _touch_memory(subject.data_dir.parent / "touched", size_bytes * count)
    values = text(size_bytes * DISTINCT_VALUES)
    before = subject.cpu_s
    rate = _produce({**BULK_SETTINGS, **subject.client_settings, **settings}, topic, values, size_bytes, count)
    cpu_s = subject.cpu_s - before
    _check_and_delete(subject, topic, count + 1)
    return {"rate": rate, "cpu": cpu_s * GIGABYTE / (size_bytes * count)}


def _touch_memory(file: Path, size_bytes: int) -> None:
    block = bytes(1 << 20)
    with file.open("wb") as touched:
        for _ in range(size_bytes // len(block)):
            touched.write(block)
    file.unlink()


def _produce(settings: dict[str, str], topic: str, values: bytes, size_bytes: int, count: int) -> float:
    with pinned(), Client(PRODUCER, settings) as client:
        client.produce(topic, values, size_bytes, 1)
        return per_second(count, lambda: client.produce(topic, values, size_bytes, count))()


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
