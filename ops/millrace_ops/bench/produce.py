"""`millrace bench produce`: librdkafka produces to Millrace and, in turn, to librdkafka's own C mock broker.

The mock keeps nothing: it is the most that this client can send on this machine. Also: how long the broker
takes until it serves, and its memory when idle and after the load.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

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
STARTS = 5


def run() -> list[Figure]:
    """Measure; the figures in the order of the report."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory:
        figures = [_ready(Path(directory, "ready"))]
        with BrokerProcess(Path(directory, "broker")) as broker:
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
    value = bytes(size_bytes)
    topic = f"produce-{size_bytes}"
    sent = 0

    def produce(settings: dict[str, str]) -> float:
        with Client(PRODUCER, settings) as client:
            client.produce(topic, value, 1)
            started = time.perf_counter()
            client.produce(topic, value, count)
            return count / (time.perf_counter() - started)

    def to_broker() -> float:
        nonlocal sent
        rate = produce(SETTINGS | {"bootstrap.servers": broker.bootstrap})
        sent += count + 1
        return rate

    rate, mock_rate = alternate(ROUNDS, to_broker, lambda: produce(MOCK))
    _check_end_offset(broker, topic, sent)
    return Figure(
        name=f"librdkafka produce, {size_bytes} B, acks=all",
        value=rate,
        unit="records/s",
        yardstick="librdkafka's mock broker",
        yardstick_value=mock_rate,
    )


def _check_end_offset(broker: BrokerProcess, topic: str, sent: int) -> None:
    with Cluster(broker.bootstrap) as cluster:
        end = SimpleConsumer(cluster).latest(topic, 0)
    if end != sent:
        raise ClientError(f"{topic} ends at {end}, {sent} records were acknowledged")
