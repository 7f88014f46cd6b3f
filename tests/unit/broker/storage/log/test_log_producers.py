"""Idempotent producers and transactions as a log keeps them: duplicates, snapshots, aborted transactions."""

from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidRecordError,
    OutOfOrderSequenceError,
)
from millrace.fs import OsFileSystem
from millrace.records.batch import TRANSACTIONAL_FLAG, walk
from millrace.records.control import ControlType, EndTransactionMarker
from millrace.records.record import BatchProducer, NewRecord, decode_records, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_broker.storage.producers.producer_state_manager import decode_snapshot
from millrace_broker.storage.segments.indexes import AbortedTransaction
from millrace_support.clock import ManualClock
from millrace_support.markers import append_marker

OpenLog = Callable[..., Log]
DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000


def batch(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, flags: int = 0) -> bytes:
    records = [NewRecord(b"value", timestamp_ms=NOW_MS)] * count
    return encode_batch(records, producer=BatchProducer(producer_id, epoch, sequence), flags=flags)


def transactional(sequence: int, *, producer_id: int = 7) -> bytes:
    return batch(sequence, producer_id=producer_id, flags=TRANSACTIONAL_FLAG)


def end(
    log: Log, control_type: ControlType, *, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 0
) -> int:
    marker = EndTransactionMarker(control_type, coordinator_epoch)
    return append_marker(log, marker, producer_id=producer_id, producer_epoch=epoch, leader_epoch=0).last_offset


def abort(log: Log, producer_id: int = 7) -> int:
    return end(log, ControlType.ABORT, producer_id=producer_id)


def commit(log: Log, producer_id: int = 7) -> int:
    return end(log, ControlType.COMMIT, producer_id=producer_id)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def open_log(tmp_path: Path, clock: ManualClock) -> OpenLog:
    def open_log(*, clean: bool = False, recovery_point: int = 0, start: int = 0, **settings: object) -> Log:
        config = LogConfig(**({"retention_ms": -1, "file_delete_delay_ms": 0} | settings))  # type: ignore[arg-type]
        return Log(
            OsFileSystem(),
            clock,
            str(tmp_path),
            TopicPartition("t", 0),
            config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=start,
        )

    return open_log


def snapshots(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.snapshot"))


def test_a_repeated_batch_is_answered_with_its_first_place(open_log: OpenLog) -> None:
    log = open_log()
    sent = [batch(0, 3), batch(3, 2), batch(5, 1)]
    places = [log.append(each, leader_epoch=0) for each in sent]
    size = log.size_bytes
    repeated = [log.append(each, leader_epoch=0) for each in sent]
    assert repeated == [place._replace(log_append_time_ms=NOW_MS) for place in places]
    assert (log.log_end_offset, log.size_bytes) == (6, size)
    with pytest.raises(OutOfOrderSequenceError):
        log.append(batch(7), leader_epoch=0)
    with pytest.raises(OutOfOrderSequenceError):
        log.append(batch(0, 2), leader_epoch=0)
    assert log.append(batch(6), leader_epoch=0).first_offset == 6


def test_a_repeated_batch_has_the_time_of_its_first_append(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")
    first = log.append(batch(0, 3), leader_epoch=0)
    clock.advance(5000)
    assert log.append(batch(0, 3), leader_epoch=0) == first
    assert first.log_append_time_ms == NOW_MS


@pytest.mark.parametrize(
    "sent",
    [
        batch(0) + batch(1),
        batch(0) + encode_batch([NewRecord(b"plain")]),
        encode_batch([NewRecord(b"plain")]) + batch(0),
        batch(-1),
        batch(0, epoch=-1),
        batch(0, producer_id=-2),
        batch(-1, producer_id=-1, epoch=-1, flags=TRANSACTIONAL_FLAG),
    ],
)
def test_batches_no_producer_may_send_are_refused(open_log: OpenLog, sent: bytes) -> None:
    log = open_log()
    with pytest.raises(InvalidRecordError):
        log.append(sent, leader_epoch=0)
    assert log.log_end_offset == 0


def test_a_clean_log_knows_its_producers_from_one_snapshot(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(segment_bytes=200)
    for sequence in range(6):
        log.append(batch(sequence), leader_epoch=0)
    assert snapshots(tmp_path) == [2, 4]
    log.close()
    assert snapshots(tmp_path) == [2, 4, 6]
    again = open_log(clean=True, segment_bytes=200)
    assert again.append(batch(5), leader_epoch=0).first_offset == 5
    with pytest.raises(OutOfOrderSequenceError):
        again.append(batch(7), leader_epoch=0)
    for sequence in range(6, 9):
        again.append(batch(sequence), leader_epoch=0)
    assert snapshots(tmp_path) == [2, 4, 6, 8]


@pytest.mark.parametrize("damage", [b"", b"?", bytes(500), None])
def test_a_bad_snapshot_is_deleted_and_the_state_rebuilt(
    open_log: OpenLog, tmp_path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(segment_bytes=200)
    for sequence in range(7):
        log.append(batch(sequence), leader_epoch=0)
    entries = dict(log.producers.entries)
    log.close()
    for path in tmp_path.glob("*.snapshot"):
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(damage)
    again = open_log(clean=True, segment_bytes=200)
    assert again.producers.entries == entries
    assert snapshots(tmp_path) == []
    assert ("rebuilt from the log" in caplog.text) == (damage is not None)
    again.close()
    assert snapshots(tmp_path) == [7]


def test_after_a_crash_all_five_batches_are_known_again(open_log: OpenLog) -> None:
    log = open_log()
    for sequence in range(7):
        log.append(batch(sequence), leader_epoch=0)
    again = open_log()
    assert again.producers.entries == log.producers.entries
    assert [again.append(batch(sequence), leader_epoch=0).first_offset for sequence in range(2, 7)] == [2, 3, 4, 5, 6]


def test_snapshots_above_the_end_and_of_no_segment_are_removed(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(segment_bytes=200)
    for sequence in range(5):
        log.append(batch(sequence), leader_epoch=0)
    log.close()
    content = (tmp_path / f"{4:020d}.snapshot").read_bytes()
    for stray in (1, 3, 9):
        (tmp_path / f"{stray:020d}.snapshot").write_bytes(content)
    open_log(segment_bytes=200)
    assert snapshots(tmp_path) == [2, 4, 5]


def test_retention_takes_a_segments_snapshot_with_it(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(segment_bytes=200, retention_bytes=292)
    for sequence in range(8):
        log.append(batch(sequence), leader_epoch=0)
    assert log.apply_retention().deleted_segments == 2
    log.remove_deleted()
    assert snapshots(tmp_path) == [4, 6]
    assert not list(tmp_path.glob("*.deleted"))
    log.append(batch(8), leader_epoch=0)


def test_silent_producers_are_forgotten(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log()
    log.append(batch(0), leader_epoch=0)
    log.append(transactional(0, producer_id=8), leader_epoch=0)
    clock.advance(DAY_MS - 1)
    assert log.expire_producers() == 0
    clock.advance(1)
    assert log.expire_producers() == 1
    assert set(log.producers.entries) == {8}
    assert set(open_log().producers.entries) == {8}
    assert log.append(batch(40), leader_epoch=0).first_offset == 2


def test_a_snapshot_says_what_its_log_holds(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    log.append(batch(0, 4), leader_epoch=0)
    log.append(transactional(9, producer_id=8), leader_epoch=0)
    log.close()
    plain, in_transaction = decode_snapshot((tmp_path / f"{5:020d}.snapshot").read_bytes())
    assert (plain.producer_id, plain.last_sequence, plain.last_offset, plain.transaction_first_offset) == (7, 3, 3, -1)
    assert (in_transaction.producer_id, in_transaction.transaction_first_offset) == (8, 4)


def test_the_last_stable_offset_waits_for_markers_and_their_replication(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(0), leader_epoch=0)
    assert log.last_stable_offset(1) == 1
    log.append(transactional(0, producer_id=8), leader_epoch=0)
    log.append(transactional(0, producer_id=9), leader_epoch=0)
    assert log.last_stable_offset(3) == 1
    assert commit(log, 8) == 3
    assert log.last_stable_offset(3) == 1
    assert log.last_stable_offset(4) == 2
    abort(log, 9)
    assert log.last_stable_offset(5) == 5


def test_aborted_transactions_of_a_range(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    log.append(transactional(0, producer_id=8), leader_epoch=0)
    log.append(transactional(0, producer_id=9), leader_epoch=0)
    abort(log, 9)
    commit(log, 8)
    log.append(transactional(1, producer_id=8), leader_epoch=0)
    abort(log, 8)
    first, second = AbortedTransaction(9, 1, 2, 0), AbortedTransaction(8, 4, 5, 6)
    assert log.aborted_transactions(0, 6) == [first, second]
    assert log.aborted_transactions(0, 4) == [first]
    assert log.aborted_transactions(3, 6) == [second]
    assert log.aborted_transactions(0, 1) == []
    log.close()
    entries = (tmp_path / f"{0:020d}.txnindex").read_bytes()
    assert entries.hex() == (
        "0000 0000000000000009 0000000000000001 0000000000000002 0000000000000000"
        "0000 0000000000000008 0000000000000004 0000000000000005 0000000000000006"
    ).replace(" ", "")
    assert open_log(clean=True).aborted_transactions(0, 6) == [first, second]


def test_markers_are_in_the_log_but_no_application_sees_them(open_log: OpenLog) -> None:
    log = open_log()
    log.append(transactional(0), leader_epoch=5)
    end(log, ControlType.COMMIT)
    data = log.read(0, 1000, up_to_offset=2)
    assert [(header.base_offset, header.is_control) for _, header in walk(data)] == [(0, False), (1, True)]
    assert [record.offset for record in decode_records(data)] == [0]
    assert log.verify().findings == ()
    assert open_log().log_end_offset == 2


def test_markers_out_of_date_leave_the_log_as_it_was(open_log: OpenLog) -> None:
    log = open_log()
    end(log, ControlType.COMMIT, epoch=2, coordinator_epoch=5)
    with pytest.raises(InvalidProducerEpochError):
        end(log, ControlType.ABORT, epoch=1, coordinator_epoch=5)
    with pytest.raises(CoordinatorFencedError):
        end(log, ControlType.ABORT, epoch=2, coordinator_epoch=4)
    assert log.log_end_offset == 1
    with pytest.raises(InvalidProducerEpochError):
        log.append(batch(0, epoch=1), leader_epoch=0)


@pytest.mark.parametrize("damage", ["missing", "cut", "garbage"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_transaction_index_is_found_again_in_the_log(
    open_log: OpenLog, tmp_path: Path, damage: str, *, clean: bool
) -> None:
    log = open_log(segment_bytes=400)
    for producer_id in range(12):
        log.append(transactional(0, producer_id=producer_id), leader_epoch=0)
        if producer_id % 3 == 2:
            abort(log, producer_id)
            commit(log, producer_id - 1)
    expected = log.aborted_transactions(0, log.log_end_offset)
    stable = log.last_stable_offset(log.log_end_offset)
    log.close()
    files = sorted(tmp_path.glob("*.txnindex"))
    assert len(files) > 1
    for path in files:
        if damage == "missing" and not clean:
            path.unlink()
        elif damage == "cut":
            path.write_bytes(path.read_bytes()[:-1])
        elif damage == "garbage":
            path.write_bytes(b"\xff" * 34)
    again = open_log(clean=clean, segment_bytes=400)
    assert again.aborted_transactions(0, again.log_end_offset) == expected
    assert len(expected) == 4
    assert again.last_stable_offset(again.log_end_offset) == stable == 0
