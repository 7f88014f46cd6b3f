"""Bytes that resemble what a broker sends: valid batches and message sets, most of them mutated.

    hostile = HostileRecords(random)
    buffer = hostile.buffer()       one to three batches, or a message set, or a set followed by batches

A mutation lies inside the records, before they are compressed and the CRC is computed, or in the header before its CRC:
a mutation that the CRC finds would test nothing behind that check. A third of the buffers stay whole.
"""

from __future__ import annotations

import struct
import zlib
from random import Random

from millrace.records.batch import HEADER_BYTES, TIMESTAMP_TYPE_FLAG, BatchHeader, read_header, sealed_batch
from millrace.records.compression import Codec, compress
from millrace.records.message_set import (
    CRC_BYTES,
    ENTRY,
    MAGIC_V1,
    MIN_MESSAGE_BYTES,
    compress_block,
    encode_message_set,
    walk_entries,
)
from millrace.records.record import NewRecord, Record, encode_batch

OCTETS = (0x00, 0x01, 0x02, 0x03, 0x0C, 0x0E, 0x7E, 0x7F, 0x80, 0x81, 0xC0, 0xED, 0xF4, 0xFE, 0xFF)
VARINTS = (
    b"\x80\x00",
    b"\x80" * 9 + b"\x01",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 9 + b"\x02",
    b"\xff" * 10,
    b"\xfe\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
)
INTEGERS = (-(2**63), -(2**31), -2, -1, 0, 1, 1_700_000_000_000, 2**31 - 1, 2**62, 2**63 - 2, 2**63 - 1)
COUNTS = (-1, 0, 1, 2, 3, 255, 2**31 - 1)
TEXTS = ("", "k", "trace-id", "ß", "日本", "🚂")
LEGACY_CODECS = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
CORPUS = 40


class HostileRecords:
    """Makes buffers from one random source; the same source gives the same buffers."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._batches = [encode_batch(self._new_records(), base_offset=100 * index) for index in range(CORPUS)]
        self._sets = [self._message_set(magic, codec) for magic in (0, 1) for codec in LEGACY_CODECS for _ in range(4)]

    def buffer(self) -> bytes:
        """Returns the bytes of one fetch."""
        kind = self._chance.randrange(8)
        parts = [self.hostile_set() for _ in range(kind in {0, 1})]
        if kind != 0:
            parts += [self.batch() for _ in range(self._chance.randint(1, 3))]
        whole = b"".join(parts)
        return whole[: self._chance.randrange(len(whole))] if self._chance.random() < 0.03 else whole

    def batch(self) -> bytes:
        """Returns one batch of v2."""
        batch = self._chance.choice(self._batches)
        header, records = read_header(batch), batch[HEADER_BYTES:]
        if self._chance.random() < 0.6:
            records = self._mutated(records)
        if self._chance.random() < 0.25:
            header = self._other_header(header)
        if self._chance.random() < 0.15:
            header = header._replace(attributes=header.attributes | TIMESTAMP_TYPE_FLAG)
        codec = self._chance.choice((Codec.NONE, Codec.NONE, *Codec))
        return sealed_batch(header._replace(attributes=header.attributes | codec), compress(codec, records))

    def _octets(self) -> bytes | None:
        size = self._chance.choice((-1, 0, 1, 7, 40, 70, 200))
        return None if size < 0 else self._chance.randbytes(size)

    def _new_records(self) -> list[NewRecord]:
        choice = self._chance.choice
        return [
            NewRecord(
                self._octets(),
                self._octets(),
                choice((-1, 1_700_000_000_000 + self._chance.randrange(10**6))),
                tuple((choice(TEXTS), self._octets()) for _ in range(choice((0, 0, 0, 1, 3)))),
            )
            for _ in range(choice((1, 2, 5, 20)))
        ]

    def _other_header(self, header: BatchHeader) -> BatchHeader:
        choice = self._chance.choice
        match self._chance.randrange(5):
            case 0:
                return header._replace(record_count=choice((header.record_count + 1, header.record_count - 1, *COUNTS)))
            case 1:
                return header._replace(last_offset_delta=choice(COUNTS))
            case 2:
                return header._replace(base_offset=choice(INTEGERS))
            case 3:
                return header._replace(base_timestamp=choice(INTEGERS), max_timestamp=choice(INTEGERS))
            case _:
                return header._replace(attributes=self._chance.randrange(256))

    def _mutated(self, data: bytes) -> bytes:
        out = bytearray(data)
        for _ in range(self._chance.choice((1, 1, 1, 2, 4))):
            at = self._chance.randrange(len(out) + 1)
            match self._chance.randrange(6):
                case 0 | 1 if at < len(out):
                    out[at] = self._chance.choice(OCTETS)
                case 2:
                    out[at : at + self._chance.choice((0, 1, 2))] = self._chance.choice(VARINTS)
                case 3:
                    del out[at : at + self._chance.choice((1, 2, 9))]
                case 4:
                    out[at:at] = out[at : at + self._chance.choice((1, 8, 80))]
                case _:
                    out[at : at + 4] = struct.pack(">i", self._chance.choice(COUNTS))
        return bytes(out)

    def _message_set(self, magic: int, codec: Codec) -> tuple[bytes, int, Codec]:
        records = [
            Record(index, self._chance.choice((-1, 1_700_000_000_000)), self._octets(), self._octets())
            for index in range(self._chance.choice((1, 2, 9)))
        ]
        return encode_message_set(records, magic=magic), magic, codec

    def hostile_set(self) -> bytes:
        """Returns one message set, of v0 or v1."""
        messages, magic, codec = self._chance.choice(self._sets)
        if self._chance.random() < 0.7:
            messages = b"".join(self._hostile_entry(bytes(entry)) for _, entry in walk_entries(messages))
        if codec is Codec.NONE:
            return messages
        if self._chance.random() < 0.1:
            messages += self._chance.choice(self._sets)[0]
        if self._chance.random() < 0.1:
            messages = messages[: self._chance.randrange(len(messages) + 1)]
        block = compress_block(codec, messages, magic)
        flags = self._chance.choice((0, TIMESTAMP_TYPE_FLAG)) if magic == MAGIC_V1 else 0
        offset = self._chance.choice((0, 3, 1000, *INTEGERS))
        wrapper = encode_message_set([Record(offset, 5, None, block)], magic=magic)
        return sealed_entry(offset, wrapper[ENTRY.size :], attributes=codec | flags)

    def _hostile_entry(self, entry: bytes) -> bytes:
        chance = self._chance.random()
        if chance < 0.3:
            return sealed_entry(ENTRY.unpack_from(entry)[0], self._mutated(entry[ENTRY.size :]))
        if chance < 0.4:
            return sealed_entry(self._chance.choice(INTEGERS), entry[ENTRY.size :])
        if chance < 0.43:
            return sealed_entry(0, entry[ENTRY.size :][: MIN_MESSAGE_BYTES + self._chance.randrange(12)])
        if chance < 0.46:
            return sealed_entry(0, entry[ENTRY.size :], magic=self._chance.randrange(3))
        return self._mutated(entry) if chance < 0.49 else entry


def sealed_entry(offset: int, message: bytes, attributes: int | None = None, magic: int | None = None) -> bytes:
    """Returns an entry of a message set with the size and the CRC that belong to these bytes."""
    covered = bytearray(message[CRC_BYTES:])
    if magic is not None:
        covered[0] = magic
    if attributes is not None:
        covered[1] = attributes
    crc = zlib.crc32(covered).to_bytes(CRC_BYTES, "big")
    return ENTRY.pack(offset, CRC_BYTES + len(covered)) + crc + bytes(covered)
