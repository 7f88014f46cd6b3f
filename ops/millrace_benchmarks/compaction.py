"""`millrace bench compaction`: one pass over records of 1 KB, beside bare reads and writes of as many bytes.

Half of the records are superseded. A pass reads the log twice, once for the keys and once to copy what stays; so does
the yardstick, which then writes and syncs half of it. Rates are in bytes of the log before the pass. The latency of
appends and fetches on one thread, while a pass runs on another, shows the effect on clients: p50, p99 and p99.9 beside
those of the same log at rest.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_benchmarks.harness import MEGABYTE, Figure, alternate, percentiles
from millrace_broker.storage import CleanerConfig, Log, LogCleaner, LogManager, TopicPartition

VALUE_BYTES = 1000
BATCH_RECORDS = 16
RECORDS = 128_000
KEYS = RECORDS // 2
SEGMENT_BYTES = 16 << 20
CHUNK_BYTES = 1 << 20
ROUNDS = 3
LATENCY_ROUNDS = 2000
PAUSE_S = 0.001
PROPERTIES = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}


def run(place: Path) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    rate, bare_rate = alternate(ROUNDS, lambda: _compact(place), lambda: _copy(place))
    throughput = Figure(
        name="compaction, 1 KB records", value=rate, unit="MB/s", yardstick="read twice, write half",
        yardstick_value=bare_rate,
    )  # fmt: skip
    return [throughput, *_latencies(place)]


@contextmanager
def _filled(place: Path) -> Iterator[tuple[LogManager, Log]]:
    """Yields a flushed log that has each key twice, and its manager."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        manager = LogManager(OsFileSystem(), SystemClock(), [folder], {}, "bench", 1)
        manager.start()
        log = manager.create(TopicPartition("bench", 0), uuid.uuid4(), PROPERTIES)
        value = os.urandom(VALUE_BYTES)
        for first in range(0, RECORDS, BATCH_RECORDS):
            keys = range(first, first + BATCH_RECORDS)
            records = [NewRecord(value, key=b"key-%d" % (key * 7919 % KEYS)) for key in keys]
            log.append(encode_batch(records), leader_epoch=0)
        log.flush()
        try:
            yield manager, log
        finally:
            log.release_replaced()
            manager.close()


def _compact(place: Path) -> float:
    with _filled(place) as (manager, _):
        cleaner = LogCleaner(OsFileSystem(), SystemClock(), manager, CleanerConfig())
        started = time.perf_counter()
        (report,) = cleaner.run(force=True)
        return report.bytes_before / (time.perf_counter() - started) / MEGABYTE


def _copy(place: Path) -> float:
    source, target = place / "source", place / "target"
    size_bytes = RECORDS * VALUE_BYTES
    source.write_bytes(bytes(size_bytes))
    read_fd = os.open(source, os.O_RDONLY)
    write_fd = os.open(target, os.O_WRONLY | os.O_CREAT)
    started = time.perf_counter()
    for position in range(0, size_bytes, CHUNK_BYTES):
        os.pread(read_fd, CHUNK_BYTES, position)
    for position in range(0, size_bytes, CHUNK_BYTES):
        os.write(write_fd, os.pread(read_fd, CHUNK_BYTES, position)[: CHUNK_BYTES // 2])
    os.fsync(write_fd)
    seconds = time.perf_counter() - started
    os.close(read_fd)
    os.close(write_fd)
    source.unlink()
    target.unlink()
    return size_bytes / seconds / MEGABYTE


def _latencies(place: Path) -> list[Figure]:
    """Measures how long an append and a fetch take while a pass runs, beside the same log at rest."""
    with _filled(place) as (manager, log):
        at_rest = _measure(log, lambda: False)
        cleaner = LogCleaner(OsFileSystem(), SystemClock(), manager, CleanerConfig())
        worker = threading.Thread(target=cleaner.run, kwargs={"force": True})
        worker.start()
        beside = _measure(log, lambda: not worker.is_alive())
        worker.join()
    return [
        Figure(
            name=f"{name} of a {what} while compacting", value=value, unit="µs", yardstick="at rest",
            yardstick_value=percentiles(calm, 1e6)[name],
        )
        for what, busy, calm in zip(("16 KB append", "16 KB fetch"), beside, at_rest, strict=True)
        for name, value in percentiles(busy, 1e6).items()
    ]  # fmt: skip


def _measure(log: Log, is_over: Callable[[], bool]) -> tuple[list[float], list[float]]:
    """Returns the seconds of appends and of fetches at the log's end, a millisecond apart, as requests come."""
    batch = encode_batch([NewRecord(bytes(VALUE_BYTES), key=b"latency")] * BATCH_RECORDS)
    appends: list[float] = []
    fetches: list[float] = []
    while len(appends) < LATENCY_ROUNDS and not is_over():
        time.sleep(PAUSE_S)
        started = time.perf_counter()
        info = log.append(batch, leader_epoch=0)
        appended = time.perf_counter()
        log.read(info.first_offset, CHUNK_BYTES, up_to_offset=log.log_end_offset)
        fetches.append(time.perf_counter() - appended)
        appends.append(appended - started)
    return appends, fetches
