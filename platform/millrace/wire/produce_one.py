"""A Produce request for one partition in its plainest form, which nearly all requests have.

    v5-v8    -1 i16, acks i16, timeout i32, 1 i32, | name i16 + bytes, 1 i32, index i32 | records i32 + bytes
    v9-v12    0,     acks i16, timeout i32, 2,     | name varint + bytes, 2, index i32  | records varint + bytes, 0 0 0
    v13       0,     acks i16, timeout i32, 2,     | topic id, 2, index i32             | records varint + bytes, 0 0 0
              no transactional id       one topic                  one partition          no tagged fields

The bytes between the bars are the place of the records. They are the same in request after request, so their meaning is
remembered, and with it the start and the end of the answer. To read such a request of 100 B and to write its answer
takes 1 µs; by the schema 18.

A request of any other form, or one that breaks a rule, is left to `produce.decode_produce_request`, which would decode
the requests of this form to the same values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache, lru_cache
from typing import NamedTuple
from uuid import UUID

from millrace.errors import MalformedRequestError
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.encoder import contents
from millrace.wire.produce import (
    FIRST_FLEXIBLE,
    FIRST_VERSION_WITH_LOG_START,
    FIRST_VERSION_WITH_TOPIC_IDS,
    PARTITION,
    PartitionProduced,
    TopicProduced,
    encode_produce_response,
)
from millrace.wire.schema import read_varint

PLACES_MAX = 16_384
TOPIC_ID_BYTES = 16
ANSWER_PART = 3  # the fixed fields: behind the head of the topics, the topic's name, the head of its partitions
NOTHING_MORE = b"\x00\x00\x00"  # tagged fields of partition, topic and request

_PLAIN_START = struct.Struct(">hhiih")
_PLAIN_PLACE = 12  # where in the request it begins
_PLAIN_END = struct.Struct(">iii")
_START = struct.Struct(">BhiBB")
_PLACE = 8
_INDEX_BYTES = 4
_LENGTH_BYTES = 4
_PARTITION_BYTES = 1 + _INDEX_BYTES  # how many partitions, the index of the only one
_PLACE_BY_ID_END = _PLACE + TOPIC_ID_BYTES + _PARTITION_BYTES

OneProduce = tuple[int, int, bytes, memoryview]  # acks, timeout in ms, place, records


class ProducePlace(NamedTuple):
    """The place of records; `answer_start` and `answer_end` surround the fixed fields of an answer without an error."""

    name: str
    topic_id: UUID
    partition: int
    answer_start: bytes
    answer_end: bytes

    def appended(self, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> bytes:
        """Returns the answer, without its header, to records that were appended."""
        _, _, partition, start, end = self
        return start + PARTITION.pack(partition, 0, base_offset, log_append_time_ms, log_start_offset) + end


@cache
def one_produce_reader(version: int) -> Callable[[memoryview], OneProduce | None]:
    """Returns the reader of requests of this version, which returns None for one that is not of the plainest form."""
    if version < FIRST_VERSION_WITH_LOG_START:
        return lambda _: None
    if version < FIRST_FLEXIBLE:
        return _read_plain
    return _flexible_reader(by_id=version >= FIRST_VERSION_WITH_TOPIC_IDS)


@lru_cache(maxsize=PLACES_MAX)
def produce_place(version: int, place: bytes) -> ProducePlace:
    """Returns the meaning of a place's bytes; raises MalformedRequestError where the topic's name is not UTF-8."""
    name, topic_id = "", NO_TOPIC_ID
    try:
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            topic_id = UUID(bytes=place[:TOPIC_ID_BYTES])
        elif version >= FIRST_FLEXIBLE:
            name = str(place[1 : -_INDEX_BYTES - 1], "utf-8")
        else:
            name = str(place[2 : -_INDEX_BYTES - _LENGTH_BYTES], "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedRequestError(f"PRODUCE v{version}: the name of a topic is not UTF-8: {error}") from error
    partition = int.from_bytes(place[-_INDEX_BYTES:], "big", signed=True)
    answer = encode_produce_response(
        version, [TopicProduced(name, topic_id, [PartitionProduced(partition, 0, 0, 0, 0)])]
    )
    start, end = (b"".join(map(contents, part)) for part in (answer[:ANSWER_PART], answer[ANSWER_PART + 1 :]))
    return ProducePlace(name, topic_id, partition, start, end)


def _flexible_reader(*, by_id: bool) -> Callable[[memoryview], OneProduce | None]:
    start = _START.unpack_from

    def read(body: memoryview) -> OneProduce | None:
        try:
            no_id, acks, timeout_ms, topics, name_length = start(body)
            place_end = _PLACE_BY_ID_END if by_id else _PLACE + name_length + _PARTITION_BYTES
            partitions, length = body[place_end - _PARTITION_BYTES], body[place_end]
            position = place_end + 1
            if length > 0x7F:
                if (second := body[position]) < 0x80:
                    length, position = (length & 0x7F) | second << 7, position + 1
                else:
                    length, position = read_varint(body, place_end)
        except (IndexError, ValueError, struct.error):
            return None
        end = position + length - 1
        is_plain = not no_id and topics == 2 and partitions == 2 and (by_id or 0 < name_length <= 0x7F)
        if not is_plain or not length or body[end:] != NOTHING_MORE:
            return None
        return acks, timeout_ms, bytes(body[_PLACE:place_end]), body[position:end]

    return read


def _read_plain(body: memoryview) -> OneProduce | None:
    try:
        no_id, acks, timeout_ms, topics, name_length = _PLAIN_START.unpack_from(body)
        partitions, _, length = _PLAIN_END.unpack_from(body, _PLAIN_START.size + max(name_length, 0))
    except struct.error:
        return None
    position = _PLAIN_START.size + name_length + _PLAIN_END.size
    is_plain = no_id == -1 and topics == 1 and partitions == 1 and name_length >= 0 <= length
    if not is_plain or position + length != len(body):
        return None
    return acks, timeout_ms, bytes(body[_PLAIN_PLACE : position - _LENGTH_BYTES]), body[position:]
