"""OffsetCommit v0 and v1, and OffsetFetch v0, which clients of Kafka 0.8 send and `kio` has no schema for.

    OffsetCommit request    v0   group string,
                                 topics [name string, partitions [index i32, offset i64, metadata string?]]
                            v1   group string, generation i32, member string,
                                 topics [name, partitions [index i32, offset i64, timestamp i64, metadata string?]]
    OffsetCommit response   v0-1 topics [name string, partitions [index i32, error i16]]
    OffsetFetch request     v0   group string, topics [name string, partitions [index i32]]
    OffsetFetch response    v0   topics [name string, partitions [index i32, offset i64, metadata string?, error i16]]

The fields have the names of the later versions, and what these versions lack has its default. OffsetFetch v1 has the
bytes of v0 and another meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from millrace.errors import CorruptRecordError, MalformedRequestError
from millrace.records.batch import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP
from millrace.wire.decoder import Decoder
from millrace.wire.encoder import Encoder, Parts

if TYPE_CHECKING:
    from millrace.wire.messages.offset_commit import OffsetCommitResponseTopicFields
    from millrace.wire.messages.offset_fetch import OffsetFetchResponseTopicFields

DEFAULT_RETENTION_TIME = timedelta(milliseconds=-1)  # the broker's own


class OffsetToCommit(NamedTuple):
    """One partition of an OffsetCommit request."""

    partition_index: int
    committed_offset: int
    commit_timestamp: int
    committed_metadata: str | None
    committed_leader_epoch: int = NO_LEADER_EPOCH


class TopicToCommit(NamedTuple):
    """One topic of an OffsetCommit request."""

    name: str
    partitions: tuple[OffsetToCommit, ...]


class OffsetCommitRequest(NamedTuple):
    """An OffsetCommit request of v0 or v1."""

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    topics: tuple[TopicToCommit, ...]
    group_instance_id: str | None = None
    retention_time: timedelta = DEFAULT_RETENTION_TIME


class TopicToFetch(NamedTuple):
    """One topic of an OffsetFetch request."""

    name: str
    partition_indexes: tuple[int, ...]


class OffsetFetchRequest(NamedTuple):
    """An OffsetFetch request of v0."""

    group_id: str
    topics: tuple[TopicToFetch, ...]


class OffsetAnswered(NamedTuple):
    """The answer for one partition; that of OffsetCommit has no offset."""

    topic: str
    partition_index: int
    offset: int
    error_code: int


def decode_offset_commit(version: int, body: memoryview | bytes) -> OffsetCommitRequest:
    """Returns the request; raises MalformedRequestError for other bytes."""
    decoder = Decoder(body)
    try:
        group_id = decoder.string()
        generation, member_id = (decoder.int32(), decoder.string()) if version else (-1, "")
        topics = tuple(_topic_to_commit(decoder, version) for _ in range(decoder.array_length()))
    except CorruptRecordError as error:
        raise MalformedRequestError(f"OFFSET_COMMIT v{version} request can't be decoded: {error}") from error
    return OffsetCommitRequest(group_id, generation, member_id, topics)


def decode_offset_fetch(body: memoryview | bytes) -> OffsetFetchRequest:
    """Returns the request; raises MalformedRequestError for other bytes."""
    decoder = Decoder(body)
    try:
        group_id = decoder.string()
        topics = tuple(_topic_to_fetch(decoder) for _ in range(decoder.array_length()))
    except CorruptRecordError as error:
        raise MalformedRequestError(f"OFFSET_FETCH v0 request can't be decoded: {error}") from error
    return OffsetFetchRequest(group_id, topics)


def encode_offset_commit(topics: Sequence[OffsetCommitResponseTopicFields]) -> Parts:
    """Returns the response to v0 and v1, made from the fields of the later versions."""
    out = Encoder(flexible=False)
    out.array_length(len(topics))
    for topic in topics:
        out.string(topic["name"])
        out.array_length(len(topic["partitions"]))
        for partition in topic["partitions"]:
            out.int32(partition["partition_index"])
            out.int16(partition["error_code"])
    return out.parts


def encode_offset_fetch(topics: Sequence[OffsetFetchResponseTopicFields]) -> Parts:
    """Returns the response to v0, made from the fields of the later versions."""
    out = Encoder(flexible=False)
    out.array_length(len(topics))
    for topic in topics:
        out.string(topic["name"])
        out.array_length(len(topic["partitions"]))
        for partition in topic["partitions"]:
            out.int32(partition["partition_index"])
            out.int64(partition["committed_offset"])
            out.string(partition["metadata"])
            out.int16(partition["error_code"])
    return out.parts


def encode_offset_commit_request(group_id: str, offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Returns the request in v0 that commits these offsets, given by topic and partition."""

    def put(out: Encoder, key: tuple[str, int]) -> None:
        out.int64(offsets[key])
        out.string("")

    return _encode_request(group_id, offsets, put)


def encode_offset_fetch_request(group_id: str, partitions: Iterable[tuple[str, int]]) -> bytes:
    """Returns the request in v0 that asks for the offsets of these partitions."""
    return _encode_request(group_id, partitions, lambda _out, _key: None)


def decode_offset_commit_response(body: memoryview | bytes) -> list[OffsetAnswered]:
    """Returns what a response in v0 says of each partition; raises MalformedRequestError for other bytes."""
    return _decode_response(body, "OFFSET_COMMIT", lambda _: NO_OFFSET)


def decode_offset_fetch_response(body: memoryview | bytes) -> list[OffsetAnswered]:
    """Returns what a response in v0 says of each partition; raises MalformedRequestError for other bytes."""

    def offset(read: Decoder) -> int:
        found = read.int64()
        read.nullable_string()
        return found

    return _decode_response(body, "OFFSET_FETCH", offset)


def _encode_request(
    group_id: str, partitions: Iterable[tuple[str, int]], put: Callable[[Encoder, tuple[str, int]], None]
) -> bytes:
    out = Encoder(flexible=False)
    out.string(group_id)
    listed = list(partitions)
    out.array_length(len(listed))
    for key in listed:
        topic, partition = key
        out.string(topic)
        out.array_length(1)
        out.int32(partition)
        put(out, key)
    return out.joined()


def _decode_response(body: memoryview | bytes, name: str, offset: Callable[[Decoder], int]) -> list[OffsetAnswered]:
    read = Decoder(body)
    answered: list[OffsetAnswered] = []
    try:
        for _ in range(read.array_length()):
            topic = read.string()
            answered += [
                OffsetAnswered(topic, read.int32(), offset(read), read.int16()) for _ in range(read.array_length())
            ]
    except CorruptRecordError as error:
        raise MalformedRequestError(f"{name} v0 answer can't be decoded: {error}") from error
    return answered


def _topic_to_commit(decoder: Decoder, version: int) -> TopicToCommit:
    name = decoder.string()
    return TopicToCommit(name, tuple(_to_commit(decoder, version) for _ in range(decoder.array_length())))


def _to_commit(decoder: Decoder, version: int) -> OffsetToCommit:
    index, offset = decoder.int32(), decoder.int64()
    timestamp = decoder.int64() if version else NO_TIMESTAMP
    return OffsetToCommit(index, offset, timestamp, decoder.nullable_string())


def _topic_to_fetch(decoder: Decoder) -> TopicToFetch:
    name = decoder.string()
    return TopicToFetch(name, tuple(decoder.int32() for _ in range(decoder.array_length())))
