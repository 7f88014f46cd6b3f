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
alike. The answer for one partition takes 5 µs by hand, and 8 from the schema. Most requests never come here: see
`produce_one`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from millrace.errors import MalformedRequestError
from millrace.turns import each
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decoder
from millrace.wire.decoder import UUID_BYTES, Decoder
from millrace.wire.encoder import Encoder, Parts, shortened
from millrace.wire.leader import LeaderHint, NodeEndpoint, encode_current_leader, encode_node_endpoints

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
    """The records for one partition; they may be a view of the request."""

    index: int
    records: bytes | memoryview | None


class TopicToProduce(NamedTuple):
    """One topic of the request; it has a name up to v12, and an id from v13 on."""

    name: str
    topic_id: UUID | None
    partition_data: Sequence[PartitionToProduce]


class ProduceRequest(NamedTuple):
    """The request; its timeout is how long a write with acks=all may wait for the in-sync replicas."""

    transactional_id: str | None
    acks: int
    timeout: timedelta
    topic_data: Sequence[TopicToProduce]


# As either decoder reads them.
AnyProduceRequest: TypeAlias = "ProduceRequest | RequestOfKio"
AnyTopicToProduce: TypeAlias = "TopicToProduce | TopicOfKio"


class PartitionProduced(NamedTuple):
    """The outcome of appending one partition's batches; offsets are -1 where it failed."""

    partition_index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()
    current_leader: LeaderHint | None = None


class TopicProduced(NamedTuple):
    """The partitions of one topic; the version decides whether its name or its id is sent."""

    name: str
    topic_id: UUID
    partitions: Sequence[PartitionProduced]


def decode_produce_request(version: int, body: memoryview | bytes) -> AnyProduceRequest:
    """Returns the request in `body`; raises MalformedRequestError for other bytes."""
    return produce_decoder(version)(body)


@cache
def produce_decoder(version: int) -> Callable[[memoryview | bytes], AnyProduceRequest]:
    """Returns `decode_produce_request` for one version."""
    copying: Callable[[memoryview | bytes], RequestOfKio] = decoder(ApiKey.PRODUCE, version, Direction.REQUEST)

    def decode(body: memoryview | bytes) -> AnyProduceRequest:
        return copying(body) if len(body) <= COPIED_BYTES_MAX else decode_without_copying(version, body)

    return decode


def decode_without_copying(version: int, body: memoryview | bytes) -> ProduceRequest:
    """Returns the same, decoded by hand, with records that are views of the request."""
    read = Decoder(body, flexible=version >= FIRST_FLEXIBLE, error=MalformedRequestError)
    transactional_id = read.nullable_string() if version >= FIRST_VERSION_WITH_TRANSACTIONS else None
    acks, timeout_ms = read.int16(), read.int32()
    topics = [_topic_to_produce(read, version) for _ in range(read.array_length())]
    read.tagged_fields()
    return ProduceRequest(transactional_id, acks, timedelta(milliseconds=timeout_ms), topics)


def has_many_partitions(version: int, body: memoryview) -> bool:
    """Returns whether a request names more than `MANY_PARTITIONS`; bytes that are no request do not."""
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
    """Returns whether it is as nearly all are: of one topic, and of less than 127 partitions."""
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
    version: int, topics: Sequence[TopicProduced], endpoints: Sequence[NodeEndpoint] = ()
) -> Parts:
    """Returns the message without its header."""
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
    if version >= 10 and endpoints:
        out.tagged_fields({0: encode_node_endpoints(endpoints)})
    else:
        out.no_tagged_fields()
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
