"""ListOffsets, versions 0 to 10, encoded and decoded by hand.

request    v0   replica id, topics [name, partitions [index, timestamp, max count]]
           v1   - max count               v2   + isolation level         v4   + current leader epoch
           v6   flexible                  v10  + timeout
answer     v0   topics [name, partitions [index, error, offsets []]]
           v1   timestamp, offset for offsets                            v2   + throttle time
           v4   + leader epoch            v6   flexible
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millrace.errors import CorruptRecordError, MalformedRequestError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.turns import each
from millrace.wire.decoder import Decoder
from millrace.wire.encoder import Encoder, Parts

FIRST_FLEXIBLE = 6
CONSUMER = -1  # the replica id of clients


class OffsetWanted(NamedTuple):
    """The request for one partition; `max_count` is v0's."""

    partition_index: int
    timestamp: int
    max_count: int
    current_leader_epoch: int


class ListOffsetsRequest(NamedTuple):
    """A whole request; partitions by topic, in the order of the request."""

    replica_id: int
    isolation_level: int
    topics: Sequence[tuple[str, Sequence[OffsetWanted]]]


class OffsetListed(NamedTuple):
    """The answer for one partition; `offsets` is v0's."""

    partition_index: int
    error_code: int
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = NO_LEADER_EPOCH
    offsets: Sequence[int] = ()


def decode_list_offsets_request(version: int, body: memoryview | bytes) -> ListOffsetsRequest:
    """Returns the request in `body`; raises MalformedRequestError for other bytes."""
    read = Decoder(body, flexible=version >= FIRST_FLEXIBLE, error=MalformedRequestError)
    replica_id = read.int32()
    isolation_level = read.int8() if version >= 2 else 0
    topics: list[tuple[str, list[OffsetWanted]]] = []
    for _ in each(range(read.array_length())):
        name = read.string()
        topics.append((name, [_wanted(read, version) for _ in each(range(read.array_length()))]))
        read.tagged_fields()
    if version >= 10:
        read.int32()
    read.tagged_fields()
    return ListOffsetsRequest(replica_id, isolation_level, topics)


def _wanted(read: Decoder, version: int) -> OffsetWanted:
    index = read.int32()
    current_leader_epoch = read.int32() if version >= 4 else NO_LEADER_EPOCH
    timestamp = read.int64()
    max_count = read.int32() if version == 0 else 1
    read.tagged_fields()
    return OffsetWanted(index, timestamp, max_count, current_leader_epoch)


def encode_offsets_before_request(topic: str, partition: int, timestamp: int, max_count: int) -> bytes:
    """Returns a consumer's request in v0 for one partition."""
    out = Encoder(flexible=False)
    out.int32(CONSUMER)
    out.array_length(1)
    out.string(topic)
    out.array_length(1)
    out.int32(partition)
    out.int64(timestamp)
    out.int32(max_count)
    return out.joined()


def decode_offsets_before_response(body: memoryview | bytes) -> OffsetListed:
    """Returns the answer in v0 for one partition; raises MalformedRequestError for other bytes."""
    read = Decoder(body)
    try:
        for _ in each(range(read.array_length())):
            read.string()
            for _ in each(range(read.array_length())):
                index, code = read.int32(), read.int16()
                return OffsetListed(index, code, offsets=[read.int64() for _ in each(range(read.array_length()))])
    except CorruptRecordError as error:
        raise MalformedRequestError(f"LIST_OFFSETS v0 answer can't be decoded: {error}") from error
    raise MalformedRequestError("LIST_OFFSETS v0 answer has no partition")


def encode_list_offsets_response(version: int, topics: Sequence[tuple[str, Sequence[OffsetListed]]]) -> Parts:
    """Returns the message without its header."""
    out = Encoder(flexible=version >= FIRST_FLEXIBLE)
    if version >= 2:
        out.int32(0)
    out.array_length(len(topics))
    for name, partitions in each(topics):
        out.string(name)
        out.array_length(len(partitions))
        for partition in each(partitions):
            _listed(out, version, partition)
        out.no_tagged_fields()
    out.no_tagged_fields()
    return out.parts


def _listed(out: Encoder, version: int, partition: OffsetListed) -> None:
    out.int32(partition.partition_index)
    out.int16(partition.error_code)
    if version == 0:
        out.array_length(len(partition.offsets))
        for offset in partition.offsets:
            out.int64(offset)
        return
    out.int64(partition.timestamp)
    out.int64(partition.offset)
    if version >= 4:
        out.int32(partition.leader_epoch)
    out.no_tagged_fields()
