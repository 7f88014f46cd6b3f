"""What a mirror sends: cut into pieces of whole batches, led by the leader here; and what ends a mirroring."""

from uuid import UUID

import pytest

from millrace.errors import CorruptRecordError, UnsupportedMagicError
from millrace.records.batch import check_crc, walk
from millrace.records.control import ControlType, EndTransactionMarker, decode_marker, decode_mirror_end
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.replication.mirrored_log import PIECE_BYTES, ending, led_in, pieces
from millrace_broker.storage.producers.producer_state import ProducerEntry

TOPIC_ID = UUID(int=7)


def batch(offset: int, size_bytes: int = 10, count: int = 1) -> bytes:
    return encode_batch([NewRecord(b"x" * size_bytes)] * count, base_offset=offset)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([10], [1]),
        ([10, 10, 10], [3]),
        ([PIECE_BYTES // 2] * 3, [1, 1, 1]),
        ([PIECE_BYTES // 3] * 5, [2, 2, 1]),
        ([2 * PIECE_BYTES, 10], [1, 1]),
        ([10, 2 * PIECE_BYTES, 10, 10], [1, 1, 2]),
    ],
)
def test_pieces_are_of_whole_batches(sizes, expected):
    records = b"".join(batch(offset, size) for offset, size in enumerate(sizes))
    found = list(pieces(records))
    assert [one.records for one in found] == expected
    assert b"".join(one.batches for one in found) == records


@pytest.mark.parametrize("cut", [1, 30, 70])
def test_a_last_batch_that_is_cut_short_is_left_out(cut):
    whole = batch(0, count=3)
    (piece,) = pieces(whole + batch(3)[:-cut])
    assert (bytes(piece.batches), piece.records) == (whole, 3)


@pytest.mark.parametrize("other", [b"\xff" * 61, bytes(61)])
def test_other_bytes_are_refused(other):
    with pytest.raises((CorruptRecordError, UnsupportedMagicError)):
        list(pieces(batch(0) + other))


def test_batches_get_the_leader_epoch_and_keep_all_else():
    records = batch(3) + batch(9, count=2)
    led = led_in(17, records)
    assert [header.partition_leader_epoch for _, header in walk(led)] == [17, 17]
    for position, header in walk(led):
        check_crc(led, position, header)
    assert led_in(-1, led) == records


def entry(producer_id: int, *, first_offset: int = -1, coordinator_epoch: int = -1) -> ProducerEntry:
    return ProducerEntry(
        producer_id, epoch=5, coordinator_epoch=coordinator_epoch, transaction_first_offset=first_offset
    )


@pytest.mark.parametrize(
    ("producers", "aborted"),
    [
        ([], []),
        ([entry(1), entry(2)], []),
        ([entry(1, first_offset=0), entry(2), entry(3, first_offset=4, coordinator_epoch=9)], [(1, 0), (3, 9)]),
    ],
)
def test_open_transactions_are_aborted_before_the_end(producers, aborted):
    data = ending(producers, 40, TOPIC_ID, now_ms=1000)
    found = [(header, memoryview(data)[at : at + header.size_bytes]) for at, header in walk(data)]
    *markers, (last, end) = found
    assert [header.base_offset for header, _ in found] == list(range(40, 41 + len(aborted)))
    assert [(header.producer_id, header.producer_epoch) for header, _ in markers] == [(one, 5) for one, _ in aborted]
    assert [decode_marker(header, view) for header, view in markers] == [
        EndTransactionMarker(ControlType.ABORT, epoch) for _, epoch in aborted
    ]
    assert decode_mirror_end(last, end) == TOPIC_ID
    assert (last.is_control, last.is_transactional, last.producer_id) == (True, False, -1)
