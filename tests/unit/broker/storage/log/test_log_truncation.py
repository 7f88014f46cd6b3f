"""A log whose end is cut off is what it was before that end was written, and no reader gets what was cut."""

from collections.abc import Callable
from errno import ENOSPC

import pytest

from millrace.descriptor_pool import PooledFileSystem
from millrace.errors import OffsetOutOfRangeError, StorageError
from millrace.records.batch import TRANSACTIONAL_FLAG, walk
from millrace.records.control import ControlType, EndTransactionMarker
from millrace.records.record import BatchProducer, NewRecord, decode_records, encode_batch
from millrace_broker.storage import Log, LogConfig, LogSlice, TopicPartition
from millrace_broker.storage.segments.segment import LogSegment
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, fs_with_folder
from millrace_support.markers import append_marker

FOLDER = "/data/t-0"
NOW_MS = 1_700_000_000_000
ABORT, COMMIT = (EndTransactionMarker(kind, coordinator_epoch=0) for kind in (ControlType.ABORT, ControlType.COMMIT))


def value(offset: int) -> bytes:
    return b"value %03d" % offset


def batch(first: int, count: int = 1, letter: bytes = b"") -> bytes:
    offsets = range(first, first + count)
    return encode_batch([NewRecord(value(offset) + letter, timestamp_ms=NOW_MS + offset) for offset in offsets])


SIZE = len(batch(0))
CONFIG = LogConfig(segment_bytes=10 * SIZE, index_interval_bytes=SIZE, retention_ms=-1, file_delete_delay_ms=0)


@pytest.fixture
def fs() -> CrashFileSystem:
    return fs_with_folder(FOLDER)


def open_log(fs: CrashFileSystem | PooledFileSystem, config: LogConfig = CONFIG, **state: int) -> Log:
    return Log(fs, ManualClock(NOW_MS), FOLDER, TopicPartition("t", 0), config, **state)


def filled(fs: CrashFileSystem | PooledFileSystem, end: int = 35, *, config: LogConfig = CONFIG) -> Log:
    log = open_log(fs, config)
    for offset in range(end):
        log.append(batch(offset), leader_epoch=offset // 8)
    return log


def values(log: Log) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while data := log.read(offset, 1000, up_to_offset=log.log_end_offset):
        records = [record for record in decode_records(data) if record.offset >= offset]
        found += [record.value for record in records]
        offset = records[-1].offset + 1
    return found


def facts(log: Log) -> tuple[object, ...]:
    """Everything that a log knows of what it holds."""
    return (
        (log.log_start_offset, log.log_end_offset),
        log.size_bytes,
        values(log),
        log.leader_epochs.entries,
        dict(log.producers.entries),
        log.last_stable_offset(log.log_end_offset),
        log.aborted_transactions(log.log_start_offset, log.log_end_offset + 1),
        log.offset_of_max_timestamp(),
        [log.offset_for_timestamp(NOW_MS + offset) for offset in range(40)],
        log.verify().findings,
    )


@pytest.mark.parametrize("flushed", [0, 12, 35])
@pytest.mark.parametrize("offset", [0, 1, 9, 10, 11, 19, 20, 27, 30, 34, 35, 40])
def test_a_log_cut_at_an_offset_is_as_it_was_when_it_ended_there(
    fs: CrashFileSystem, flushed: int, offset: int
) -> None:
    log = filled(fs, flushed)
    log.flush()
    for after in range(flushed, 35):
        log.append(batch(after), leader_epoch=after // 8)
    assert log.truncate_to(offset) is (offset < 35)
    assert facts(log) == facts(filled(fs_with_folder(FOLDER), min(offset, 35)))
    assert log.recovery_point == min(flushed, offset)
    assert facts(open_log(fs.after_kill())) == facts(log)
    for after in range(log.log_end_offset, 40):
        log.append(batch(after, letter=b"!"), leader_epoch=7)
    log.flush()
    expected = [value(each) + b"!" * (each >= min(offset, 35)) for each in range(40)]
    assert values(log) == expected
    assert values(open_log(fs.after_cut(), recovery_point=log.recovery_point)) == expected
    log.close()
    again = open_log(fs, clean=True)
    assert (values(again), again.recovery.recovered_segments, again.verify().findings) == (expected, 0, ())


def test_a_batch_that_holds_the_offset_is_cut_off_whole(fs: CrashFileSystem) -> None:
    log = open_log(fs)
    for first in range(0, 30, 3):
        log.append(batch(first, 3), leader_epoch=0)
    for offset, end in ((29, 27), (27, 27), (26, 24), (13, 12), (2, 0)):
        log.truncate_to(offset)
        assert (log.log_end_offset, len(values(log))) == (end, end)


def test_a_truncation_can_be_repeated_before_anything_is_appended(fs: CrashFileSystem) -> None:
    log = filled(fs)
    assert [log.truncate_to(offset) for offset in (34, 25, 25, 20, 7, 0, 0)] == [
        True,
        True,
        False,
        True,
        True,
        True,
        False,
    ]
    assert (log.log_end_offset, len(log.segments)) == (0, 1)
    assert [name for name in fs.listdir(FOLDER) if name.endswith(".log")] == [f"{0:020}.log"]
    log.close()
    assert fs.open_files == 0


def test_a_log_that_starts_inside_what_is_cut_begins_again_at_the_offset(fs: CrashFileSystem) -> None:
    log = filled(fs)
    log.raise_log_start_offset(25)
    log.truncate_to(15)
    assert (log.log_start_offset, log.log_end_offset, log.leader_epochs.entries) == (15, 15, ())
    log.append(batch(15), leader_epoch=9)
    assert values(log) == [value(15)]


@pytest.mark.parametrize("offset", [0, 12, 35, 1000])
def test_a_log_begins_again_anywhere(fs: CrashFileSystem, offset: int) -> None:
    log = filled(fs)
    log.append(encode_batch([NewRecord(b"v")], producer=BatchProducer(7, 0, 0)), leader_epoch=5)
    log.flush()
    log.truncate_fully_and_start_at(offset)
    assert (log.log_start_offset, log.log_end_offset) == (offset, offset)
    assert (log.leader_epochs.entries, dict(log.producers.entries), log.size_bytes) == ((), {}, 0)
    assert log.recovery_point <= offset
    assert [name for name in fs.listdir(FOLDER) if name.endswith(".snapshot")] == []
    with pytest.raises(OffsetOutOfRangeError):
        log.read(offset + 1, 1, up_to_offset=offset)
    log.append(batch(offset), leader_epoch=6)
    again = open_log(fs.after_kill(), recovery_point=log.recovery_point)
    assert (values(again), again.leader_epochs.entries) == ([value(offset)], ((6, offset),))


def transactional(producer_id: int, sequence: int) -> bytes:
    records = [NewRecord(b"v", timestamp_ms=NOW_MS)]
    return encode_batch(records, producer=BatchProducer(producer_id, 0, sequence), flags=TRANSACTIONAL_FLAG)


def transactions(fs: CrashFileSystem, end: int, config: LogConfig) -> Log:
    """Two producers whose transactions overlap: one commits, one aborts; every third batch is plain."""
    log = open_log(fs, config)
    steps: list[Callable[[], object]] = []
    for number in range(6):
        steps += [
            lambda number=number: log.append(transactional(7, 2 * number), leader_epoch=0),
            lambda number=number: log.append(transactional(8, number), leader_epoch=0),
            lambda number=number: log.append(transactional(7, 2 * number + 1), leader_epoch=0),
            lambda: append_marker(log, ABORT, producer_id=7, producer_epoch=0, leader_epoch=0),
            lambda: log.append(batch(0), leader_epoch=0),
            lambda: append_marker(log, COMMIT, producer_id=8, producer_epoch=0, leader_epoch=0),
        ]
    for step in steps[:end]:
        step()
    return log


@pytest.mark.parametrize("offset", range(37))
def test_transactions_that_ended_in_what_was_cut_are_open_again(fs: CrashFileSystem, offset: int) -> None:
    config = LogConfig(segment_bytes=600, retention_ms=-1)
    log = transactions(fs, 36, config)
    log.truncate_to(offset)
    expected = transactions(fs_with_folder(FOLDER), offset, config)
    assert log.aborted_transactions(0, 40) == expected.aborted_transactions(0, 40)
    assert [log.last_stable_offset(each) for each in range(offset + 1)] == [
        expected.last_stable_offset(each) for each in range(offset + 1)
    ]
    entries, others = log.producers.entries, expected.producers.entries
    assert entries.keys() == others.keys()
    for key, entry in entries.items():
        assert entry.transaction_first_offset == others[key].transaction_first_offset
        assert entry.batches[-1:] == others[key].batches[-1:]
        assert entry.coordinator_epoch == others[key].coordinator_epoch
    again = open_log(fs.after_kill(), config)
    assert again.aborted_transactions(0, 40) == expected.aborted_transactions(0, 40)


@pytest.mark.parametrize("cut", [0, 3, 8, 12, 17])
@pytest.mark.parametrize("first", [0, 6, 15])
def test_a_slice_that_outlives_a_truncation_gives_nothing_of_what_was_cut_or_came_after(
    fs: CrashFileSystem, cut: int, first: int
) -> None:
    log = filled(PooledFileSystem(fs, 4), 20)
    found = log.read_or_find(first, 1 << 20, up_to_offset=20, read_at_once_bytes=0)
    assert isinstance(found, LogSlice)
    before = found.read()
    last = [header.next_offset for _, header in walk(before)][-1]
    log.truncate_to(cut)
    for offset in range(cut, 40):
        log.append(batch(offset, letter=b"!"), leader_epoch=9)
    kept = sum(header.size_bytes for _, header in walk(before) if header.next_offset <= cut)
    assert found.read(0, kept) == before[:kept]
    if cut < last:
        for start, size in ((0, None), (kept, 1), (kept, SIZE), (len(before) - 1, None)):
            with pytest.raises(StorageError, match="truncated"):
                found.read(start, size)
    else:
        assert found.read() == before


def test_a_slice_of_a_segment_that_compaction_has_replaced_gives_nothing_of_what_was_cut(fs: CrashFileSystem) -> None:
    log = filled(fs, 25)
    found = log.read_or_find(0, 1 << 20, up_to_offset=20, read_at_once_bytes=0)
    assert isinstance(found, LogSlice)
    log.flush()
    old = log.closed_segments[0]
    new = LogSegment(fs, FOLDER, 0, CONFIG, ".cleaned")
    data = old.read_at(0, old.size_bytes)
    new.begin()
    new.write([data], len(data))
    for position, header in walk(data):
        new.add(position, header.last_offset, header.max_timestamp)
    new.finish()
    new.sync()
    new.seal()
    assert log.replace_segments([old], new, truncations=0)
    log.release_replaced()
    assert len(found.read()) == len(data)
    log.truncate_to(5)
    with pytest.raises(StorageError, match="truncated"):
        found.read()
    del found, old
    log.close()
    assert fs.open_files == 0


@pytest.mark.parametrize("operation", ["truncate", "unlink", "fsync", "fsync_dir", "create", "open"])
@pytest.mark.parametrize("after", range(4))
def test_a_truncation_that_fails_takes_the_folder_offline_and_is_repeated_after_a_start(
    fs: CrashFileSystem, operation: str, after: int
) -> None:
    log = filled(fs)
    log.flush()
    fs.fail(operation, after=after)
    try:
        log.truncate_to(13)
    except StorageError:
        with pytest.raises(StorageError, match="offline"):
            log.append(batch(13), leader_epoch=9)
        with pytest.raises(StorageError, match="offline"):
            log.truncate_to(2)
    assert log.log_end_offset == 13
    assert values(log) == [value(offset) for offset in range(13)]
    log.abandon()
    again = open_log(fs.after_kill(), recovery_point=13)
    assert again.log_end_offset >= 13
    again.truncate_to(13)
    assert values(again) == [value(offset) for offset in range(13)]
    assert again.verify().findings == ()


def test_leader_epochs_that_a_full_disk_kept_in_their_file_go_before_a_follower_appends(fs: CrashFileSystem) -> None:
    log = open_log(fs)
    for offset, epoch in ((0, 1), (1, 1), (2, 3)):
        log.append(batch(offset), leader_epoch=epoch)
    fs.fail("create", after=3, code=ENOSPC)  # the three files of the new segment come first
    log.truncate_to(2)
    assert log.leader_epochs.entries == ((1, 0),)
    leader = filled(fs_with_folder(FOLDER), 0)
    for offset in range(4):
        leader.append(batch(offset, letter=b"L"), leader_epoch=1)
    log.append_as_follower(leader.read(2, 1000, up_to_offset=4), leader_epoch=1)
    assert open_log(fs.after_kill()).leader_epochs.entries == ((1, 0),)


def test_a_log_start_offset_moves_the_epoch_that_holds_it(fs: CrashFileSystem) -> None:
    log = filled(fs)
    assert log.leader_epochs.entries == ((0, 0), (1, 8), (2, 16), (3, 24), (4, 32))
    log.raise_log_start_offset(20)
    assert log.leader_epochs.entries == ((2, 20), (3, 24), (4, 32))
    again = open_log(fs.after_kill(), log_start_offset=20)
    assert again.leader_epochs.entries == log.leader_epochs.entries


def test_the_high_watermark_is_the_logs_end_until_it_is_set(fs: CrashFileSystem) -> None:
    log = filled(fs, 20)
    assert log.high_watermark == 20
    log.truncate_to(15)
    assert log.high_watermark == 15
    log.append(batch(15), leader_epoch=9)
    assert log.high_watermark == 16
    log.high_watermark = 12
    log.append(batch(16), leader_epoch=9)
    assert log.high_watermark == 12
    with pytest.raises(OffsetOutOfRangeError, match="above 12"):
        log.raise_log_start_offset(13)
    log.high_watermark = 99
    assert log.high_watermark == 17


def test_a_truncation_lowers_the_high_watermark_and_it_stays_there(fs: CrashFileSystem) -> None:
    log = filled(fs, 20)
    log.high_watermark = 12
    log.truncate_to(15)
    assert log.high_watermark == 12
    log.truncate_to(7)
    for offset in range(7, 20):
        log.append(batch(offset), leader_epoch=9)
    assert log.high_watermark == 7
    log.truncate_fully_and_start_at(30)
    assert log.high_watermark == 30
