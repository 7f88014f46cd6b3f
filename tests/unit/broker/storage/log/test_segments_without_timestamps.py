"""Segments of clients of 0.8 and 0.9, whose messages have no times: they go by when their file was last written."""

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from millrace.descriptor_pool import PooledFileSystem
from millrace.fs import FileSystem, OsFileSystem
from millrace.records.convert import up_convert
from millrace.records.message_set import encode_message_set
from millrace.records.record import NewRecord, Record, encode_batch
from millrace_broker.storage import (
    CleanerConfig,
    CompactionReport,
    Log,
    LogCleaner,
    LogConfig,
    LogManager,
    TopicPartition,
)
from millrace_broker.storage.log.log_reader import EARLIEST, LATEST
from millrace_support.clock import ManualClock
from millrace_support.log_moves import finish_move

NOW_MS = 1_700_000_000_000
DAY_MS = 24 * 3600 * 1000
OLD = "older than retention.ms"
V0 = up_convert(encode_message_set([Record(0, -1, b"k", b"v" * 50, ())], magic=0), first_offset=0)
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "150", "file.delete.delay.ms": "0"}


@pytest.fixture(params=["plain", "pooled"])
def fs(request: pytest.FixtureRequest) -> FileSystem:
    return OsFileSystem() if request.param == "plain" else PooledFileSystem(OsFileSystem(), 8)


def opened(fs: FileSystem, folder: Path, **config: int | str) -> Log:
    settings = LogConfig(**({"segment_bytes": 150, "retention_ms": 7 * DAY_MS, "retention_bytes": -1} | config))
    return Log(fs, ManualClock(NOW_MS), str(folder), TopicPartition("t", 0), settings)


def written(folder: Path, *ages_ms: int) -> None:
    """Say when the segments were last written, the oldest first."""
    for path, age_ms in zip(sorted(folder.glob("*.log")), ages_ms, strict=True):
        os.utime(path, ns=((NOW_MS - age_ms) * 1_000_000,) * 2)


@pytest.mark.parametrize("is_reopened", [False, True])
def test_they_expire_by_the_time_of_their_file(fs: FileSystem, tmp_path: Path, *, is_reopened: bool) -> None:
    log = opened(fs, tmp_path)
    for _ in range(4):
        log.append(V0, leader_epoch=0)
    assert len(log.segments) == 4
    if is_reopened:
        log.close()
        log = Log(fs, ManualClock(NOW_MS), str(tmp_path), log.topic_partition, log.config, clean=True)
    written(tmp_path, 9 * DAY_MS, 7 * DAY_MS + 1, 7 * DAY_MS, 8 * DAY_MS)
    report = log.apply_retention()
    assert (report.reasons, report.log_start_offset) == ((OLD, OLD), 2)
    log.close()


def test_the_records_own_times_count_where_there_are_any(fs: FileSystem, tmp_path: Path) -> None:
    log = opened(fs, tmp_path)
    log.append(encode_batch([NewRecord(b"v" * 50, timestamp_ms=NOW_MS - DAY_MS)]), leader_epoch=0)
    log.append(V0, leader_epoch=0)
    written(tmp_path, 9 * DAY_MS, 9 * DAY_MS)
    assert log.apply_retention().reasons == ()
    log.close()


def test_without_a_limit_they_stay(fs: FileSystem, tmp_path: Path) -> None:
    log = opened(fs, tmp_path, retention_ms=-1)
    log.append(V0, leader_epoch=0)
    written(tmp_path, 9000 * DAY_MS)
    assert log.apply_retention().reasons == ()
    log.close()


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize(
    ("age_ms", "expected"),
    [
        (4 * DAY_MS + 1, []),
        (4 * DAY_MS, [0]),
        (3 * DAY_MS, [1, 0]),
        (2 * DAY_MS + 1, [1, 0]),
        (DAY_MS, [3, 2, 1, 0]),
        (1, [3, 2, 1, 0]),
        (0, [4, 3, 2, 1, 0]),
        (LATEST, [4, 3, 2, 1, 0]),
        (EARLIEST, [0]),
    ],
)
def test_they_begin_before_a_time_by_that_of_their_file(
    fs: FileSystem, tmp_path: Path, age_ms: int, expected: list[int], *, is_reopened: bool
) -> None:
    log = opened(fs, tmp_path)
    for _ in range(4):
        log.append(V0, leader_epoch=0)
    if is_reopened:
        log.close()
        log = Log(fs, ManualClock(NOW_MS), str(tmp_path), log.topic_partition, log.config, clean=True)
    written(tmp_path, 4 * DAY_MS, 3 * DAY_MS, 2 * DAY_MS, DAY_MS)
    assert log.offsets_before(age_ms if age_ms < 0 else NOW_MS - age_ms, 5) == expected
    log.close()


@pytest.mark.parametrize(("age_ms", "expected"), [(2, []), (1, [0]), (0, [0])])
def test_an_empty_log_begins_when_its_file_was_made(
    fs: FileSystem, tmp_path: Path, age_ms: int, expected: list[int]
) -> None:
    log = opened(fs, tmp_path)
    written(tmp_path, 1)
    assert log.offsets_before(NOW_MS - age_ms, 5) == expected
    assert log.offsets_before(LATEST, 5) == log.offsets_before(EARLIEST, 5) == [0]
    log.close()


def test_the_first_record_of_all_has_their_largest_timestamp(fs: FileSystem, tmp_path: Path) -> None:
    log = opened(fs, tmp_path)
    for _ in range(4):
        log.append(V0, leader_epoch=0)
    assert log.offset_of_max_timestamp() == (-1, 0)
    log.raise_log_start_offset(2)
    assert log.offset_of_max_timestamp() == (-1, 2)
    log.append(encode_batch([NewRecord(b"v", timestamp_ms=0)]), leader_epoch=0)
    assert log.offset_of_max_timestamp() == (0, 4)
    log.close()


class Broker:
    """The logs of a broker of two folders, with one of four segments, written to one day after the other."""

    def __init__(self, fs: FileSystem, folder: Path, **settings: str) -> None:
        self.fs, self.one, self.two = fs, folder / "one" / "t-0", folder / "two" / "t-0"
        self.logs = LogManager(
            fs, ManualClock(NOW_MS), [str(folder / "one"), str(folder / "two")], {}, "c" * 22, broker_id=1
        )
        self.logs.start()
        properties = COMPACT | {name.replace("_", "."): value for name, value in settings.items()}
        self.log = self.logs.create(TopicPartition("t", 0), uuid.UUID(int=1), properties)
        for _ in range(4):
            self.log.append(V0, leader_epoch=0)
        written(self.one, 4 * DAY_MS, 3 * DAY_MS, 2 * DAY_MS, DAY_MS)

    def compact(self) -> CompactionReport:
        (report,) = LogCleaner(self.fs, ManualClock(NOW_MS), self.logs, CleanerConfig()).run(force=True)
        self.logs.release_replaced()
        return report


def ages_ms(folder: Path) -> Sequence[int]:
    """How long ago the segments were written, the oldest first."""
    return [NOW_MS - path.stat().st_mtime_ns // 1_000_000 for path in sorted(folder.glob("*.log"))]


def test_a_compacted_segment_keeps_the_time_of_the_one_it_replaces(fs: FileSystem, tmp_path: Path) -> None:
    broker = Broker(fs, tmp_path)
    assert broker.compact().records_dropped == 2
    assert ages_ms(broker.one) == [4 * DAY_MS, 3 * DAY_MS, 2 * DAY_MS, DAY_MS]
    broker.logs.close()


def test_a_compacted_segment_keeps_the_time_of_the_newest_of_several(fs: FileSystem, tmp_path: Path) -> None:
    broker = Broker(fs, tmp_path)
    broker.log.reconfigure(LogConfig(segment_bytes=10_000, cleanup_policy="compact"))
    assert broker.compact().segments_after == 1
    assert ages_ms(broker.one) == [2 * DAY_MS, DAY_MS]
    broker.logs.close()


def test_compaction_waits_until_their_file_is_old_enough(fs: FileSystem, tmp_path: Path) -> None:
    broker = Broker(fs, tmp_path, min_compaction_lag_ms=str(3 * DAY_MS))
    assert broker.compact().first_dirty_offset == 2
    broker.logs.close()


@pytest.mark.parametrize("is_copied_before", [False, True])
def test_they_keep_their_times_in_another_folder(fs: FileSystem, tmp_path: Path, *, is_copied_before: bool) -> None:
    broker = Broker(fs, tmp_path)
    copy = broker.logs.moves.begin(TopicPartition("t", 0), str(tmp_path / "two"))
    if is_copied_before:
        copy.catch_up(broker.log, 1e300)
    finish_move(broker.logs, TopicPartition("t", 0))
    *moved, _ = ages_ms(broker.two)  # the last one is the active segment, which is new there
    assert moved == [4 * DAY_MS, 3 * DAY_MS, 2 * DAY_MS, DAY_MS]
    broker.logs.close()
