"""Produced batches that lie, each with a right CRC: about a record, about the block of records, or in the header.

    lying = draw(lying_batches())
    lying.lie, lying.draft.sealed()      how it lies, and its bytes

A lie is told of one batch of one to five records, in any codec. `honest` is the lie that is none.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hypothesis import strategies as st

from millrace.records.batch import NO_TIMESTAMP, TIMESTAMP_TYPE_FLAG, BatchHeader, sealed_batch
from millrace.records.compression import Codec, compress
from millrace.records.record import NO_PRODUCER, BatchProducer
from millrace.records.varint import encode_varint

BASE_TIMESTAMP_MS = 1_700_000_000_000
LONG = 5_000
HUGE = 2**31 - 1
HONEST = "honest"


@dataclass(frozen=True)
class Parts:
    """One record as it is encoded; what is None is what it ought to be."""

    offset_delta: int
    timestamp_delta: int = 0
    attributes: int = 0
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    length: int | None = None
    key_length: int | None = None
    value_length: int | None = None
    header_count: int | None = None
    header_key_length: int | None = None
    header_value_length: int | None = None
    offset_bytes: bytes | None = None
    timestamp_bytes: bytes | None = None
    tail: bytes = b""

    def encoded(self) -> bytes:
        """Returns its bytes."""
        body = b"".join(
            (
                bytes([self.attributes & 0xFF]),
                self.timestamp_bytes or encode_varint(self.timestamp_delta),
                self.offset_bytes or encode_varint(self.offset_delta),
                _field(self.key, self.key_length),
                _field(self.value, self.value_length),
                encode_varint(len(self.headers) if self.header_count is None else self.header_count),
                *(
                    _field(key, self.header_key_length) + _field(value, self.header_value_length)
                    for key, value in self.headers
                ),
                self.tail,
            )
        )
        return encode_varint(len(body) if self.length is None else self.length) + body


def _field(data: bytes | None, length: int | None) -> bytes:
    stated = -1 if data is None else len(data)
    return encode_varint(stated if length is None else length) + (data or b"")


@dataclass(frozen=True)
class Draft:
    """A batch before it is sealed."""

    records: tuple[Parts, ...]
    codec: Codec = Codec.NONE
    header: Mapping[str, int] = field(default_factory=dict)  # fields that are not what they ought to be
    producer: BatchProducer = NO_PRODUCER
    flags: int = 0
    junk: bytes = b""  # behind the last record
    body: bytes | None = None  # in place of all records
    block: Callable[[bytes], bytes] = bytes  # what becomes of the compressed block

    def sealed(self) -> bytes:
        """Returns the batch with its length and its CRC."""
        body = b"".join(record.encoded() for record in self.records) + self.junk if self.body is None else self.body
        times = [_in_64_bits(BASE_TIMESTAMP_MS + record.timestamp_delta) for record in self.records]
        header = BatchHeader(0, last_offset_delta=len(self.records) - 1, attributes=self.codec | self.flags)._replace(
            base_timestamp=BASE_TIMESTAMP_MS,
            max_timestamp=max([NO_TIMESTAMP, *times]),
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            base_sequence=self.producer.base_sequence,
            record_count=len(self.records),
        )
        return sealed_batch(_changed(header, self.header), self.block(compress(self.codec, body)))


def _in_64_bits(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def _changed(header: BatchHeader, changes: Mapping[str, Any]) -> BatchHeader:
    return header._replace(**changes)


class Lying(NamedTuple):
    """A batch before it is sealed, and how it lies."""

    lie: str
    draft: Draft


Lie = Callable[[Draft, int], Draft]  # of a batch, about the record of an index


def _of_record(**changes: Any) -> Lie:
    """Returns a lie about one record."""

    def tell(draft: Draft, index: int) -> Draft:
        records = list(draft.records)
        records[index] = replace(records[index], **changes)
        return replace(draft, records=tuple(records))

    return tell


def _of_header(**changes: int) -> Lie:
    """Returns a lie in fields of the header."""
    return lambda draft, _: replace(draft, header={**draft.header, **changes})


def _of_count(by: int, *, deltas: bool) -> Lie:
    """Returns a lie about how many records there are; `deltas` says whether the last offset delta says the same."""

    def tell(draft: Draft, _: int) -> Draft:
        count = len(draft.records) + by
        changes = {"record_count": count} | ({"last_offset_delta": count - 1} if deltas else {})
        return replace(draft, header={**draft.header, **changes})

    return tell


def _offsets(offset_of: Callable[[int, int], int]) -> Lie:
    """Returns a lie about all offset deltas: `offset_of(index, count)`."""

    def tell(draft: Draft, _: int) -> Draft:
        count = len(draft.records)
        return replace(
            draft,
            records=tuple(replace(one, offset_delta=offset_of(at, count)) for at, one in enumerate(draft.records)),
        )

    return tell


def _of_block(change: Callable[[bytes], bytes]) -> Lie:
    return lambda draft, _: replace(draft, block=change)


HEADERS = ((b"name", b"value"), (b"other", None))
RECORD_LIES: dict[str, Lie] = {
    "a record's length too small": _of_record(length=3),
    "a record's length too large": _of_record(length=LONG),
    "a record's length negative": _of_record(length=-1),
    "a record's length huge": _of_record(length=HUGE),
    "a record's length 0": _of_record(length=0),
    "bytes behind a record's fields": _of_record(tail=b"\0\0"),
    "a key longer than the batch": _of_record(key_length=LONG),
    "a key longer than its record": _of_record(key_length=14),
    "a key's length below -1": _of_record(key=None, key_length=-2),
    "a key's length the least": _of_record(key=None, key_length=-(2**31)),
    "a value longer than the batch": _of_record(value_length=LONG),
    "a value's length below -1": _of_record(value=None, value_length=-7),
    "a value's length huge": _of_record(value_length=HUGE),
    "a header count too large": _of_record(headers=HEADERS, header_count=3),
    "a header count too small": _of_record(headers=HEADERS, header_count=1),
    "a header count negative": _of_record(headers=HEADERS, header_count=-1),
    "a header count huge": _of_record(headers=HEADERS, header_count=HUGE),
    "a header's key null": _of_record(headers=HEADERS, header_key_length=-1),
    "a header's key longer than the batch": _of_record(headers=HEADERS, header_key_length=LONG),
    "a header's value longer than the batch": _of_record(headers=HEADERS, header_value_length=LONG),
    "a header's value below -1": _of_record(headers=((b"name", None),), header_value_length=-2),
    "an offset delta beyond 32 bits": _of_record(offset_delta=2**32),
    "an offset delta of six bytes": _of_record(offset_bytes=b"\x80\x80\x80\x80\x80\x00"),
    "a timestamp delta of eleven bytes": _of_record(timestamp_bytes=b"\x80" * 10 + b"\x00"),
    "a timestamp delta beyond 64 bits": _of_record(timestamp_bytes=b"\xff" * 9 + b"\x03"),
    "a timestamp beyond 64 bits": _of_record(timestamp_delta=2**63 - 1),
    "a record's attributes": _of_record(attributes=0xFF),
}
BATCH_LIES: dict[str, Lie] = {
    "all offset deltas 0": _offsets(lambda _at, _count: 0),
    "offset deltas backwards": _offsets(lambda at, count: count - 1 - at),
    "offset deltas with gaps": _offsets(lambda at, _count: 2 * at),
    "offset deltas from 1": _offsets(lambda at, _count: at + 1),
    "offset deltas negative": _offsets(lambda at, _count: -1 - at),
    "more records than counted": _of_count(-1, deltas=True),
    "fewer records than counted": _of_count(1, deltas=True),
    "a count above the offsets": _of_count(1, deltas=False),
    "a count below the offsets": _of_count(-1, deltas=False),
    "a count of all and more": _of_count(HUGE - 10, deltas=True),
    "bytes behind the last record": lambda draft, _: replace(draft, junk=b"\0"),
    "no bytes at all": lambda draft, _: replace(draft, body=b""),
    "bytes that are no records": lambda draft, _: replace(draft, body=bytes(range(200, 256)) * 3),
    "nothing but zeros": lambda draft, _: replace(draft, body=bytes(100)),
}
HEADER_LIES: dict[str, Lie] = {
    "a count of 0": _of_header(record_count=0, last_offset_delta=-1),
    "a count of 0 over one offset": _of_header(record_count=0, last_offset_delta=0),
    "a count of -1": _of_header(record_count=-1),
    "a last offset delta of -1": _of_header(last_offset_delta=-1),
    "a last offset delta the least": _of_header(last_offset_delta=-(2**31), record_count=-(2**31) + 1),
    "a base offset": _of_header(base_offset=7),
    "a negative base offset": _of_header(base_offset=-1),
    "a leader epoch": _of_header(partition_leader_epoch=77),
    "a base timestamp of another time": _of_header(base_timestamp=5),
    "a base timestamp the least": _of_header(base_timestamp=-(2**63)),
    "a largest timestamp too large": _of_header(max_timestamp=2**62),
    "a largest timestamp too small": _of_header(max_timestamp=1),
    "a largest timestamp below -1": _of_header(max_timestamp=-5),
    "a producer id below -1": _of_header(producer_id=-2),
    "an epoch without a producer": _of_header(producer_epoch=3),
    "a sequence without a producer": _of_header(base_sequence=3),
}
FLAG_LIES: dict[str, Lie] = {
    "a control batch": lambda draft, _: replace(draft, flags=draft.flags | 0x20),
    "the log's append time": lambda draft, _: replace(draft, flags=draft.flags | TIMESTAMP_TYPE_FLAG),
    "a delete horizon": lambda draft, _: replace(draft, flags=draft.flags | 0x40),
    "bits of the future": lambda draft, _: replace(draft, flags=draft.flags | 0x100),
    "no key": _of_record(key=None),
    "neither key nor value": _of_record(key=None, value=None),
    "headers": _of_record(headers=HEADERS),
    "a header that is not UTF-8": _of_record(headers=((b"\xff\xfe", b""),)),
    "a time before 1970": _of_record(timestamp_delta=-BASE_TIMESTAMP_MS - 10),
    HONEST: lambda draft, _: draft,
}
BLOCK_LIES: dict[str, Lie] = {
    "a block cut short": _of_block(lambda block: block[:-5]),
    "a block of nothing": _of_block(lambda _: b""),
    "a block of another codec": _of_block(lambda _: zlib.compress(b"something else")),
    "a block with bytes behind it": _of_block(lambda block: block + b"\x01\x02\x03\x04"),
}
PRODUCER_LIES: dict[str, Lie] = {
    "a producer without an epoch": _of_header(producer_epoch=-1),
    "a producer with an epoch below -1": _of_header(producer_epoch=-2),
    "a producer without a sequence": _of_header(base_sequence=-1),
    "a producer with a sequence below -1": _of_header(base_sequence=-2),
    "a producer in another epoch": _of_header(producer_epoch=5),
}
LIES = RECORD_LIES | BATCH_LIES | HEADER_LIES | FLAG_LIES | BLOCK_LIES


@st.composite
def drafts(draw: st.DrawFn, codecs: Sequence[Codec] = tuple(Codec)) -> Draft:
    """Returns a batch that tells the truth."""
    octets = st.none() | st.binary(max_size=3) | st.binary(min_size=60, max_size=70)
    names = st.text(max_size=3).map(str.encode)
    records = [
        Parts(
            index,
            draw(st.sampled_from((0, 1, 70, -70, 10_000))),
            key=draw(st.sampled_from((b"key", b"", b"k" * 70))),
            value=draw(octets),
            headers=tuple(draw(st.lists(st.tuples(names, octets), max_size=2))),
        )
        for index in range(draw(st.sampled_from((1, 2, 3, 5))))
    ]
    return Draft(tuple(records), draw(st.sampled_from(codecs)))


@st.composite
def lying_batches(draw: st.DrawFn, lies: Mapping[str, Lie] = LIES) -> Lying:
    """Returns a batch with one of the lies; one that happens to be the truth is `HONEST`."""
    draft = draw(drafts())
    lie = draw(st.sampled_from(sorted(lies)))
    lied = lies[lie](draft, draw(st.integers(0, len(draft.records) - 1)))
    return Lying(HONEST if lied == draft else lie, lied)
