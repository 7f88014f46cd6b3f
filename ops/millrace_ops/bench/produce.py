"""`millrace bench produce`: librdkafka produces to Millrace and, in turn, to librdkafka's own C mock broker.

The mock keeps nothing: it is the most that this client can send on this machine. Every round has a topic of its own,
and before it a file of the log's size is written and deleted: so the log goes to memory that the machine has just
used, as on a machine that has been up for a while. (A virtual machine's first touch of a page can cost more
than all the rest.) Also: how long the broker takes until it serves, and its memory.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.errors import ClientError
from millrace.testing.broker import BrokerProcess
from millrace_ops.bench.figures import Figure, alternate
from millrace_ops.bench.librdkafka import PRODUCER, Client

SETTINGS = {
    "linger.ms": "5",
    "batch.size": "1000000",
    "queue.buffering.max.messages": "1000000",
    "queue.buffering.max.kbytes": "1048576",
    "acks": "all",
    "log_level": "3",
}
MOCK = SETTINGS | {"test.mock.num.brokers": "1"}
LOADS = ((100, 2_000_000), (1024, 500_000))
ROUNDS = 5
DELETE_AT_ONCE = {"log.segment.delete.delay.ms": "0", "log.flush.scheduler.interval.ms": "50"}
DELETE_CHECKS = 200
DELETE_CHECK_INTERVAL_S = 0.05
STARTS = 5


def run() -> list[Figure]:
    """Measure; the figures in the order of the report."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory:
        figures = [_ready(Path(directory, "ready"))]
        with BrokerProcess(Path(directory, "broker"), properties=DELETE_AT_ONCE) as broker:
            figures.append(_memory(broker, "memory, idle"))
            for size_bytes, count in LOADS:
                figures.append(_against_mock(broker, size_bytes, count))
            figures.append(_memory(broker, "memory, after the load"))
    return figures


def _ready(directory: Path) -> Figure:
    def start() -> float:
        started = time.perf_counter()
        with BrokerProcess(directory):
            return time.perf_counter() - started

    (seconds,) = alternate(STARTS, start)
    return Figure(name="broker ready, standalone", value=seconds, unit="s")


def _memory(broker: BrokerProcess, name: str) -> Figure:
    assert broker.admin_url  # all of the broker is up
    status = Path(f"/proc/{broker.pid}/status").read_text(encoding="utf-8")
    kibibytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    return Figure(name=name, value=int(kibibytes) / 1024, unit="MiB")


def _against_mock(broker: BrokerProcess, size_bytes: int, count: int) -> Figure:
    topics = (f"produce-{size_bytes}-{number}" for number in itertools.count())
    settings = SETTINGS | {"bootstrap.servers": broker.bootstrap}

    def to_broker() -> float:
        topic = next(topics)
        _touch_memory(broker.data_dir / "touched", size_bytes * count)
        rate = _rate(settings, topic, size_bytes, count)
        _check_and_delete(broker, topic, count + 1)
        return rate

    rate, mock_rate = alternate(ROUNDS, to_broker, lambda: _rate(MOCK, "mock", size_bytes, count))
    return Figure(
        name=f"librdkafka produce, {size_bytes} B, acks=all",
        value=rate,
        unit="records/s",
        yardstick="librdkafka's mock broker",
        yardstick_value=mock_rate,
    )


def _touch_memory(file: Path, size_bytes: int) -> None:
    block = bytes(1 << 20)
    with file.open("wb") as touched:
        for _ in range(size_bytes // len(block)):
            touched.write(block)
    file.unlink()


def _rate(settings: dict[str, str], topic: str, size_bytes: int, count: int) -> float:
    with Client(PRODUCER, settings) as client:
        client.produce(topic, bytes(size_bytes), 1)
        started = time.perf_counter()
        client.produce(topic, bytes(size_bytes), count)
        return count / (time.perf_counter() - started)


def _check_and_delete(broker: BrokerProcess, topic: str, sent: int) -> None:
    with Cluster(broker.bootstrap) as cluster:
        end = SimpleConsumer(cluster).latest(topic, 0)
        Admin(cluster).delete_topic(topic)
    if end != sent:
        raise ClientError(f"{topic} ends at {end}, {sent} records were acknowledged")
    for _ in range(DELETE_CHECKS):
        if not any(broker.data_dir.glob(f"{topic}-0*")):
            return
        time.sleep(DELETE_CHECK_INTERVAL_S)
    raise ClientError(f"the files of {topic} are still there after its deletion")
