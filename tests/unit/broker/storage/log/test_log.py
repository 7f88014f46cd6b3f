import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.config import MAX_LONG
from millrace.errors import OffsetOutOfRangeError, RecordTooLargeError, StorageError
from millrace.fs import OsFileSystem
from millrace.records.batch import HEADER_BYTES, NO_TIMESTAMP, check_crc, read_header, sealed_batch, walk
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, decode_records, encode_batch
from millrace_broker.storage import Log, LogAppendInfo, LogConfig, TopicPartition
from millrace_broker.storage.log import log_reader
from millrace_support.clock import ManualClock

OpenLog = Callable[..., Log]


def batch(*timestamps: int, size: int = 10, codec: Codec = Codec.NONE) -> bytes:
    return encode_batch([NewRecord(b"v" * size, timestamp_ms=timestamp) for timestamp in timestamps], codec=codec)


SIZE = len(batch(1))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_ms=1_000_000)


@pytest.fixture
def open_log(tmp_path, clock: ManualClock) -> OpenLog:
    def open_log(*, clean: bool = False, **settings: object) -> Log:
        config = LogConfig(**({"retention_ms": -1, "file_delete_delay_ms": 0} | settings))  # type: ignore[arg-type]
        return Log(OsFileSystem(), clock, str(tmp_path), TopicPartition("t", 0), config, clean=clean)

    return open_log


def offsets(data: bytes) -> list[int]:
    return [record.offset for record in decode_records(data)]


def test_appends_get_offsets_and_their_leaders_epoch(open_log: OpenLog) -> None:
    log = open_log()
    assert log.append(batch(5, 9, 7), leader_epoch=3) == LogAppendInfo(0, 2, -1, 9)
    assert log.append(batch(1) + batch(2, 3), leader_epoch=4) == LogAppendInfo(3, 5, -1, 3)
    headers = [header for _, header in walk(log.read(0, 1000, up_to_offset=6))]
    assert [(header.base_offset, header.partition_leader_epoch) for header in headers] == [(0, 3), (3, 4), (4, 4)]
    assert log.leader_epochs.entries == ((3, 0), (4, 3))


def test_stored_batches_are_the_producers_bytes_but_for_their_place(open_log: OpenLog) -> None:
    log = open_log()
    sent = batch(1, 2, codec=Codec.ZSTD)
    log.append(bytearray(sent), leader_epoch=1)
    stored = log.read(0, 1000, up_to_offset=2)
    assert stored[16:] == sent[16:]
    assert stored[8:12] == sent[8:12]


def test_log_append_time_replaces_the_producers(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")
    sent = batch(5, 6) + batch(7)
    info = log.append(sent, leader_epoch=0)
    assert info == LogAppendInfo(0, 2, clock.now_ms(), clock.now_ms())
    data = log.read(0, 1000, up_to_offset=3)
    for position, header in walk(data):
        check_crc(data, position, header)
        assert header.is_log_append_time
    assert {record.timestamp_ms for record in decode_records(data)} == {clock.now_ms()}
    assert sent == batch(5, 6) + batch(7)


@pytest.mark.parametrize(
    ("settings", "timestamps", "expected"),
    [
        ({"segment_bytes": 2 * SIZE}, [1, 1, 1, 1, 1], 3),
        ({"segment_bytes": 2 * SIZE - 1}, [1, 1, 1], 3),
        ({"segment_ms": 10}, [100, 110, 111, 112], 2),
        ({"segment_index_bytes": 12, "index_interval_bytes": 0}, [1, 2, 3, 4], 2),
        ({}, [1] * 10, 1),
    ],
)
def test_a_segment_is_rolled(open_log: OpenLog, settings: dict[str, int], timestamps: list[int], expected: int) -> None:
    log = open_log(**settings)
    for timestamp in timestamps:
        log.append(batch(timestamp), leader_epoch=0)
    assert len(log.segments) == expected
    assert log.size_bytes == SIZE * len(timestamps)


def test_what_is_larger_than_a_segment_is_refused(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=SIZE)
    with pytest.raises(RecordTooLargeError, match=r"segment\.bytes"):
        log.append(batch(1) * 2, leader_epoch=0)
    assert log.log_end_offset == 0


def test_a_read_gives_whole_batches_within_its_bounds(open_log: OpenLog) -> None:
    log = open_log()
    for _ in range(5):
        log.append(batch(1, 1), leader_epoch=0)
    size = len(batch(1, 1))
    assert offsets(log.read(0, 2 * size + 1, up_to_offset=10)) == [0, 1, 2, 3]
    assert offsets(log.read(3, 2 * size, up_to_offset=10)) == [2, 3, 4, 5]
    assert offsets(log.read(0, 10_000, up_to_offset=4)) == [0, 1, 2, 3]
    assert offsets(log.read(4, 1, up_to_offset=10)) == [4, 5]
    assert log.read(4, size - 1, up_to_offset=10, at_least_one=False) == b""
    assert offsets(log.read(4, size, up_to_offset=10, at_least_one=False)) == [4, 5]
    assert log.read(4, 1000, up_to_offset=4) == b""
    assert log.read(10, 1000, up_to_offset=10) == b""


def test_offsets_outside_the_log_are_out_of_range(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(1, 2, 3), leader_epoch=0)
    log.raise_log_start_offset(2)
    for offset in (-1, 1, 4):
        with pytest.raises(OffsetOutOfRangeError, match=r"is not in 2\.\.3"):
            log.read(offset, 10, up_to_offset=3)
    with pytest.raises(OffsetOutOfRangeError):
        log.raise_log_start_offset(4)
    assert offsets(log.read(2, 10, up_to_offset=3)) == [0, 1, 2]


def test_a_sequential_reader_sees_every_batch_of_every_segment(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=50 * SIZE, index_interval_bytes=7 * SIZE)
    for timestamp in range(200):
        log.append(batch(timestamp), leader_epoch=0)
    seen: list[int] = []
    while data := log.read(len(seen), 9 * SIZE + 5, up_to_offset=200):
        seen += offsets(data)
    assert seen == list(range(200))


def test_messages_flush(open_log: OpenLog) -> None:
    log = open_log(flush_messages=3)
    log.append(batch(1, 1), leader_epoch=0)
    assert log.recovery_point == 0
    log.append(batch(1, 1), leader_epoch=0)
    assert log.recovery_point == 4


def test_a_flush_is_due_after_its_time_and_after_a_roll(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(flush_ms=1000, segment_bytes=SIZE)
    assert not log.is_flush_due(clock.monotonic_ms() + 5000)
    log.append(batch(1), leader_epoch=0)
    assert not log.is_flush_due(clock.monotonic_ms() + 999)
    assert log.is_flush_due(clock.monotonic_ms() + 1000)
    log.append(batch(1), leader_epoch=0)
    assert log.is_flush_due(clock.monotonic_ms())
    log.flush()
    assert log.recovery_point == 2
    assert not log.is_flush_due(clock.monotonic_ms() + 5000)


def test_flush_messages_may_come_and_go_while_the_log_is_open(open_log: OpenLog) -> None:
    log = open_log()
    for limit, recovery_points in ((2, [0, 2, 2, 4]), (LogConfig().flush_messages, [4, 4, 4, 4])):
        log.reconfigure(replace(log.config, flush_messages=limit))
        found = [log.append(batch(1), leader_epoch=0) and log.recovery_point for _ in range(4)]
        assert found == recovery_points


def test_timestamps_are_found_across_segments_and_inside_batches(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=300)
    for first in range(0, 100, 10):
        log.append(batch(first, first + 5, codec=Codec.GZIP), leader_epoch=0)
    assert len(log.segments) > 1
    assert log.offset_for_timestamp(-5) == (0, 0)
    assert log.offset_for_timestamp(41) == (45, 9)
    assert log.offset_for_timestamp(95) == (95, 19)
    assert log.offset_for_timestamp(96) is None
    log.raise_log_start_offset(7)
    assert log.offset_for_timestamp(0) == (35, 7)


def test_the_largest_timestamp_need_not_be_the_last(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=2 * SIZE)
    assert log.offset_of_max_timestamp() is None
    for timestamp in (10, 900, 30, 20, 900):
        log.append(batch(timestamp), leader_epoch=0)
    assert log.offset_of_max_timestamp() == (900, 1)
    log.raise_log_start_offset(2)
    assert log.offset_of_max_timestamp() == (900, 4)


def test_a_time_beyond_64_bits_is_told_as_the_largest(open_log: OpenLog) -> None:
    log = open_log()
    sent = batch(5, 9)
    header = read_header(sent)._replace(base_timestamp=MAX_LONG - 2, max_timestamp=MAX_LONG)
    log.append(sealed_batch(header, sent[HEADER_BYTES:]), leader_epoch=0)
    assert log.offset_for_timestamp(MAX_LONG) == log.offset_of_max_timestamp() == (MAX_LONG, 1)


def test_batches_that_only_say_that_they_are_new_are_not_all_opened(open_log: OpenLog, monkeypatch) -> None:
    log, opened = open_log(segment_bytes=10 * SIZE), []
    for offset in range(50):
        sent = batch(5)
        header = read_header(sent)._replace(base_offset=offset, max_timestamp=900, partition_leader_epoch=0)
        log.append_as_follower(sealed_batch(header, sent[HEADER_BYTES:]), leader_epoch=0)
    records = log_reader._records
    monkeypatch.setattr(log_reader, "_records", lambda *batch: opened.append(batch) or records(*batch))
    assert log.offset_for_timestamp(700) == log.offset_of_max_timestamp() == (900, 0)
    assert len(opened) == 2


def test_retention_takes_old_segments_and_their_files(open_log: OpenLog, clock: ManualClock, tmp_path) -> None:
    log = open_log(segment_bytes=2 * SIZE, retention_ms=1000)
    for age in (5000, 4000, 900, 800, 700):
        log.append(batch(clock.now_ms() - age), leader_epoch=0)
    report = log.apply_retention()
    assert (report.deleted_segments, report.deleted_bytes, report.segments) == (1, 2 * SIZE, 2)
    assert report.reasons == ("older than retention.ms",)
    assert (report.log_start_offset, log.log_start_offset) == (2, 2)
    assert list(tmp_path.glob("*.deleted")) == []
    assert log.remove_deleted() == 3
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [f"{base:020d}.log" for base in (2, 4)]
    assert log.apply_retention().deleted_segments == 0


def test_a_segment_that_a_clean_start_opened_is_sealed_once_it_is_closed(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(segment_bytes=SIZE)
    log.append(batch(1), leader_epoch=0)
    log.close()
    log = open_log(clean=True, segment_bytes=SIZE)
    assert not log.is_flush_due(clock.monotonic_ms())
    log.append(batch(2), leader_epoch=0)
    assert [one.is_sealed for one in log.segments] == [False, False]
    assert log.is_flush_due(clock.monotonic_ms())
    log.flush()
    assert [one.is_sealed for one in log.segments] == [True, False]
    assert not log.is_flush_due(clock.monotonic_ms())


@pytest.mark.parametrize("kept", ["all but a bit", "half a batch", "nothing"])
def test_the_time_of_what_is_damaged_is_not_known_and_keeps_it(
    open_log: OpenLog, clock: ManualClock, tmp_path, kept: str
) -> None:
    log = open_log(segment_bytes=2 * SIZE, retention_ms=1000)
    written = clock.now_ms()
    for age in (5000, 900, 800, 700):
        log.append(batch(written - age), leader_epoch=0)
    log.close()
    segment = tmp_path / f"{0:020d}.log"
    content = segment.read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    segment.write_bytes({"all but a bit": flipped, "half a batch": content[: SIZE * 3 // 2], "nothing": b""}[kept])
    os.utime(segment, ns=(written * 1_000_000, written * 1_000_000))
    log = open_log(clean=True, segment_bytes=2 * SIZE, retention_ms=1000)
    log.high_watermark = 4
    log.verify()
    clock.advance(150)
    assert log.apply_retention().deleted_segments == 0
    clock.advance(851)
    assert log.apply_retention().deleted_segments == 2


def test_retention_of_everything_leaves_an_empty_log_that_goes_on(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(retention_ms=1000)
    log.append(batch(clock.now_ms()), leader_epoch=0)
    clock.advance(1001)
    log.high_watermark = 0
    assert log.apply_retention().deleted_segments == 0
    log.high_watermark = 1
    assert log.apply_retention().deleted_segments == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (1, 1, 0)
    assert log.append(batch(clock.now_ms()), leader_epoch=0).first_offset == 1
    log.close()
    assert open_log(clean=True).log_start_offset == 1


def test_deleted_files_stay_for_their_delay(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(retention_bytes=0, file_delete_delay_ms=500)
    log.append(batch(1), leader_epoch=0)
    log.apply_retention()
    clock.advance(499)
    assert log.remove_deleted() == 0
    clock.advance(1)
    assert log.remove_deleted() == 3


def test_verify_names_the_file_and_the_byte(open_log: OpenLog, tmp_path) -> None:
    log = open_log(segment_bytes=3 * SIZE)
    for _ in range(7):
        log.append(batch(1), leader_epoch=0)
    clean = log.verify()
    assert (clean.segments, clean.batches, clean.records, clean.findings) == (3, 7, 7, ())
    path = tmp_path / f"{3:020d}.log"
    content = bytearray(path.read_bytes())
    content[2 * SIZE + 70] ^= 1
    path.write_bytes(content)
    (finding,) = log.verify().findings
    assert (finding.file, finding.position) == (str(path), 2 * SIZE)
    assert "CRC-32C" in finding.reason
    content[SIZE + 16] = 9
    path.write_bytes(content)
    assert [finding.position for finding in log.verify().findings] == [2 * SIZE, SIZE]


def test_verify_finds_an_index_entry_that_points_nowhere(open_log: OpenLog, tmp_path) -> None:
    log = open_log(segment_bytes=4 * SIZE, index_interval_bytes=0)
    for _ in range(5):
        log.append(batch(1), leader_epoch=0)
    log.flush()
    path = tmp_path / f"{0:020d}.index"
    content = bytearray(path.read_bytes())
    content[15] += 1
    path.write_bytes(content)
    assert [(finding.file, finding.position) for finding in log.verify().findings] == [(str(path), 8)]


def test_a_flush_on_another_thread_meets_no_closed_file(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=4 * SIZE, retention_bytes=8 * SIZE)
    failures: list[BaseException] = []
    done = threading.Event()

    def keep_flushing() -> None:
        try:
            while not done.is_set():
                log.flush()
                assert log.verify().findings == ()
                log.remove_deleted()
        except BaseException as error:  # noqa: BLE001 -- shown by the test's own thread
            failures.append(error)

    thread = threading.Thread(target=keep_flushing)
    thread.start()
    for count in range(1500):
        log.append(batch(1), leader_epoch=0)
        assert offsets(log.read(count, 1, up_to_offset=count + 1)) == [count]
        if count % 20 == 0:
            log.apply_retention()
    done.set()
    thread.join()
    log.close()
    assert failures == []
    assert log.recovery_point == 1500


def test_a_closed_log_takes_nothing_and_closes_again(open_log: OpenLog) -> None:
    log = open_log()
    log.close()
    log.close()
    log.flush()
    with pytest.raises(StorageError, match="closed"):
        log.append(batch(1), leader_epoch=0)


def test_the_newest_timestamp_is_that_of_segments_with_records_to_read(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=SIZE)
    assert log.newest_timestamp_ms() == NO_TIMESTAMP
    for timestamp in (7, 900, 5):
        log.append(batch(timestamp), leader_epoch=0)
    newest = []
    for start in range(3):
        log.raise_log_start_offset(start)
        newest.append(log.newest_timestamp_ms())
    assert newest == [900, 900, 5]


def test_the_largest_timestamp_is_that_of_a_record_above_the_start(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(9, 5, 7), leader_epoch=0)
    log.append(batch(6), leader_epoch=0)
    assert log.offset_of_max_timestamp() == (9, 0)
    log.raise_log_start_offset(1)
    assert log.offset_of_max_timestamp() == (7, 2)
    log.raise_log_start_offset(3)
    assert log.offset_of_max_timestamp() == (6, 3)
    log.raise_log_start_offset(4)
    assert log.offset_of_max_timestamp() is None


@pytest.mark.parametrize("content", [b"0\n1\n2147483647 0\n", b"noise", b"0\n2\n1 0\n"])
def test_leader_epochs_of_a_damaged_checkpoint_are_those_of_all_segments(
    open_log: OpenLog, tmp_path: Path, content: bytes
) -> None:
    log = open_log(segment_bytes=200)
    for step in range(12):
        log.append(encode_batch([NewRecord(bytes(60))]), leader_epoch=step // 4)
    assert len(log.segments) > 3
    known = log.leader_epochs.entries
    assert known == ((0, 0), (1, 4), (2, 8))
    log.close()
    checkpoint = tmp_path / "leader-epoch-checkpoint"
    checkpoint.write_bytes(content)
    again = open_log(clean=True, segment_bytes=200)
    assert again.leader_epochs.entries == known
    assert checkpoint.read_bytes() == b"0\n3\n0 0\n1 4\n2 8\n"
