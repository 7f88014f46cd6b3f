import pytest

from millrace.config import MAX_INT
from millrace.errors import (
    CoordinatorFencedError,
    ErrorCode,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from millrace.records.batch import TRANSACTIONAL_FLAG, BatchHeader, read_header
from millrace.records.control import ControlType, EndTransactionMarker, decode_marker, encode_marker
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace_broker.storage.producers.producer_state import (
    CompletedTransaction,
    ProducerEntry,
    check_batch,
    check_marker,
    find_duplicate,
    with_batch,
    with_marker,
)

ABORT, COMMIT = (EndTransactionMarker(kind, coordinator_epoch=4) for kind in (ControlType.ABORT, ControlType.COMMIT))


def header(sequence: int, count: int = 1, *, epoch: int = 3, transactional: bool = False) -> BatchHeader:
    records = [NewRecord(b"v", timestamp_ms=1000 + slot) for slot in range(count)]
    producer = BatchProducer(7, epoch, sequence)
    return read_header(encode_batch(records, producer=producer, flags=TRANSACTIONAL_FLAG if transactional else 0))


def marker_header(epoch: int = 3) -> BatchHeader:
    return read_header(encode_marker(ABORT, producer_id=7, producer_epoch=epoch, timestamp_ms=2000))


def after(*batches: BatchHeader, offset: int = 100) -> ProducerEntry:
    entry = ProducerEntry(7)
    for batch in batches:
        entry = with_batch(entry, batch, offset)
        offset += batch.last_offset_delta + 1
    return entry


def test_batches_that_follow_on_are_accepted() -> None:
    entry = after(header(0, 10), header(10, 5))
    check_batch(entry, header(15, 3))
    assert (entry.last_sequence, entry.last_offset, entry.last_timestamp) == (14, 114, 1004)


@pytest.mark.parametrize("sequence", [0, 14, 16, MAX_INT])
def test_a_gap_or_a_step_back_is_refused(sequence: int) -> None:
    entry = after(header(0, 10), header(10, 5))
    with pytest.raises(OutOfOrderSequenceError, match=f"sequence {sequence} after 14") as caught:
        check_batch(entry, header(sequence, 2))
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER == 45


def test_an_unknown_producer_may_begin_anywhere() -> None:
    check_batch(ProducerEntry(7), header(0))
    check_batch(ProducerEntry(7), header(4711))


def test_a_newer_epoch_begins_at_zero_and_an_older_one_is_fenced() -> None:
    entry = after(header(0, 10))
    check_batch(entry, header(0, epoch=4))
    with pytest.raises(OutOfOrderSequenceError):
        check_batch(entry, header(10, epoch=4))
    with pytest.raises(InvalidProducerEpochError) as caught:
        check_batch(entry, header(10, epoch=2))
    assert caught.value.code == 47
    assert [batch.last_sequence for batch in with_batch(entry, header(0, 2, epoch=4), 110).batches] == [1]


def test_sequences_go_round() -> None:
    entry = after(header(MAX_INT - 1, 4))
    assert entry.last_sequence == 1
    assert entry.batches[-1].first_sequence == MAX_INT - 1
    check_batch(entry, header(2))
    check_batch(after(header(MAX_INT)), header(0))
    duplicate = find_duplicate(entry, header(MAX_INT - 1, 4))
    assert duplicate is not None
    assert (duplicate.first_offset, duplicate.last_offset) == (100, 103)


def test_the_last_five_batches_are_known_again() -> None:
    entry = after(*(header(10 * batch, 10) for batch in range(7)))
    found = [find_duplicate(entry, header(10 * batch, 10)) for batch in range(8)]
    assert [each and each.first_offset for each in found] == [None, None, 120, 130, 140, 150, 160, None]
    assert find_duplicate(entry, header(60, 9)) is None
    assert find_duplicate(entry, header(60, 10, epoch=4)) is None


def test_a_transaction_begins_with_its_first_batch_and_ends_with_its_marker() -> None:
    entry = after(header(0, 10), header(10, 5, transactional=True), header(15, transactional=True))
    assert entry.transaction_first_offset == 110
    ended, completed = with_marker(entry, marker_header(), ABORT, 116)
    assert completed == CompletedTransaction(7, 110, 116, is_aborted=True)
    assert not ended.has_open_transaction
    assert (ended.coordinator_epoch, ended.last_timestamp, ended.last_sequence) == (4, 2000, 15)
    check_batch(ended, header(16))
    again, nothing = with_marker(ended, marker_header(epoch=4), COMMIT, 117)
    assert nothing is None
    assert (again.batches, again.epoch) == ((), 4)
    check_batch(again, header(0, epoch=4))


def test_nothing_comes_between_the_batches_of_a_transaction() -> None:
    entry = after(header(0, transactional=True))
    with pytest.raises(InvalidTransactionStateError):
        check_batch(entry, header(1))
    check_batch(entry, header(1, transactional=True))


def test_markers_out_of_date_are_refused() -> None:
    entry, _ = with_marker(after(header(0, transactional=True)), marker_header(), COMMIT, 101)
    check_marker(entry, 3, COMMIT)
    with pytest.raises(InvalidProducerEpochError):
        check_marker(entry, 2, COMMIT)
    with pytest.raises(CoordinatorFencedError):
        check_marker(entry, 3, COMMIT._replace(coordinator_epoch=3))


def test_silent_producers_expire_unless_a_transaction_is_open() -> None:
    entry = after(header(0))
    assert not entry.is_expired(1999, 1000)
    assert entry.is_expired(2000, 1000)
    assert not after(header(0, transactional=True)).is_expired(10**12, 1000)


@pytest.mark.parametrize("marker", [ABORT, COMMIT])
def test_a_marker_is_read_as_it_was_written(marker: EndTransactionMarker) -> None:
    batch = encode_marker(marker, producer_id=7, producer_epoch=3, timestamp_ms=2000)
    found = read_header(batch)
    assert (found.is_control, found.is_transactional, found.base_sequence, found.producer_epoch) == (True, True, -1, 3)
    assert decode_marker(found, memoryview(batch)) == marker
    assert batch[61:].hex(" ", 1) == f"20 00 00 00 08 00 00 00 0{marker.control_type:d} 0c 00 00 00 00 00 04 00"
