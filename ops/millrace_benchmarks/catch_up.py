"""How fast a follower that was away copies what it has missed, beside what the disk takes.

A follower stops, records of 1 KB are produced, and the follower starts again. Its rate is counted from its first new
byte to its last one, by the sizes of its files; the leader's other follower stays in sync. The leader's files are then
copied to one file, with a sync at the end: leader and follower share a disk, too, which is read and written at the same
time. As many bytes are also only written, in steps of 1 MiB, without and with a sync, and past the page cache
(O_DIRECT).
"""

from __future__ import annotations

import mmap
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from millrace.errors import ClientError
from millrace_benchmarks.cluster import IDS, TIMEOUT_S, Broker, ClusterSubject
from millrace_benchmarks.harness import GIGABYTE, MEGABYTE, Samples
from millrace_benchmarks.librdkafka import PRODUCER, Client
from millrace_benchmarks.subjects import processor_time

VALUE_BYTES = 1024
STEP_BYTES = 1 << 20
POLL_INTERVAL_S = 0.005


def catch_up(subject: ClusterSubject, topic: str, settings: dict[str, str], values: bytes, count: int) -> Samples:
    """Returns the bytes that the follower copied, their MB/s, and the processor seconds of both brokers for a GB.

    `file copy` is the MB/s of a copy of the leader's files.
    """
    subject.create_topic(topic)
    leader = subject.leader(topic)
    follower = subject.brokers[next(one for one in IDS if one != leader)]
    follower.stop()
    subject.await_in_sync(topic, len(IDS) - 1)
    with Client(PRODUCER, settings | {"bootstrap.servers": subject.bootstrap}) as client:
        client.produce(topic, values, VALUE_BYTES, count)
    copied = _copy(subject.brokers[leader], follower, topic)
    subject.await_in_sync(topic)
    return copied | {"file copy": _copy_rate(_log_files(subject.brokers[leader], topic))}


def _copy(leader: Broker, follower: Broker, topic: str) -> Samples:
    """Starts the follower, and measures from its first new byte until nothing is missing."""
    size_bytes = _log_bytes(leader, topic)
    with ThreadPoolExecutor(1) as thread:
        starting = thread.submit(follower.start)
        _await_bytes(follower, topic, 1)
        started, before = time.perf_counter(), [processor_time(one.pid) for one in (leader, follower)]
        _await_bytes(follower, topic, size_bytes)
        seconds = time.perf_counter() - started
        spent = [processor_time(one.pid) - was for one, was in zip((leader, follower), before, strict=True)]
        starting.result()
    gigabytes = size_bytes / GIGABYTE
    return {
        "bytes": size_bytes, "rate": 1000 * gigabytes / seconds,
        "leader": spent[0] / gigabytes, "follower": spent[1] / gigabytes,
    }  # fmt: skip


def _await_bytes(broker: Broker, topic: str, size_bytes: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while _log_bytes(broker, topic) < size_bytes:
        if time.monotonic() > deadline:
            raise ClientError(f"the follower of {topic} has not caught up")
        time.sleep(POLL_INTERVAL_S)


def _log_bytes(broker: Broker, topic: str) -> int:
    return sum(file.stat().st_size for file in _log_files(broker, topic))


def _log_files(broker: Broker, topic: str) -> list[Path]:
    return sorted((broker.data_dir / f"{topic}-0").glob("*.log"))


def _copy_rate(files: Sequence[Path]) -> float:
    """Returns the MB/s of a copy of files to one beside them, in steps of 1 MiB, with a sync at the end."""
    started, copy = time.perf_counter(), files[0].with_suffix(".copy")
    with copy.open("wb", buffering=0) as out:
        for file in files:
            with file.open("rb", buffering=0) as source:
                shutil.copyfileobj(source, out, STEP_BYTES)
        os.fsync(out.fileno())
    seconds, copied_bytes = time.perf_counter() - started, copy.stat().st_size
    copy.unlink()
    return copied_bytes / MEGABYTE / seconds


def disk_rates(directory: Path, size_bytes: int) -> Samples:
    """Returns the MB/s of writing a new file: without a sync, with one, and past the page cache if that is served."""
    file, blocks = directory / "disk", max(size_bytes // STEP_BYTES, 1)
    written = blocks * STEP_BYTES / MEGABYTE
    block = mmap.mmap(-1, STEP_BYTES)  # at the start of a page, as writing past the page cache asks for
    block.write(os.urandom(STEP_BYTES))
    started = time.perf_counter()
    with file.open("wb", buffering=0) as out:
        for _ in range(blocks):
            out.write(block)
        written_s = time.perf_counter() - started
        os.fsync(out.fileno())
    rates = {"written": written / written_s, "synced": written / (time.perf_counter() - started)}
    file.unlink()
    with suppress(OSError):  # a file system in memory does not serve it
        rates["direct"] = written / _direct_s(file, block, blocks)
    file.unlink(missing_ok=True)
    return rates


def _direct_s(file: Path, block: mmap.mmap, blocks: int) -> float:
    started = time.perf_counter()
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    try:
        for _ in range(blocks):
            os.write(out, block)
    finally:
        os.close(out)
    return time.perf_counter() - started
