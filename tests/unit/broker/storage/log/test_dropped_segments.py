"""Segments that retention has taken out of a log, until another thread has renamed their files."""

import uuid

import pytest

from millrace.errors import StorageError
from millrace.records.record import NewRecord, decode_records, encode_batch
from millrace_broker.storage import Log, LogManager, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

T = TopicPartition("t", 0)
FOLDER = "/data/t-0"
SETTINGS = {"segment.bytes": "200", "retention.ms": "-1", "file.delete.delay.ms": "60000"}


def started(fs: CrashFileSystem) -> tuple[LogManager, Log]:
    manager = LogManager(fs, ManualClock(), ["/data"], {}, "c" * 22, 1)
    manager.start()
    return manager, manager.create(T, uuid.UUID(int=1), SETTINGS)


def append(log: Log, count: int) -> None:
    for _ in range(count):
        log.append(encode_batch([NewRecord(b"%d" % log.log_end_offset)]), leader_epoch=0)


def values(log: Log) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while data := log.read(offset, 1, up_to_offset=log.log_end_offset):
        (record,) = decode_records(data)
        found.append(record.value)
        offset += 1
    return found


def bases(fs: CrashFileSystem) -> list[int]:
    return [int(name.removesuffix(".log")) for name in fs.listdir(FOLDER) if name.endswith(".log")]


@pytest.fixture
def fs() -> CrashFileSystem:
    return CrashFileSystem()


@pytest.fixture
def dropped(fs: CrashFileSystem) -> tuple[LogManager, Log]:
    """A log that retention has let go of segments that lie below its start offset."""
    manager, log = started(fs)
    append(log, 12)
    log.raise_log_start_offset(log.segments[3].base_offset)
    assert log.apply_retention().deleted_segments == 3
    return manager, log


def test_retention_asks_the_disk_for_nothing(fs: CrashFileSystem) -> None:
    manager, log = started(fs)
    append(log, 12)
    log.raise_log_start_offset(log.segments[3].base_offset)
    before = fs.operations
    log.apply_retention()
    assert fs.operations == before
    assert manager.remove_deleted() == 0
    assert bases(fs) == [segment.base_offset for segment in log.segments]


def test_what_was_deleted_by_request_stays_deleted_after_a_crash_at_any_operation(fs, dropped) -> None:
    manager, log = dropped
    start, clock = log.log_start_offset, manager._clock
    manager.checkpoint()
    clock.advance(60_000)
    for cut_at in fs.each_change(manager.remove_deleted):
        for left in (fs.after_kill(), fs.after_cut()):
            _, again = started(left)
            assert (again.log_start_offset, values(again)) == (start, values(log)), cut_at
    manager.checkpoint()
    assert started(fs.after_cut())[1].log_start_offset == start


def test_a_log_that_begins_again_at_their_offsets_keeps_what_it_gets_then(fs, dropped) -> None:
    manager, log = dropped
    manager.truncate_fully_and_start_at(T, 0)
    append(log, 5)
    manager.remove_deleted()
    log.flush()
    manager.checkpoint()
    _, again = started(fs.after_cut())
    assert values(again) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_clean_stop_leaves_none_of_them(fs, dropped) -> None:
    manager, log = dropped
    left = [segment.base_offset for segment in log.segments]
    manager.close()
    assert bases(fs) == left


def test_a_log_that_was_deleted_meanwhile_needs_no_other_names(fs, dropped) -> None:
    manager, _ = dropped
    manager.delete(T)
    assert manager.remove_deleted() == 0


def test_a_name_that_could_not_be_changed_is_changed_later(fs, dropped) -> None:
    manager, log = dropped
    fs.fail("rename", after=1)
    with pytest.raises(StorageError):
        manager.remove_deleted()
    assert bases(fs) != [segment.base_offset for segment in log.segments]
    manager.remove_deleted()
    assert bases(fs) == [segment.base_offset for segment in log.segments]


def test_nothing_goes_while_compaction_has_the_names(fs) -> None:
    _, log = started(fs)
    append(log, 12)
    log.raise_log_start_offset(log.segments[3].base_offset)
    with log._segments.names_lock:
        assert log.apply_retention().deleted_segments == 0
    assert log.apply_retention().deleted_segments == 3
