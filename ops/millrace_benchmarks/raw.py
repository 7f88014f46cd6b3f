"""The bare protocol from C (`raw_load.c`), for figures that a client library hides: latency, the cost of a request."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from millrace.addresses import parse_address
from millrace.errors import ClientError, SetupError, error_name
from millrace.records.record import NO_PRODUCER, BatchProducer, NewRecord, encode_batch
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, encode
from millrace.wire.frame import framed
from millrace.wire.header import encode_request_header
from millrace_benchmarks.harness import Samples
from millrace_benchmarks.subjects import Subject, pinned

SOURCE = Path(__file__).with_name("raw_load.c")
PRODUCE_VERSION = 9
CLIENT_ID = "bench"
PRODUCER_ID = 1_000_000
TIMEOUT_S = 300


class RawLoad(NamedTuple):
    """Bare requests, each with `records` records of 100 B; the goal is for their rate beside another broker's."""

    name: str
    records: int
    requests: int
    in_flight: int
    goal: float | None = None


@dataclass(frozen=True, slots=True)
class RawResult:
    """What one run of the program measured."""

    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    p999_us: float
    cpu_s: float

    @property
    def samples(self) -> Samples:
        """The requests a second, and the broker's processor time for one in µs: for a million in seconds."""
        return {"rate": self.requests / self.seconds, "cpu": 1e6 * self.cpu_s / self.requests}


@functools.cache
def _program() -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SetupError("this benchmark needs a C compiler: the program cc, in Debian's package gcc")
    program = Path(tempfile.mkdtemp(prefix="millrace-bench-"), "raw_load")
    subprocess.run([compiler, "-O2", "-o", str(program), str(SOURCE)], check=True)
    return str(program)


def produce_frame(
    topic: str, partition: int, value: bytes, records: int = 1, producer: BatchProducer = NO_PRODUCER
) -> bytes:
    """Returns a Produce request with one batch, acks=all."""
    batch = encode_batch([NewRecord(value)] * records, producer=producer)
    fields = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 30_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    }
    header = encode_request_header(ApiKey.PRODUCE, PRODUCE_VERSION, 0, CLIENT_ID)
    return framed(header, encode(ApiKey.PRODUCE, PRODUCE_VERSION, Direction.REQUEST, fields))


def idempotent_frames(topic: str, value: bytes, records: int, count: int) -> list[bytes]:
    """Returns `count` Produce requests of one producer, in the order of their sequences; each can be sent once."""
    return [
        produce_frame(topic, 0, value, records, BatchProducer(PRODUCER_ID, 0, number * records))
        for number in range(count)
    ]


def produce_frames(topic: str, partitions: int, value: bytes) -> list[bytes]:
    """Returns a Produce request with one record for each partition; they differ only in the partition's index."""
    frame = produce_frame(topic, 0, value)
    position = frame.index(topic.encode()) + len(topic) + 1  # the number of partitions in the request lies between
    return [frame[:position] + index.to_bytes(4, "big") + frame[position + 4 :] for index in range(partitions)]


def produce(
    subject: Subject, topic: str, frames: Sequence[bytes], *, requests: int, in_flight: int = 1, connections: int = 1
) -> RawResult:
    """Sends the frames in turn, from the client's core, until `requests` are answered.

    Raises ClientError where one was refused.
    """
    host, port = parse_address(subject.bootstrap)
    # correlation id, tagged fields, one topic, its name, one partition, its index: then the error code
    error_position = 4 + 1 + 1 + 1 + len(topic) + 1 + 4
    with tempfile.NamedTemporaryFile(prefix="millrace-bench-") as file, pinned():
        file.writelines(frames)
        file.flush()
        arguments = (host, port, connections, in_flight, requests, file.name, error_position)
        before = subject.cpu_s
        result = subprocess.run(
            [_program(), *map(str, arguments)], stdout=subprocess.PIPE, check=False, timeout=TIMEOUT_S, text=True
        )
        cpu_s = subject.cpu_s - before
    if result.returncode:
        raise ClientError(f"raw_load against {subject.name} ended with {result.returncode}")
    measured = json.loads(result.stdout)
    if error := measured.pop("first_error"):
        raise ClientError(f"{subject.name} refused requests: {error_name(error)}")
    return RawResult(requests, **measured, cpu_s=cpu_s)
