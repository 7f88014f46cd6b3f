"""A follower's log holds its leader's batches byte for byte, with the same epochs, producers and transactions."""

import pytest

from millrace.errors import CorruptRecordError, InvalidRecordError, RecordError, StorageError
from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.control import ControlType, EndTransactionMarker
from millrace.records.record import BatchProducer, NewRecord, decode_records, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, fs_with_folder
from millrace_support.markers import append_marker

FOLDER = "/data/t-0"
NOW_MS = 1_700_000_000_000
ABORT = EndTransactionMarker(ControlType.ABORT, coordinator_epoch=0)
EPOCH = 9


@pytest.fixture
def fs() -> CrashFileSystem:
    return fs_with_folder(FOLDER)


def open_log(fs: CrashFileSystem, *, segment_bytes: int = 1000, flush_messages: int = 1 << 40, **state: int) -> Log:
    config = LogConfig(
        segment_bytes=segment_bytes,
        index_interval_bytes=100,
        retention_ms=-1,
        flush_messages=flush_messages,
        file_delete_delay_ms=0,
    )
    return Log(fs, ManualClock(NOW_MS), FOLDER, TopicPartition("t", 0), config, **state)


def batch(offset: int, count: int = 1, epoch: int = 0, **form: object) -> bytes:
    records = [NewRecord(b"value %d" % each, timestamp_ms=NOW_MS + each) for each in range(offset, offset + count)]
    data = bytearray(encode_batch(records, base_offset=offset, **form))  # type: ignore[arg-type]
    data[12:16] = epoch.to_bytes(4, "big", signed=True)
    return bytes(data)


def leader_log() -> Log:
    """Twelve rounds of plain, idempotent and transactional batches in three epochs; every transaction is aborted."""
    log = open_log(fs_with_folder(FOLDER), segment_bytes=1 << 20)
    for step in range(12):
        flags = TRANSACTIONAL_FLAG
        log.append(batch(0, 3), leader_epoch=step // 4)
        log.append(batch(0, producer=BatchProducer(7, 0, step)), leader_epoch=step // 4)
        log.append(batch(0, producer=BatchProducer(8, 0, step), flags=flags), leader_epoch=step // 4)
        if step != 11:
            append_marker(log, ABORT, producer_id=8, producer_epoch=0, leader_epoch=step // 4)
    return log


def content(log: Log) -> bytes:
    return b"".join(segment.read_at(0, segment.size_bytes) for segment in log.segments)


def known(log: Log) -> tuple[object, ...]:
    return (
        (log.log_start_offset, log.log_end_offset),
        log.leader_epochs.entries,
        dict(log.producers.entries),
        log.last_stable_offset(log.log_end_offset),
        [one[:3] for one in log.aborted_transactions(0, log.log_end_offset)],
        log.offset_of_max_timestamp(),
    )


@pytest.mark.parametrize("fetch_bytes", [1, 400, 1500, 1 << 20])
@pytest.mark.parametrize("segment_bytes", [150, 700, 1 << 20])
def test_a_follower_becomes_what_its_leader_is(fs: CrashFileSystem, fetch_bytes: int, segment_bytes: int) -> None:
    leader, follower = leader_log(), open_log(fs, segment_bytes=segment_bytes)
    while follower.log_end_offset < leader.log_end_offset:
        end = follower.log_end_offset
        data = leader.read(end, fetch_bytes, up_to_offset=leader.log_end_offset)
        info = follower.append_as_follower(data, leader_epoch=EPOCH)
        assert info is not None
        assert (info.first_offset, info.last_offset) == (end, follower.log_end_offset - 1)
    assert content(follower) == content(leader)
    assert known(follower) == known(leader)
    assert follower.verify().findings == ()
    assert "offset-gaps" not in fs.listdir(FOLDER)
    again = open_log(fs.after_kill(), segment_bytes=segment_bytes)
    assert content(again) == content(leader)
    assert known(again)[:2] == known(leader)[:2]
    assert known(again)[3:] == known(leader)[3:]


def test_a_batch_above_segment_bytes_is_taken_as_the_leader_has_taken_it(fs: CrashFileSystem) -> None:
    log = open_log(fs, segment_bytes=100)
    log.append_as_follower(batch(0, 50) + batch(50) + batch(51, 50), leader_epoch=EPOCH)
    assert [segment.base_offset for segment in log.segments] == [0, 50, 51]


def test_offsets_that_compaction_left_out_are_left_out_here_too(fs: CrashFileSystem) -> None:
    log = open_log(fs, segment_bytes=200)
    log.append_as_follower(batch(3, 2) + batch(9) + batch(20, 3), leader_epoch=EPOCH)
    log.append_as_follower(batch(40) + batch(41), leader_epoch=EPOCH)
    assert (log.log_start_offset, log.log_end_offset) == (0, 42)
    offsets = [3, 4, 9, 20, 21, 22, 40, 41]
    for each in (log, open_log(fs.after_kill()), open_log(fs.after_kill(), recovery_point=10)):
        found: list[int] = []
        while data := each.read(found[-1] + 1 if found else 0, 1, up_to_offset=42):
            found += [record.offset for record in decode_records(data)]
        assert found == offsets
        assert each.log_end_offset == 42
        assert each.verify().findings == ()
    assert log.append(batch(0), leader_epoch=EPOCH).first_offset == 42


def test_a_log_may_go_on_further_than_an_index_reaches(fs: CrashFileSystem) -> None:
    log = open_log(fs)
    far = 3 << 31
    log.append_as_follower(batch(0) + batch(far, 2) + batch(far + 2), leader_epoch=EPOCH)
    log.append_as_follower(batch(3 * far), leader_epoch=EPOCH)
    log.flush()
    for each in (log, open_log(fs.after_kill(), recovery_point=3 * far + 1)):
        assert each.log_end_offset == 3 * far + 1
        assert [segment.base_offset for segment in each.segments] == [0, far, 3 * far]
        assert each.verify().findings == ()


def test_the_first_batch_may_begin_below_where_an_empty_log_starts(fs: CrashFileSystem) -> None:
    """KAFKA-6975: the leader's records below 105 were deleted, and their batch was not."""
    log = open_log(fs)
    log.truncate_fully_and_start_at(105)
    log.append_as_follower(batch(100, 10, epoch=4) + batch(110, epoch=5), leader_epoch=5)
    assert (log.log_start_offset, log.log_end_offset) == (105, 111)
    assert log.leader_epochs.entries == ((4, 100), (5, 110))
    assert [segment.base_offset for segment in log.segments] == [100]
    again = open_log(fs.after_kill(), log_start_offset=105)
    assert (again.log_start_offset, again.log_end_offset) == (105, 111)


def test_a_first_batch_that_can_not_be_written_leaves_the_log_empty_where_it_was(fs: CrashFileSystem) -> None:
    log = open_log(fs)
    log.truncate_fully_and_start_at(105)
    fs.capacity_bytes = fs.used_bytes + 40
    with pytest.raises(StorageError, match="No space left"):
        log.append_as_follower(batch(100, 10), leader_epoch=5)
    assert (log.log_start_offset, log.log_end_offset) == (105, 105)
    fs.capacity_bytes = None
    log.append_as_follower(batch(100, 10), leader_epoch=5)
    assert (log.log_start_offset, log.log_end_offset) == (105, 110)


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("fetched", "error"),
    [
        (batch(4), InvalidRecordError),
        (batch(5, 2) + batch(6), InvalidRecordError),
        (batch(3, 5), InvalidRecordError),
        (batch(5) + flipped(batch(6), 70), CorruptRecordError),
        (batch(5) + flipped(batch(6), 16), CorruptRecordError),
        (b"\xff" * 100, RecordError),
    ],
    ids=["below the end", "not increasing", "around the end", "crc", "magic", "garbage"],
)
def test_what_breaks_a_rule_is_refused_whole(fs: CrashFileSystem, fetched: bytes, error: type[RecordError]) -> None:
    log = open_log(fs)
    log.append_as_follower(batch(0, 5), leader_epoch=EPOCH)
    with pytest.raises(error):
        log.append_as_follower(fetched, leader_epoch=EPOCH)
    assert log.log_end_offset == 5
    assert content(log) == batch(0, 5)


@pytest.mark.parametrize("fetched", [b"", batch(5)[:-1], batch(5)[:30], batch(5, epoch=EPOCH + 1)])
def test_what_holds_no_whole_batch_of_the_known_epoch_appends_nothing(fs: CrashFileSystem, fetched: bytes) -> None:
    log = open_log(fs)
    log.append_as_follower(batch(0, 5) + fetched, leader_epoch=EPOCH)
    assert log.append_as_follower(fetched, leader_epoch=EPOCH) is None
    assert log.log_end_offset == 5


def test_epochs_are_assigned_from_the_batches(fs: CrashFileSystem) -> None:
    log = open_log(fs)
    log.append_as_follower(batch(0, 5, -1) + batch(5, 1, 2) + batch(6, 1, 2) + batch(9, 1, 4), leader_epoch=EPOCH)
    assert log.leader_epochs.entries == ((2, 5), (4, 9))
    log.append_as_follower(batch(10, 1, 3) + batch(11, 1, 5), leader_epoch=EPOCH)
    assert log.leader_epochs.entries == ((2, 5), (3, 10), (5, 11))
    assert open_log(fs.after_kill()).leader_epochs.entries == log.leader_epochs.entries


def test_flush_messages_holds_for_a_follower_too(fs: CrashFileSystem) -> None:
    log = open_log(fs, flush_messages=4)
    log.append_as_follower(batch(0, 3), leader_epoch=EPOCH)
    assert log.recovery_point == 0
    log.append_as_follower(batch(3), leader_epoch=EPOCH)
    assert log.recovery_point == 4


@pytest.mark.parametrize("operation", ["pwritev", "create"])
@pytest.mark.parametrize("after", range(5))
def test_a_write_that_fails_leaves_whole_batches_and_may_be_repeated(
    fs: CrashFileSystem, operation: str, after: int
) -> None:
    leader, log = leader_log(), open_log(fs, segment_bytes=300)
    data = leader.read(0, 1 << 20, up_to_offset=leader.log_end_offset)
    fs.fail(operation, after=after)
    with pytest.raises(StorageError):
        log.append_as_follower(data, leader_epoch=EPOCH)
    assert content(log) == data[: log.size_bytes]
    rest = leader.read(log.log_end_offset, 1 << 20, up_to_offset=leader.log_end_offset)
    log.append_as_follower(rest, leader_epoch=EPOCH)
    assert content(log) == data
    assert known(log)[:4] == known(leader)[:4]
