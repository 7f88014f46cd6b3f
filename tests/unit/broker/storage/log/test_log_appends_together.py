"""Appends of several requests that are handled together: one write, and each one's own outcome."""

from collections.abc import Sequence
from random import Random

import pytest

from millrace.errors import CorruptRecordError, MillraceError, OutOfOrderSequenceError, StorageError
from millrace.fs import Buffer
from millrace.records.record import BatchProducer, NewRecord, Record, decode_records, encode_batch
from millrace_broker.storage import Log, LogAppendInfo, LogConfig, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

FOLDER = "/data/t-0"
NOW_MS = 1_700_000_000_000


class CountingFileSystem(CrashFileSystem):
    """Counts writes and syncs."""

    writes = syncs = 0

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self.writes += 1
        return super().pwritev(fd, buffers, position)

    def fsync(self, fd: int) -> None:
        self.syncs += 1
        super().fsync(fd)


def batch(value: bytes, *, count: int = 1) -> bytes:
    return encode_batch([NewRecord(value, timestamp_ms=NOW_MS)] * count)


def sequenced(value: bytes, sequence: int) -> bytes:
    return encode_batch([NewRecord(value, timestamp_ms=NOW_MS)], producer=BatchProducer(7, 0, sequence))


def damaged(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def open_log(fs: CrashFileSystem, **settings: object) -> Log:
    config = LogConfig(**settings)  # type: ignore[arg-type]
    return Log(fs, ManualClock(NOW_MS), FOLDER, TopicPartition("t", 0), config)


def records(log: Log) -> list[Record]:
    found: list[Record] = []
    offset = log.log_start_offset
    while data := log.read(offset, 1 << 20, up_to_offset=log.log_end_offset):
        found += decode_records(data)
        offset = found[-1].offset + 1
    return found


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in records(log)]


def offsets(outcomes: Sequence[LogAppendInfo | MillraceError]) -> list[tuple[int, int]]:
    return [(one.first_offset, one.last_offset) for one in outcomes if isinstance(one, LogAppendInfo)]


@pytest.fixture
def fs() -> CountingFileSystem:
    fs = CountingFileSystem()
    fs.mkdir(FOLDER)
    fs.fsync_dir("/")
    fs.fsync_dir("/data")
    return fs


@pytest.fixture
def first(fs: CountingFileSystem) -> Log:
    log = open_log(fs)
    log.append(batch(b"first"), leader_epoch=0)
    fs.writes = 0
    return log


def test_what_comes_together_is_one_write(fs: CountingFileSystem, first: Log) -> None:
    outcomes = first.append_all([batch(b"a", count=2), batch(b"b"), batch(b"c", count=3)], leader_epoch=0)
    assert offsets(outcomes) == [(1, 2), (3, 3), (4, 6)]
    assert fs.writes == 1
    assert values(first) == [b"first", b"a", b"a", b"b", b"c", b"c", b"c"]
    assert first.verify().findings == ()


@pytest.mark.parametrize("size_bytes", [10, 60_000])
def test_large_and_small_batches_are_written_the_same(fs: CountingFileSystem, first: Log, size_bytes: int) -> None:
    sent = [bytes([number]) * size_bytes for number in range(8)]
    assert offsets(first.append_all([batch(value) for value in sent], leader_epoch=0)) == [(n, n) for n in range(1, 9)]
    assert fs.writes == 1
    assert values(first)[1:] == sent


def test_an_invalid_batch_fails_alone(first: Log) -> None:
    outcomes = first.append_all([batch(b"a"), damaged(batch(b"lost")), batch(b"b")], leader_epoch=0)
    assert offsets(outcomes) == [(1, 1), (2, 2)]
    assert isinstance(outcomes[1], CorruptRecordError)
    assert values(first) == [b"first", b"a", b"b"]


def test_a_failed_write_fails_all_that_it_had(fs: CountingFileSystem, first: Log) -> None:
    fs.fail("pwritev")
    outcomes = first.append_all([batch(b"a"), batch(b"b")], leader_epoch=0)
    assert [type(one) for one in outcomes] == [StorageError, StorageError]
    assert values(first) == [b"first"]
    assert offsets(first.append_all([batch(b"a"), batch(b"b")], leader_epoch=0)) == [(1, 1), (2, 2)]
    assert first.verify().findings == ()


def test_a_closed_log_refuses_each(first: Log) -> None:
    first.close()
    assert [type(one) for one in first.append_all([batch(b"a")] * 2, leader_epoch=0)] == [StorageError] * 2


def test_segments_are_rolled_between_appends_as_if_each_came_alone(fs: CountingFileSystem) -> None:
    log = open_log(fs, segment_bytes=200)
    outcomes = log.append_all([batch(b"value %d" % number) for number in range(9)], leader_epoch=0)
    assert offsets(outcomes) == [(number, number) for number in range(9)]
    assert len(log.segments) == 5
    assert log.verify().findings == ()


def test_an_index_takes_no_more_entries_than_it_has_room_for(fs: CountingFileSystem) -> None:
    log = open_log(fs, segment_index_bytes=48, index_interval_bytes=0)
    log.append_all([batch(b"value")] * 40, leader_epoch=0)
    log.flush()
    indexes = [path for path in fs.listdir(FOLDER) if path.endswith("index")]
    sizes = [fs.size(fs.open(f"{FOLDER}/{name}")) for name in indexes]
    assert len(indexes) > 2
    assert max(sizes) <= 48
    assert len(records(log)) == 40


def test_sequences_of_a_producer_are_checked_against_what_came_before(first: Log) -> None:
    appends = [sequenced(b"a", 0), batch(b"b"), sequenced(b"a", 0), sequenced(b"gap", 5), sequenced(b"c", 1)]
    outcomes = first.append_all(appends, leader_epoch=0)
    assert offsets(outcomes) == [(1, 1), (2, 2), (1, 1), (3, 3)]
    assert isinstance(outcomes[3], OutOfOrderSequenceError)
    assert values(first) == [b"first", b"a", b"b", b"c"]


def test_batches_of_a_producer_that_follow_on_one_another_are_one_write(fs: CountingFileSystem, first: Log) -> None:
    outcomes = first.append_all([sequenced(b"%d" % number, number) for number in range(9)], leader_epoch=0)
    assert offsets(outcomes) == [(number + 1, number + 1) for number in range(9)]
    assert fs.writes == 1
    entry = first.producers.entries[7]
    assert (entry.last_sequence, [one.last_sequence for one in entry.batches]) == (8, [4, 5, 6, 7, 8])
    assert Log(fs, ManualClock(NOW_MS), FOLDER, TopicPartition("t", 0), LogConfig()).producers.entries == {7: entry}


def test_a_producers_batches_behind_one_that_failed_are_refused(fs: CountingFileSystem) -> None:
    log = open_log(fs, segment_bytes=200)
    log.append(sequenced(b"value", 0), leader_epoch=0)
    fs.fail("open")  # of the next segment
    outcomes = log.append_all([sequenced(b"value", number) for number in (1, 2, 3)], leader_epoch=0)
    assert [type(one) for one in outcomes] == [LogAppendInfo, StorageError, OutOfOrderSequenceError]
    assert offsets(log.append_all([sequenced(b"value", number) for number in (2, 3)], leader_epoch=0)) == [
        (2, 2),
        (3, 3),
    ]


def test_flush_messages_is_kept_with_one_sync(fs: CountingFileSystem) -> None:
    log = open_log(fs, flush_messages=1)
    log.append(batch(b"first"), leader_epoch=0)
    fs.syncs = 0
    log.append_all([batch(b"a"), batch(b"b")], leader_epoch=0)
    assert (log.recovery_point, fs.syncs) == (3, 1)


def test_a_failed_sync_fails_all_that_it_was_promised_to(fs: CountingFileSystem) -> None:
    log = open_log(fs, flush_messages=1)
    log.append(batch(b"first"), leader_epoch=0)
    fs.fail("fsync")
    outcomes = log.append_all([batch(b"a"), batch(b"b")], leader_epoch=0)
    assert [type(one) for one in outcomes] == [StorageError, StorageError]
    assert [type(one) for one in log.append_all([batch(b"c")], leader_epoch=0)] == [StorageError]


def test_the_time_of_the_append_is_that_of_each(fs: CountingFileSystem) -> None:
    log = open_log(fs, message_timestamp_type="LogAppendTime")
    log.append(batch(b"first"), leader_epoch=0)
    outcomes = log.append_all([batch(b"a"), batch(b"b")], leader_epoch=0)
    assert [one.log_append_time_ms for one in outcomes if isinstance(one, LogAppendInfo)] == [NOW_MS, NOW_MS]
    assert log.verify().findings == ()


@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_leaves_whole_batches_from_the_first_on(fs: CountingFileSystem, seed: int) -> None:
    log = open_log(fs, flush_messages=4)
    for number in range(0, 12, 3):
        log.append_all([batch(b"%d" % each) for each in range(number, number + 3)], leader_epoch=0)
    flushed = log.recovery_point
    after = fs.after_cut(Random(seed))
    again = Log(after, ManualClock(NOW_MS), FOLDER, TopicPartition("t", 0), LogConfig(), recovery_point=flushed)
    kept = values(again)
    assert flushed <= len(kept)
    assert kept == [b"%d" % number for number in range(len(kept))]
