"""When a segment is rolled by age, how its room is taken, and what is flushed when."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.errors import StorageError
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import Log, LogConfig, LogManager, TopicPartition
from millrace_broker.storage.log.log_segments import Rolling
from millrace_broker.storage.segments.segment import LogSegment
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

OpenLog = Callable[..., Log]
NOW_MS = 1_700_000_000_000


def batch(timestamp_ms: int = NOW_MS, count: int = 1) -> bytes:
    return encode_batch([NewRecord(b"value", timestamp_ms=timestamp_ms)] * count)


class CountingFileSystem(OsFileSystem):
    """Counts the syncs of `.log` files."""

    def __init__(self) -> None:
        self.syncs = 0
        self._logs: set[int] = set()

    def open(self, path: str, *, create: bool = False) -> int:
        fd = super().open(path, create=create)
        (self._logs.add if path.endswith(".log") else self._logs.discard)(fd)
        return fd

    def fsync(self, fd: int) -> None:
        self.syncs += fd in self._logs
        super().fsync(fd)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def fs() -> CountingFileSystem:
    return CountingFileSystem()


@pytest.fixture
def open_log(tmp_path: Path, fs: CountingFileSystem, clock: ManualClock) -> OpenLog:
    def open_log(partition: int = 0, **settings: object) -> Log:
        folder = tmp_path / str(partition)
        folder.mkdir(exist_ok=True)
        config = LogConfig(**settings)  # type: ignore[arg-type]
        return Log(fs, clock, str(folder), TopicPartition("t", partition), config)

    return open_log


def rolled_after(log: Log, step_ms: int, limit_ms: int) -> int:
    """The age of the first record, in steps, at which the segment is rolled."""
    for age_ms in range(0, limit_ms + 2 * step_ms, step_ms):
        log.append(batch(NOW_MS + age_ms), leader_epoch=0)
        if len(log.segments) == 2:
            return age_ms
    raise AssertionError("never rolled")


def test_jitter_spreads_the_rolls_of_partitions(open_log: OpenLog) -> None:
    ages = [rolled_after(open_log(number, segment_ms=1000, segment_jitter_ms=600), 20, 1000) for number in range(12)]
    assert all(400 <= age <= 1020 for age in ages)
    assert len(set(ages)) > 4
    assert rolled_after(open_log(99, segment_ms=1000), 20, 1000) == 1020


def test_jitter_is_drawn_anew_for_each_segment_and_repeatable(tmp_path: Path, clock: ManualClock) -> None:
    def draws() -> list[bool]:
        segment = LogSegment(OsFileSystem(), str(tmp_path), 0, config)
        segment.size_bytes, segment.first_timestamp = 1, NOW_MS
        rolling, due = Rolling(clock, config, seed="t-0"), []
        for _ in range(20):
            rolling.begin(segment)
            due.append(rolling.is_due(segment, 1, 1, NOW_MS + 700))
        segment.release()
        return due

    config = LogConfig(segment_ms=1000, segment_jitter_ms=600)
    assert draws() == draws()
    assert set(draws()) == {True, False}


def test_records_without_a_time_age_by_the_clock(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(segment_ms=1000)
    log.append(batch(-1), leader_epoch=0)
    clock.advance(1000)
    log.append(batch(-1), leader_epoch=0)
    assert len(log.segments) == 1
    clock.advance(1)
    log.append(batch(-1), leader_epoch=0)
    assert len(log.segments) == 2


def test_preallocation_takes_room_and_gives_back_what_was_not_used(open_log: OpenLog, tmp_path: Path) -> None:
    probe = tmp_path / "probe"
    with probe.open("wb") as file:
        OsFileSystem().reserve(file.fileno(), 1 << 20)
    room = probe.stat().st_blocks
    log = open_log(preallocate=True, segment_bytes=1 << 20)
    path = tmp_path / "0" / f"{0:020d}.log"
    assert (path.stat().st_size, path.stat().st_blocks) == (0, room)
    log.append(batch(), leader_epoch=0)
    assert path.stat().st_size == len(batch())
    log.close()
    assert (path.stat().st_size, path.stat().st_blocks <= 8) == (len(batch()), True)


def test_a_segment_for_which_there_is_no_room_is_not_begun() -> None:
    fs = CrashFileSystem(capacity_bytes=2500)
    fs.mkdir("/t-0")
    config = LogConfig(preallocate=True, segment_bytes=1000)
    log = Log(fs, ManualClock(), "/t-0", TopicPartition("t", 0), config)

    def fill() -> None:
        while len(log.segments) < 4:
            log.append(batch(), leader_epoch=-1)

    with pytest.raises(StorageError, match="No space left"):
        fill()
    end, open_files = log.log_end_offset, fs.open_files
    with pytest.raises(StorageError, match="No space left"):
        fill()
    assert fs.open_files == open_files
    fs.capacity_bytes = None
    assert log.append(batch(), leader_epoch=-1).first_offset == end
    assert log.verify().findings == ()


@pytest.mark.parametrize(("messages", "count", "expected"), [(1, 1, 30), (10, 1, 3), (10, 4, 10), (1 << 40, 1, 0)])
def test_messages_bound_what_a_crash_may_cost(
    open_log: OpenLog, fs: CountingFileSystem, messages: int, count: int, expected: int
) -> None:
    log = open_log(flush_messages=messages)
    for _ in range(30):
        log.append(batch(count=count), leader_epoch=0)
        assert log.log_end_offset - log.recovery_point < messages
    assert fs.syncs == expected


def test_time_bounds_what_a_crash_may_cost(tmp_path: Path, fs: CountingFileSystem, clock: ManualClock) -> None:
    logs = LogManager(fs, clock, [str(tmp_path)], {"log.flush.interval.ms": "1000"}, "cluster", 1)
    logs.start()
    busy, idle = (
        logs.create(TopicPartition(name, 0), uuid.UUID(int=number), {}) for number, name in enumerate(("busy", "idle"))
    )
    for _ in range(50):
        busy.append(batch(), leader_epoch=0)
        clock.advance(100)
        logs.flush_due()
    assert fs.syncs == 5
    assert busy.recovery_point == 50
    assert idle.recovery_point == 0
    logs.close()
