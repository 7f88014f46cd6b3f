"""Segments of clients of 0.8 and 0.9, whose messages have no times: they go by when their file was last written."""

import os
from pathlib import Path

import pytest

from millrace.descriptor_pool import PooledFileSystem
from millrace.fs import FileSystem, OsFileSystem
from millrace.records.convert import up_convert
from millrace.records.message_set import encode_message_set
from millrace.records.record import NewRecord, Record, encode_batch
from millrace.testing.clock import ManualClock
from millrace_broker.storage import Log, LogConfig, TopicPartition

NOW_MS = 1_700_000_000_000
DAY_MS = 24 * 3600 * 1000
OLD = "older than retention.ms"
V0 = up_convert(encode_message_set([Record(0, -1, None, b"v" * 50, ())], magic=0), first_offset=0)


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
    assert log.segment_count == 4
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
