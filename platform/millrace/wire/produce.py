"""Produce, versions 0 to 13: the message that the broker handles most.

request    v0   acks, timeout, topics [name, partitions [index, records]]
           v3   + transactional id          v9   flexible          v13  topic id for name (KIP-516)
answer     v0   topics [name, partitions [index, error, base offset]]
           v1   + throttle time             v2   + log append time
           v5   + log start offset          v8   + record errors, error message (KIP-467)
           v9   flexible                    v10  + tagged: current leader, its address (KIP-951)
           v13  topic id for name

kio's decoder is native and the faster one for small requests, but it copies the records: one of 100 B takes it 3 µs,
and 7 by hand, one of 1 MB 66 µs, and 7 by hand. Both decoders use the same names, so a handler reads their requests
alike. The answer for one partition takes 5 µs by hand, and 8 from the schema.

Nearly all requests are for one partition, in their plainest form:

    v5-v8    -1 i16, acks i16, timeout i32, 1 i32, | name i16 + bytes, 1 i32, index i32 | records i32 + bytes
    v9-v12    0,     acks i16, timeout i32, 2,     | name varint + bytes, 2, index i32  | records varint + bytes, 0 0 0
    v13       0,     acks i16, timeout i32, 2,     | topic id, 2, index i32             | records varint + bytes, 0 0 0
              no transactional id       one topic                  one partition          no tagged fields

The bytes between the bars are the place of the records. They are the same in request after request, so their meaning is
remembered, and with it the start and the end of the answer. To read such a request of 100 B and to write its answer
takes 1 µs; by the schema 18. A request of any other form, or one that breaks a rule, is left to
`decode_produce_request`, which would decode the requests of this form to the same values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from millrace.errors import MalformedRequestError
from millrace.turns import each
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decoder
from millrace.wire.decoder import UUID_BYTES, Decoder
from millrace.wire.encoder import Encoder, Parts, contents, shortened
from millrace.wire.metadata import BrokerMetadata, LeaderHint, encode_current_leader, encode_node_endpoints
from millrace.wire.schema import read_varint

if TYPE_CHECKING:
    from millrace.wire.messages.produce import ProduceRequest as RequestOfKio
    from millrace.wire.messages.produce import TopicProduceData as TopicOfKio

FIRST_FLEXIBLE = 9
FIRST_VERSION_WITH_TOPIC_IDS = 13
PARTITION = struct.Struct(">ihqqq")
PARTITION_BEFORE_V5 = struct.Struct(">ihqq")
PARTITION_BEFORE_V2 = struct.Struct(">ihq")
CURRENT_LEADER_TAG = 0
RECORD_ERRORS_MAX = 1000
FIRST_VERSION_WITH_TRANSACTIONS = 3
FIRST_VERSION_WITH_LOG_START = 5
COPIED_BYTES_MAX = 32 << 10
MANY_PARTITIONS = 500
ACKS_AND_TIMEOUT_BYTES, INDEX_BYTES = 6, 4
TOPICS_AT, NAME_AT = 7, 8  # behind one byte for no transactional id, acks and timeout, in flexible versions
ONE_ELEMENT, MAX_ONE_BYTE = 2, 0x7F  # of lengths that are varints of one more


@dataclass(frozen=True, slots=True)
class PartitionToProduce:
    """The records for one partition in a Produce request; they may be a view of the request's bytes."""

    index: int
    records: bytes | memoryview | None


class TopicToProduce(NamedTuple):
    """One topic of a Produce request, with a name up to v12, and an id from v13 on."""

    name: str
    topic_id: UUID | None
    partition_data: Sequence[PartitionToProduce]


class ProduceRequest(NamedTuple):
    """A decoded Produce request; `timeout` is how long acks=all may wait for the in-sync replicas."""

    transactional_id: str | None
    acks: int
    timeout: timedelta
    topic_data: Sequence[TopicToProduce]


# As either decoder reads them.
AnyProduceRequest: TypeAlias = "ProduceRequest | RequestOfKio"
AnyTopicToProduce: TypeAlias = "TopicToProduce | TopicOfKio"


class PartitionProduced(NamedTuple):
    """One partition of a Produce response; offsets are -1 where appending failed."""

    partition_index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()
    current_leader: LeaderHint | None = None


class TopicProduced(NamedTuple):
    """One topic of a Produce response; its id is sent from v13 on, its name before."""

    name: str
    topic_id: UUID
    partitions: Sequence[PartitionProduced]


def decode_produce_request(version: int, body: memoryview | bytes) -> AnyProduceRequest:
    """Returns the decoded Produce request; raises MalformedRequestError for bytes that are no such request."""
    return produce_decoder(version)(body)


@cache
def produce_decoder(version: int) -> Callable[[memoryview | bytes], AnyProduceRequest]:
    """Returns a function that decodes Produce requests of one version; it raises MalformedRequestError."""
    copying: Callable[[memoryview | bytes], RequestOfKio] = decoder(ApiKey.PRODUCE, version, Direction.REQUEST)

    def decode(body: memoryview | bytes) -> AnyProduceRequest:
        return copying(body) if len(body) <= COPIED_BYTES_MAX else decode_without_copying(version, body)

    return decode


def decode_without_copying(version: int, body: memoryview | bytes) -> ProduceRequest:
    """Returns the decoded Produce request, whose records are views of `body`; raises MalformedRequestError."""
    read = Decoder(body, flexible=version >= FIRST_FLEXIBLE, error=MalformedRequestError)
    transactional_id = read.nullable_string() if version >= FIRST_VERSION_WITH_TRANSACTIONS else None
    acks, timeout_ms = read.int16(), read.int32()
    topics = [_topic_to_produce(read, version) for _ in range(read.array_length())]
    read.tagged_fields()
    return ProduceRequest(transactional_id, acks, timedelta(milliseconds=timeout_ms), topics)


def has_many_partitions(version: int, body: memoryview) -> bool:
    """Returns whether a Produce request has more than `MANY_PARTITIONS`; False for bytes that are no request."""
    if version >= FIRST_FLEXIBLE and _has_one_topic_of_few(version, body):
        return False
    read = Decoder(body, flexible=version >= FIRST_FLEXIBLE, error=MalformedRequestError)
    partitions = 0
    try:
        if version >= FIRST_VERSION_WITH_TRANSACTIONS:
            read.nullable_string()
        read.skip(ACKS_AND_TIMEOUT_BYTES)
        topics = read.array_length()
        for _ in range(topics):
            partitions += _count_partitions(read, version, is_last=topics == 1)
            if partitions > MANY_PARTITIONS:
                return True
    except MalformedRequestError:
        return False
    return False


def _has_one_topic_of_few(version: int, body: memoryview) -> bool:
    """Returns quickly whether a flexible request has, as nearly all, one topic and fewer than 127 partitions."""
    try:
        start = body[0]  # one more than the bytes of the transactional id; 0 for none
        at = start - 1 if start else 0
        name_bytes = UUID_BYTES if version >= FIRST_VERSION_WITH_TOPIC_IDS else body[at + NAME_AT]
        has_one = start <= MAX_ONE_BYTE and body[at + TOPICS_AT] == ONE_ELEMENT and name_bytes <= MAX_ONE_BYTE
        return has_one and body[at + NAME_AT + name_bytes] <= MAX_ONE_BYTE
    except IndexError:
        return False


def _count_partitions(read: Decoder, version: int, *, is_last: bool) -> int:
    read.skip(UUID_BYTES) if version >= FIRST_VERSION_WITH_TOPIC_IDS else read.nullable_string()
    count = read.array_length()
    if count <= MANY_PARTITIONS and not is_last:
        for _ in range(count):
            read.skip(INDEX_BYTES)
            read.nullable_view()
            read.tagged_fields()
        read.tagged_fields()
    return count


def _topic_to_produce(read: Decoder, version: int) -> TopicToProduce:
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    name, topic_id = ("", read.uuid()) if by_id else (read.string(), None)
    partitions: list[PartitionToProduce] = []
    for _ in each(range(read.array_length())):
        partitions.append(PartitionToProduce(read.int32(), read.nullable_view()))
        read.tagged_fields()
    read.tagged_fields()
    return TopicToProduce(name, topic_id, partitions)


def encode_produce_response(
    version: int, topics: Sequence[TopicProduced], endpoints: Sequence[BrokerMetadata] = ()
) -> Parts:
    """Returns the body of a Produce response, as parts that are sent one after the other."""
    out = Encoder(flexible=version >= FIRST_FLEXIBLE)
    out.array_length(len(topics))
    for topic in each(topics):
        out.uuid(topic.topic_id) if version >= FIRST_VERSION_WITH_TOPIC_IDS else out.string(topic.name)
        out.array_length(len(topic.partitions))
        for partition in each(topic.partitions):
            _partition(out, version, partition)
        out.no_tagged_fields()
    if version >= 1:
        out.int32(0)
    has_endpoints = version >= 10 and endpoints
    out.tagged_fields({0: encode_node_endpoints(endpoints)}) if has_endpoints else out.no_tagged_fields()
    return out.parts


def _partition(out: Encoder, version: int, partition: PartitionProduced) -> None:
    if version >= 5:
        out.raw(PARTITION.pack(*partition[:5]))
    elif version >= 2:
        out.raw(PARTITION_BEFORE_V5.pack(*partition[:4]))
    else:
        out.raw(PARTITION_BEFORE_V2.pack(*partition[:3]))
    if version >= 8:
        _errors(out, partition)
    if version >= 10 and partition.current_leader is not None:
        out.tagged_fields({CURRENT_LEADER_TAG: encode_current_leader(partition.current_leader)})
    else:
        out.no_tagged_fields()


def _errors(out: Encoder, partition: PartitionProduced) -> None:
    errors = partition.record_errors[:RECORD_ERRORS_MAX]
    out.array_length(len(errors))
    for index, message in errors:
        out.int32(index)
        out.string(shortened(message))
        out.no_tagged_fields()
    out.string(shortened(partition.error_message))


PLACES_MAX = 16_384
ANSWER_PART = 3  # the fixed fields: behind the head of the topics, the topic's name, the head of its partitions
NOTHING_MORE = b"\x00\x00\x00"  # tagged fields of partition, topic and request

_PLAIN_START = struct.Struct(">hhiih")
_PLAIN_PLACE = 12  # where in the request it begins
_PLAIN_END = struct.Struct(">iii")
_START = struct.Struct(">BhiBB")
_PLACE = 8
_LENGTH_BYTES = 4
_PARTITION_BYTES = 1 + INDEX_BYTES  # how many partitions, the index of the only one
_PLACE_BY_ID_END = _PLACE + UUID_BYTES + _PARTITION_BYTES

OneProduce = tuple[int, int, bytes, memoryview]  # acks, timeout in ms, place, records


class ProducePlace(NamedTuple):
    """The partition of a one-partition request, and the bytes that stand before and after it in the response."""

    name: str
    topic_id: UUID
    partition: int
    answer_start: bytes
    answer_end: bytes

    def appended(self, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> bytes:
        """Returns the response's body for records that were appended at `base_offset`."""
        _, _, partition, start, end = self
        return start + PARTITION.pack(partition, 0, base_offset, log_append_time_ms, log_start_offset) + end


@cache
def one_produce_reader(version: int) -> Callable[[memoryview], OneProduce | None]:
    """Returns a fast decoder of Produce requests for one partition; it returns None for a request of another form."""
    if version < FIRST_VERSION_WITH_LOG_START:
        return lambda _: None
    if version < FIRST_FLEXIBLE:
        return _read_plain
    return _flexible_reader(by_id=version >= FIRST_VERSION_WITH_TOPIC_IDS)


@lru_cache(maxsize=PLACES_MAX)
def produce_place(version: int, place: bytes) -> ProducePlace:
    """Returns the partition named by a one-partition request's bytes from its topic to its partition index.

    Raises MalformedRequestError where the topic's name is not UTF-8.
    """
    name, topic_id = "", NO_TOPIC_ID
    try:
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            topic_id = UUID(bytes=place[:UUID_BYTES])
        elif version >= FIRST_FLEXIBLE:
            name = str(place[1 : -INDEX_BYTES - 1], "utf-8")
        else:
            name = str(place[2 : -INDEX_BYTES - _LENGTH_BYTES], "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedRequestError(f"PRODUCE v{version}: the name of a topic is not UTF-8: {error}") from error
    partition = int.from_bytes(place[-INDEX_BYTES:], "big", signed=True)
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
