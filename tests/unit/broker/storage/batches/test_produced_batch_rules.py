"""What a producer may send (storage.validation)."""

import struct

import pytest

from millrace.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordError,
    RecordTooLargeError,
    UnsupportedCodecError,
    UnsupportedMagicError,
)
from millrace.records.batch import CRC_POSITION, compute_crc
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage.batches.preparation import validate_produced

GOOD = encode_batch([NewRecord(b"a"), NewRecord(b"b")], base_offset=500)


def changed(position: int, layout: str, value: int) -> bytes:
    """The good batch with one header field changed and the CRC made right again."""
    batch = bytearray(GOOD)
    struct.pack_into(layout, batch, position, value)
    struct.pack_into(">I", batch, CRC_POSITION, compute_crc(batch, 0, len(batch)))
    return bytes(batch)


def test_good_batches_are_found_one_behind_the_other() -> None:
    found = validate_produced(memoryview(GOOD * 3), len(GOOD))
    assert [position for position, _ in found] == [0, len(GOOD), 2 * len(GOOD)]


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (b"", CorruptRecordError),
        (GOOD[:-1], CorruptRecordError),
        (GOOD + b"\0", CorruptRecordError),
        (GOOD[:60], CorruptRecordError),
        (changed(16, ">b", 1), UnsupportedMagicError),
        (changed(16, ">b", 3), CorruptRecordError),
        (changed(8, ">i", 48), CorruptRecordError),
        (changed(8, ">i", -1), CorruptRecordError),
        (changed(21, ">h", 5), UnsupportedCodecError),
        (changed(21, ">h", 0x20), InvalidRecordError),
        (changed(21, ">h", 0x08), InvalidTimestampError),
        (changed(57, ">i", 1), InvalidRecordError),
        (changed(57, ">i", -1), InvalidRecordError),
        (changed(23, ">i", -1), InvalidRecordError),
        (changed(23, ">i", 2), InvalidRecordError),
    ],
)
def test_a_broken_rule_has_its_error(batch: bytes, error: type[RecordError]) -> None:
    with pytest.raises(error):
        validate_produced(memoryview(batch), 1000)


def test_a_batch_above_the_limit_is_too_large() -> None:
    with pytest.raises(RecordTooLargeError, match=f"max.message.bytes={len(GOOD) - 1}"):
        validate_produced(memoryview(GOOD), len(GOOD) - 1)


def test_a_flip_of_any_byte_under_the_crc_is_noticed() -> None:
    for position in range(CRC_POSITION, len(GOOD)):
        batch = bytearray(GOOD)
        batch[position] ^= 1
        with pytest.raises(RecordError):
            validate_produced(memoryview(batch), 1000)
