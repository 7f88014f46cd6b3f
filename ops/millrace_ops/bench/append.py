"""`millrace bench append`: the log alone, no network, beside bare `os.write` of the same bytes to a new file.

Both write to the page cache of the same folder, in turn; no fsync on either side.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_ops.bench.figures import Figure, alternate

MEGABYTE = 1_000_000
BATCHES = (("1 MB", MEGABYTE, 500), ("16 KB", 16_384, 20_000))
ROUNDS = 5
VALUE_BYTES = 1000


def run() -> list[Figure]:
    """Measure; the figures in the order of the report."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory:
        return [append_figure(Path(directory), name, size_bytes, count) for name, size_bytes, count in BATCHES]


def append_figure(directory: Path, name: str, size_bytes: int, count: int) -> Figure:
    """Appends of `count` batches of about `size_bytes`, in MB/s."""
    batch = encode_batch([NewRecord(bytes(VALUE_BYTES))] * (size_bytes // (VALUE_BYTES + 12)))

    def append() -> float:
        folder = directory / "bench-0"
        folder.mkdir()
        log = Log(OsFileSystem(), SystemClock(), str(folder), TopicPartition("bench", 0), LogConfig())
        started = time.perf_counter()
        for _ in range(count):
            log.append(batch, leader_epoch=0)
        seconds = time.perf_counter() - started
        log.abandon()
        shutil.rmtree(folder)
        return count * len(batch) / seconds / MEGABYTE

    def write() -> float:
        file = directory / "bare"
        fd = os.open(file, os.O_WRONLY | os.O_CREAT)
        started = time.perf_counter()
        for _ in range(count):
            os.write(fd, batch)
        seconds = time.perf_counter() - started
        os.close(fd)
        file.unlink()
        return count * len(batch) / seconds / MEGABYTE

    rate, bare_rate = alternate(ROUNDS, append, write)
    return Figure(
        name=f"append, {name} batches", value=rate, unit="MB/s", yardstick="os.write", yardstick_value=bare_rate
    )
