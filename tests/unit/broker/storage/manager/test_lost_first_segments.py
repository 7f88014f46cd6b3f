"""First segments of which no file is left are missing where a clean stop has noted where the log began."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import Log, LogManager, TopicPartition
from millrace_broker.storage.checkpoints import write_offsets
from millrace_broker.storage.filenames import LOG_START_OFFSET_CHECKPOINT
from millrace_support.clock import ManualClock

KEY, TOPIC_ID = TopicPartition("t", 0), uuid.UUID(int=7)
BATCH = encode_batch([NewRecord(b"v" * 100, timestamp_ms=1000)])
BATCHES, PER_SEGMENT = 12, 3
SETTINGS = {"log.segment.bytes": str(PER_SEGMENT * len(BATCH))}


def manager(path: Path) -> LogManager:
    return LogManager(OsFileSystem(), ManualClock(), [str(path)], SETTINGS, "cluster", 1)


def deletes_records(log: Log) -> None:
    log.raise_log_start_offset(PER_SEGMENT + 1)


def deletes_segments(log: Log) -> None:
    deletes_records(log)
    log.apply_retention()
    log.remove_deleted()


def keeps_all(_: Log) -> None:
    pass


def filled(path: Path, before: Callable[[Log], None]) -> tuple[LogManager, int]:
    """Returns the logs with one of four segments, and where that begins."""
    logs = manager(path)
    logs.start()
    log = logs.create(KEY, TOPIC_ID, {})
    for _ in range(BATCHES):
        log.append(BATCH, leader_epoch=0)
    log.high_watermark = BATCHES
    before(log)
    return logs, log.log_start_offset


def lose(path: Path, below: int) -> None:
    for file in (path / str(KEY)).iterdir():
        if file.stem.isdigit() and int(file.stem) < below:
            file.unlink()


def forget_starts(path: Path) -> None:
    """Leaves a checkpoint as Apache Kafka's is, which names only logs that start inside a segment."""
    write_offsets(OsFileSystem(), str(path / LOG_START_OFFSET_CHECKPOINT), {})


@pytest.mark.parametrize("left_from", [PER_SEGMENT * number for number in (1, 2, 3)])
@pytest.mark.parametrize("before", [keeps_all, deletes_records, deletes_segments])
def test_lost_first_segments_are_damage(tmp_path: Path, before: Callable[[Log], None], left_from: int) -> None:
    logs, start = filled(tmp_path, before)
    logs.close()
    lose(tmp_path, left_from)
    for _ in range(2):
        logs = manager(tmp_path)
        logs.start()
        log = logs.logs()[KEY]
        missing = [(one.start_offset, one.end_offset) for _, one in log.damage]
        assert missing == ([(start, left_from)] if start < left_from else [])
        assert (log.log_start_offset, log.log_end_offset) == (start, BATCHES)
        assert (tmp_path / str(KEY) / "damaged-ranges").exists() == bool(missing)
        logs.close()


@pytest.mark.parametrize("is_killed", [True, False])
def test_without_that_note_the_log_begins_with_what_is_left(tmp_path: Path, *, is_killed: bool) -> None:
    logs, _ = filled(tmp_path, keeps_all)
    logs.checkpoint()
    logs.close()
    if is_killed:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    else:
        forget_starts(tmp_path)
    lose(tmp_path, PER_SEGMENT)
    logs = manager(tmp_path)
    logs.start()
    log = logs.logs()[KEY]
    assert (log.log_start_offset, log.damage) == (PER_SEGMENT, [])
    logs.close()
