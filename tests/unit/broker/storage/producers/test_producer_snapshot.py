import pytest
from crc32c import crc32c

from millrace.errors import CorruptRecordError
from millrace_broker.storage.producers.producer_state import BatchMetadata, ProducerEntry
from millrace_broker.storage.producers.producer_state_manager import decode_snapshot, encode_snapshot

ENTRIES = [
    ProducerEntry(7, 3, (BatchMetadata(14, 114, 4, 1004),), 1004, 9, 110),
    ProducerEntry(8, 0, (), 2000, 5),
]
# version 1, CRC-32C, two entries; field by field as Kafka's ProducerStateManager lays them out.
BODY = bytes.fromhex(
    "00000002"
    "0000000000000007 0003 0000000e 0000000000000072 00000004 00000000000003ec 00000009 000000000000006e"
    "0000000000000008 0000 ffffffff ffffffffffffffff 00000000 00000000000007d0 00000005 ffffffffffffffff"
)
FILE = b"\x00\x01" + crc32c(BODY).to_bytes(4, "big") + BODY


def test_a_snapshot_is_kafkas_file_byte_for_byte() -> None:
    assert encode_snapshot(ENTRIES) == FILE
    assert decode_snapshot(FILE) == ENTRIES
    assert encode_snapshot([]).hex() == "0001" + crc32c(bytes(4)).to_bytes(4, "big").hex() + "00000000"


def test_only_the_last_of_a_producers_batches_is_kept() -> None:
    batches = tuple(BatchMetadata(number, number, 0, 10) for number in range(5))
    (entry,) = decode_snapshot(encode_snapshot([ProducerEntry(1, 0, batches, 10)]))
    assert entry == ProducerEntry(1, 0, batches[-1:], 10)


def test_every_flipped_byte_and_every_cut_is_noticed() -> None:
    for position in range(len(FILE)):
        flipped = bytearray(FILE)
        flipped[position] ^= 0x10
        for damaged in (bytes(flipped), FILE[:position]):
            with pytest.raises(CorruptRecordError):
                decode_snapshot(damaged)
    with pytest.raises(CorruptRecordError):
        decode_snapshot(bytes(200))


def test_a_count_that_does_not_fit_is_refused() -> None:
    body = b"\x00\x00\x00\x03" + BODY[4:]
    with pytest.raises(CorruptRecordError, match="3 entries"):
        decode_snapshot(b"\x00\x01" + crc32c(body).to_bytes(4, "big") + body)
