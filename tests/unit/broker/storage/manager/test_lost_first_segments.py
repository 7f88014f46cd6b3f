"""First segments of which no file is left are missing where a checkpoint has noted where the log began."""

import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from millrace.errors import StorageError
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import Log, LogManager, TopicPartition
from millrace_broker.storage.checkpoints import read_offsets, write_offsets
from millrace_broker.storage.filenames import LOG_START_OFFSET_CHECKPOINT
from millrace_support.clock import ManualClock

KEY, TOPIC_ID = TopicPartition("t", 0), uuid.UUID(int=7)
BATCH = encode_batch([NewRecord(b"v" * 100, timestamp_ms=1000)])
BATCHES, PER_SEGMENT = 12, 3
SETTINGS = {"log.segment.bytes": str(PER_SEGMENT * len(BATCH)), "log.retention.ms": "-1"}
AT_ONCE = {"log.segment.delete.delay.ms": "0"}


def manager(path: Path, settings: Mapping[str, str] = AT_ONCE) -> LogManager:
    return LogManager(OsFileSystem(), ManualClock(), [str(path)], {**SETTINGS, **settings}, "cluster", 1)


def deletes_records(log: Log) -> None:
    log.raise_log_start_offset(PER_SEGMENT + 1)


def deletes_segments(log: Log) -> None:
    deletes_records(log)
    log.apply_retention()
    log.remove_deleted()


def keeps_all(_: Log) -> None:
    pass


def filled(path: Path, before: Callable[[Log], None], settings: Mapping[str, str] = AT_ONCE) -> tuple[LogManager, int]:
    """Returns the logs with one of four segments, and where that begins."""
    logs = manager(path, settings)
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


def as_kafka(path: Path) -> None:
    """Leaves a checkpoint as Apache Kafka's is, which no CRC covers."""
    file = str(path / LOG_START_OFFSET_CHECKPOINT)
    write_offsets(OsFileSystem(), file, read_offsets(OsFileSystem(), file))


def with_one_byte_changed(path: Path) -> None:
    """Leaves a checkpoint that has rotted: the log is said to start earlier or later, or is another one."""
    file = path / LOG_START_OFFSET_CHECKPOINT
    content = bytearray(file.read_bytes())
    content[content.index(b"t 0 ") + 4] ^= 1
    file.write_bytes(content)


def killed(path: Path, target: Path) -> Path:
    """Returns what a kill would leave of the folder now."""
    shutil.copytree(path, target)
    return target


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("left_from", [PER_SEGMENT * number for number in (1, 2, 3)])
@pytest.mark.parametrize("before", [keeps_all, deletes_records, deletes_segments])
def test_lost_first_segments_are_damage(
    tmp_path: Path, before: Callable[[Log], None], left_from: int, *, is_killed: bool
) -> None:
    logs, start = filled(tmp_path / "data", before)
    logs.checkpoint()
    left = killed(tmp_path / "data", tmp_path / "left") if is_killed else tmp_path / "data"
    logs.close()
    lose(left, left_from)
    for number in range(3):
        logs = manager(left)
        logs.start()
        log = logs.logs()[KEY]
        missing = [(one.start_offset, one.end_offset) for _, one in log.damage]
        assert missing == ([(start, left_from)] if start < left_from else [])
        assert (log.log_start_offset, log.log_end_offset) == (start, BATCHES)
        assert (left / str(KEY) / "damaged-ranges").exists() == bool(missing)
        left = killed(left, tmp_path / f"left-{number}") if is_killed else left
        logs.close()


def test_a_clean_stop_tells_deleted_segments_that_are_kept_from_lost_ones(tmp_path: Path) -> None:
    logs, start = filled(tmp_path, deletes_segments, {})
    logs.close()
    assert list((tmp_path / str(KEY)).glob("*.log.deleted"))
    lose(tmp_path, 2 * PER_SEGMENT)
    logs = manager(tmp_path)
    logs.start()
    assert [(one.start_offset, one.end_offset) for _, one in logs.logs()[KEY].damage] == [(start, 2 * PER_SEGMENT)]
    logs.close()


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("spoil", [as_kafka, with_one_byte_changed])
def test_without_that_note_the_log_begins_with_what_is_left(
    tmp_path: Path, spoil: Callable[[Path], None], *, is_killed: bool
) -> None:
    logs, _ = filled(tmp_path / "data", keeps_all)
    logs.checkpoint()
    left = killed(tmp_path / "data", tmp_path / "left") if is_killed else tmp_path / "data"
    logs.close()
    spoil(left)
    lose(left, PER_SEGMENT)
    logs = manager(left)
    logs.start()
    log = logs.logs()[KEY]
    assert (log.log_start_offset, log.damage) == (PER_SEGMENT, [])
    logs.close()


def deleted_and_killed(tmp_path: Path) -> Path:
    """Returns the folder of a broker that was killed when it had renamed a first segment, before a checkpoint."""
    logs, _ = filled(tmp_path / "data", keeps_all)
    logs.checkpoint()
    logs.logs()[KEY].raise_log_start_offset(PER_SEGMENT)
    logs.logs()[KEY].apply_retention()
    logs.logs()[KEY].deleted.rename_dropped()
    left = killed(tmp_path / "data", tmp_path / "left")
    logs.close()
    return left


def known_starts(path: Path) -> Mapping[TopicPartition, int]:
    return read_offsets(OsFileSystem(), str(path / LOG_START_OFFSET_CHECKPOINT))


def test_a_segment_deleted_after_the_last_checkpoint_is_not_lost(tmp_path: Path) -> None:
    """Its name says so to every start, until one has written where the log begins now."""
    left = deleted_and_killed(tmp_path)
    in_the_way = f"{LOG_START_OFFSET_CHECKPOINT}.tmp"
    (left / in_the_way).mkdir()
    for number in range(3):
        logs = manager(left)
        logs.start()
        log = logs.logs()[KEY]
        assert (log.log_start_offset, log.damage) == (PER_SEGMENT, [])
        assert (left / str(KEY) / f"{0:020d}.log.deleted").exists()
        with pytest.raises(StorageError, match=LOG_START_OFFSET_CHECKPOINT):
            logs.remove_deleted()
        assert (left / str(KEY) / f"{0:020d}.log.deleted").exists()
        before, left = left, killed(left, tmp_path / f"left-{number}")
        (before / in_the_way).rmdir()
        logs.close()
    (left / in_the_way).rmdir()
    logs = manager(left)
    logs.start()
    assert known_starts(left) == {KEY: PER_SEGMENT}
    logs.remove_deleted()
    assert not list((left / str(KEY)).glob("*.deleted"))
    logs.close()


@pytest.mark.parametrize("by", ["retention", "a start", "an emptied log"])
def test_another_release_that_removes_such_names_makes_nothing_lost(tmp_path: Path, by: str) -> None:
    """Apache Kafka and former releases remove them at a start, and may be killed before their first checkpoint."""
    if by == "a start":
        left = deleted_and_killed(tmp_path)
        logs = manager(left)
        logs.start()
    else:
        logs, _ = filled(tmp_path / "data", keeps_all, {})
        left = tmp_path / "data"
        logs.checkpoint()
        if by == "retention":
            logs.logs()[KEY].raise_log_start_offset(PER_SEGMENT)
            assert [report.deleted_segments for report in logs.retention()] == [1]
            logs.remove_deleted()
        else:
            logs.truncate_fully_and_start_at(KEY, BATCHES + 1)
    start = logs.logs()[KEY].log_start_offset
    assert list((left / str(KEY)).glob("*.log.deleted"))
    left = killed(left, tmp_path / "by another release")
    logs.close()
    for name in (left / str(KEY)).glob("*.deleted"):
        name.unlink()
    logs = manager(left)
    logs.start()
    log = logs.logs()[KEY]
    assert (log.log_start_offset, log.damage) == (start, [])
    logs.close()
