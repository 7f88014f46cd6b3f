"""`millrace bench storage`: the log storage engine alone, no network, each figure beside that of a bare system call.

| figure | yardstick of the same run |
|---|---|
| append of 1 MB and of 16 KB batches | `os.write` of the same bytes to a new file, without and with their CRC-32C |
| sequential read by `Log.read` | `os.pread` of the same file in the same steps |
| a random offset's batch, among 1,000 segments | `os.pread` of as many bytes at random positions |
| a start with 10,000 partitions, each with a closed segment | opening, sizing and closing the same files |
| a stop with as many partitions, nothing to sync; their memory | none |
| recovery of a log that was not synced | `os.pread` of the same file from the page cache |

Everything is in the page cache, and only the log itself syncs. Files are opened as a broker opens them, with as many
descriptors as it would have.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from millrace.clock import SystemClock
from millrace.records.batch import read_header
from millrace.records.record import NewRecord, encode_batch
from millrace_benchmarks.append import append_figures, broker_files
from millrace_benchmarks.harness import MEGABYTE, Figure, alternate, per_second
from millrace_broker.storage import Log, LogConfig, LogManager, TopicPartition
from millrace_broker.storage.filenames import CLEAN_SHUTDOWN, SEGMENT_SUFFIXES

ROUNDS = 5
VALUE_BYTES = 1000
READ_BYTES = 1 << 20
LOG_BYTES = 400 * MEGABYTE
SEGMENTS = 1000
BATCHES_PER_SEGMENT = 100
LOOKUPS = 20_000
PARTITIONS = 10_000
FOLDER = "bench-0"
PREAD = "os.pread, 1 MiB"


def run(place: Path) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    figures = [*append_figures(place, "1 MB", MEGABYTE, 500), *_small_appends(place)]
    for measure in (
        _sequential_read,
        _look_up,
        partial(_recovery, name="16 KB", size_bytes=16_384),
        partial(_recovery, name="1 MB", size_bytes=MEGABYTE),
        _many_partitions,
    ):
        figures += measure(place)
        shutil.rmtree(place / "logs")
    return figures


def _small_appends(place: Path) -> list[Figure]:
    figures = append_figures(place, "16 KB", 16_384, 20_000)
    batches = figures[0].value * MEGABYTE / len(_batch(16_384))
    return [*figures, Figure(name="the same in batches", value=batches, unit="batches/s")]


def _sequential_read(place: Path) -> list[Figure]:
    batch = _batch(16_384)
    log = _filled_log(place, batch, LOG_BYTES)
    records = read_header(batch).record_count

    def read() -> None:
        offset, end = 0, log.log_end_offset
        while offset < end:
            offset += len(log.read(offset, READ_BYTES, up_to_offset=end)) // len(batch) * records

    megabytes = log.size_bytes / MEGABYTE
    read_rate, bare_rate = alternate(
        ROUNDS, per_second(megabytes, read), per_second(megabytes, lambda: _pread_all(place))
    )
    log.abandon()
    return [Figure(name="sequential read", value=read_rate, unit="MB/s", yardstick=PREAD, yardstick_value=bare_rate)]


def _look_up(place: Path) -> list[Figure]:
    batch = _batch(VALUE_BYTES)
    log = _filled_log(
        place,
        batch,
        SEGMENTS * BATCHES_PER_SEGMENT * len(batch),
        LogConfig(segment_bytes=BATCHES_PER_SEGMENT * len(batch)),
    )
    log.flush()
    end = log.log_end_offset
    offsets = [random.randrange(end) for _ in range(LOOKUPS)]  # noqa: S311 - no secret
    fds = [os.open(path, os.O_RDONLY) for path in _segments(place)]

    def look_up() -> float:
        started = time.perf_counter()
        for offset in offsets:
            log.read(offset, 1, up_to_offset=end)
        return (time.perf_counter() - started) / LOOKUPS * 1e6

    def bare() -> float:
        size = len(batch)
        started = time.perf_counter()
        for offset in offsets:
            os.pread(fds[offset // BATCHES_PER_SEGMENT], size, offset % BATCHES_PER_SEGMENT * size)
        return (time.perf_counter() - started) / LOOKUPS * 1e6

    microseconds, bare_microseconds = alternate(ROUNDS, look_up, bare)
    for fd in fds:
        os.close(fd)
    name = f"read of a random offset, {len(log.segments)} segments"
    log.abandon()
    return [Figure(name=name, value=microseconds, unit="us", yardstick="os.pread", yardstick_value=bare_microseconds)]


def _recovery(place: Path, name: str, size_bytes: int) -> list[Figure]:
    log = _filled_log(place, _batch(size_bytes), LOG_BYTES)
    megabytes = log.size_bytes / MEGABYTE
    log.abandon()
    recovered, bare_rate = alternate(
        ROUNDS,
        per_second(megabytes, lambda: _open_log(place, LogConfig()).abandon()),
        per_second(megabytes, lambda: _pread_all(place)),
    )
    name = f"recovery, {name} batches"
    return [Figure(name=name, value=recovered, unit="MB/s", yardstick=PREAD, yardstick_value=bare_rate)]


def _many_partitions(place: Path) -> list[Figure]:
    _closed_partitions(place, PARTITIONS)
    runs: list[tuple[float, float, float]] = []

    def start() -> float:
        (place / "logs" / CLEAN_SHUTDOWN).touch()
        # In a new process, only the partitions add to the memory.
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            runs.append(process.submit(_start_and_stop, str(place / "logs")).result())
        return runs[-1][0]

    def bare() -> float:
        started = time.perf_counter()
        for folder in os.scandir(place / "logs"):
            if folder.is_dir():
                for file in os.scandir(folder):
                    if file.name.endswith(SEGMENT_SUFFIXES):
                        fd = os.open(file, os.O_RDWR)
                        os.fstat(fd)
                        os.close(fd)
        return time.perf_counter() - started

    seconds, bare_seconds = alternate(3, start, bare)
    _, stop_seconds, mebibytes = map(statistics.median, zip(*runs, strict=True))
    name = f"start with {PARTITIONS} partitions of 2 segments"
    return [
        Figure(name=name, value=seconds, unit="s", yardstick="open, fstat, close", yardstick_value=bare_seconds),
        Figure(name="their memory", value=mebibytes, unit="MiB"),
        Figure(name="their stop", value=stop_seconds, unit="s"),
    ]


def _start_and_stop(directory: str) -> tuple[float, float, float]:
    """Returns the seconds of a start, the seconds of a stop, and the MiB of memory that the start took."""
    manager = LogManager(broker_files(), SystemClock(), [directory], {}, "bench", 1)
    before_bytes, started = _resident_bytes(), time.perf_counter()
    manager.start()
    start_seconds, memory_bytes = time.perf_counter() - started, _resident_bytes() - before_bytes
    started = time.perf_counter()
    manager.close()
    return start_seconds, time.perf_counter() - started, memory_bytes / (1 << 20)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _batch(size_bytes: int) -> bytes:
    return encode_batch([NewRecord(bytes(VALUE_BYTES))] * max(size_bytes // (VALUE_BYTES + 12), 1))


def _open_log(place: Path, config: LogConfig) -> Log:
    return Log(broker_files(), SystemClock(), str(place / "logs" / FOLDER), TopicPartition("bench", 0), config)


def _filled_log(place: Path, batch: bytes, size_bytes: int, config: LogConfig | None = None) -> Log:
    (place / "logs" / FOLDER).mkdir(parents=True)
    log = _open_log(place, config or LogConfig())
    for _ in range(size_bytes // len(batch)):
        log.append(batch, leader_epoch=0)
    return log


def _segments(place: Path) -> list[Path]:
    return sorted((place / "logs" / FOLDER).glob("*.log"))


def _pread_all(place: Path) -> None:
    for path in _segments(place):
        fd = os.open(path, os.O_RDONLY)
        position = 0
        while chunk := os.pread(fd, READ_BYTES, position):
            position += len(chunk)
        os.close(fd)


def _closed_partitions(place: Path, count: int) -> None:
    """Makes a partition with a closed and an active segment, as the log leaves it, and copies of it."""
    batch = _batch(16_384)
    log = _filled_log(place, batch, 2 * 8 * len(batch), LogConfig(segment_bytes=8 * len(batch)))
    log.close()
    template = {path.name: path.read_bytes() for path in (place / "logs" / FOLDER).iterdir()}
    for partition in range(1, count):
        folder = place / "logs" / f"bench-{partition}"
        folder.mkdir()
        for name, content in template.items():
            (folder / name).write_bytes(content)
