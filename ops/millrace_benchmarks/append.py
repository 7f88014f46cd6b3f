"""`millrace bench append`: the log alone, no network, beside bare `os.write` of the same bytes to a new file.

Both write to the page cache of the same folder, in turn, and neither syncs. A log reads every byte once more than
`os.write` does, for its CRC-32C; the second yardstick does so, too, and is the upper bound of an append's rate.
"""

from __future__ import annotations

import os
import resource
import shutil
import time
from functools import partial
from pathlib import Path

from millrace.clock import SystemClock
from millrace.descriptor_pool import PooledFileSystem, file_limit
from millrace.fs import OsFileSystem
from millrace.records.checksum import crc32c
from millrace.records.record import NewRecord, encode_batch
from millrace_benchmarks.harness import MEGABYTE, Figure, alternate
from millrace_broker.storage import Log, LogConfig, TopicPartition

BATCHES = (("1 MB", MEGABYTE, 500), ("16 KB", 16_384, 20_000))
ROUNDS = 5
VALUE_BYTES = 1000
MAX_CONNECTIONS = 10_000  # a broker's default


def run(place: Path) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    return [figure for batches in BATCHES for figure in append_figures(place, *batches)]


def append_figures(directory: Path, name: str, size_bytes: int, count: int) -> list[Figure]:
    """Measures appends of `count` batches of about `size_bytes`, in MB/s, beside both yardsticks."""
    batch = encode_batch([NewRecord(bytes(VALUE_BYTES))] * (size_bytes // (VALUE_BYTES + 12)))

    def append() -> float:
        folder = directory / "bench-0"
        folder.mkdir()
        log = Log(broker_files(), SystemClock(), str(folder), TopicPartition("bench", 0), LogConfig())
        started = time.perf_counter()
        for _ in range(count):
            log.append(batch, leader_epoch=0)
        seconds = time.perf_counter() - started
        log.abandon()
        shutil.rmtree(folder)
        return count * len(batch) / seconds / MEGABYTE

    def write(*, checked: bool) -> float:
        file, view = directory / "bare", memoryview(batch)
        fd = os.open(file, os.O_WRONLY | os.O_CREAT)
        started = time.perf_counter()
        for _ in range(count):
            if checked:
                crc32c(view)
            os.write(fd, view)
        seconds = time.perf_counter() - started
        os.close(fd)
        file.unlink()
        return count * len(batch) / seconds / MEGABYTE

    rate, bare, bare_checked = alternate(ROUNDS, append, partial(write, checked=False), partial(write, checked=True))
    beside = partial(Figure, value=rate, unit="MB/s")
    return [
        beside(name=f"append, {name} batches", yardstick="os.write", yardstick_value=bare),
        beside(name="the same", yardstick="CRC-32C and os.write", yardstick_value=bare_checked),
    ]


def broker_files() -> PooledFileSystem:
    """Returns the file system as a broker has it on this machine, the limit of open files raised as a broker does."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return PooledFileSystem(OsFileSystem(), file_limit(hard, MAX_CONNECTIONS))
