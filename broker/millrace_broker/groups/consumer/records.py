"""A consumer group's records in `__consumer_offsets`, in Apache Kafka's format (4.1; docs/formats/consumer-group.md).

    key     kind i16, group i16-string, and for some kinds a name: a member's id or a regular expression
    value   version i16 = 0, then a flexible struct; null deletes

Values are flexible (KIP-482): lengths are unsigned varints of length + 1, and every struct ends with tagged fields.

A group is the sum of its records; one change is written as one batch. Newer brokers may write other kinds and versions:
an unknown kind is read as None, an unknown version raises CorruptRecordError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from millrace.errors import CorruptRecordError
from millrace.wire.decoder import Decoder
from millrace.wire.encoder import INT64, Encoder, unsigned_varint
from millrace_broker.groups.consumer.member import (
    Assignment,
    ClassicMetadata,
    ClassicProtocol,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    assignment_of,
    by_topic,
)
from millrace_broker.groups.records import Record

Item = TypeVar("Item")


class FlexibleDecoder(Decoder):
    """A decoder of a record's value. Reading raises CorruptRecordError where the value is cut short or impossible."""

    __slots__ = ()

    def __init__(self, data: bytes) -> None:
        super().__init__(data, flexible=True)

    def int8(self) -> int:
        """Reads a signed byte."""
        return int.from_bytes(self._take(1), signed=True)

    def uuid(self) -> UUID:
        """Reads sixteen bytes as a UUID."""
        return UUID(bytes=bytes(self._take(16)))

    def array(self, item: Callable[[], Item]) -> list[Item]:
        """Reads an array, each of its items by `item`."""
        return [item() for _ in range(self.array_length())]

    def structs(self, item: Callable[[], Item]) -> list[Item]:
        """Reads an array of structs, each by `item`, and skips their tagged fields."""

        def struct() -> Item:
            value = item()
            self.tagged_fields()
            return value

        return self.array(struct)

    def tagged(self) -> dict[int, bytes]:
        """Reads the tagged fields that end a struct; returns their bytes by tag."""
        fields = {}
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            fields[tag] = bytes(self._take(self.unsigned_varint()))
        return fields


VALUE_VERSION = 0
METADATA_HASH_TAG = 0
CLASSIC_METADATA_TAG = 0


class Kind(IntEnum):
    """The kind of a consumer group's record; the number is the version of its key."""

    GROUP = 3
    PARTITIONS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGULAR_EXPRESSION = 16


NAMED_KINDS = frozenset((Kind.MEMBER, Kind.TARGET, Kind.CURRENT, Kind.REGULAR_EXPRESSION))


class Key(NamedTuple):
    """The key of a record. `name` is a member's id or a regular expression, or empty."""

    kind: Kind
    group_id: str
    name: str = ""


class GroupEpoch(NamedTuple):
    """The group's epoch, and the hash of its topics at that time (0: not known)."""

    epoch: int
    metadata_hash: int = 0


class TargetEpoch(NamedTuple):
    """The group epoch for which the target assignment was made."""

    epoch: int


class TopicPartitions(NamedTuple):
    """A topic as a group knew it; Kafka before 4.1 wrote such records, this broker reads and deletes them."""

    topic_id: UUID
    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class ResolvedRegularExpression:
    """The topics that matched a pattern, the version of the metadata that had them, and the time."""

    topic_names: frozenset[str]
    version: int
    timestamp_ms: int


Value = (
    GroupEpoch | TargetEpoch | tuple[TopicPartitions, ...] | MemberMetadata | Assignment | CurrentAssignment
    | ResolvedRegularExpression
)  # fmt: skip


class GroupRecord(NamedTuple):
    """One record of a consumer group; None as its value is a tombstone."""

    key: Key
    value: Value | None


def encoded(record: GroupRecord) -> Record:
    """Returns the record with its key and value as bytes."""
    key, value = record
    return Record(encode_key(key), None if value is None else encode_value(key.kind, value))


def encode_key(key: Key) -> bytes:
    """Returns the bytes of a record's key, in Kafka's format."""
    out = Encoder(flexible=False)
    out.int16(key.kind)
    out.string(key.group_id)
    if key.kind in NAMED_KINDS:
        out.string(key.name)
    return out.joined()


def decode_key(data: bytes) -> Key | None:
    """Returns the key of a consumer group's record, None for other records; raises CorruptRecordError if cut short."""
    decoder = Decoder(data)
    kind = decoder.int16()
    if kind not in tuple(Kind):
        return None
    return Key(Kind(kind), decoder.string(), decoder.string() if kind in NAMED_KINDS else "")


def encode_value(kind: Kind, value: Value) -> bytes:
    """Returns the bytes of a record's value of this kind, in Kafka's format."""
    out = Encoder(flexible=True)
    out.int16(VALUE_VERSION)
    _ENCODERS[kind](out, value)
    return out.joined()


def decode_value(kind: Kind, data: bytes) -> Value:
    """Returns a record's value of this kind; raises CorruptRecordError for other bytes and for a newer version."""
    decoder = FlexibleDecoder(data)
    version = decoder.int16()
    if version != VALUE_VERSION:
        raise CorruptRecordError(f"a {kind.name} record of version {version}; {VALUE_VERSION} is known")
    return _DECODERS[kind](decoder)


def _put_group(out: Encoder, value: GroupEpoch) -> None:
    out.int32(value.epoch)
    _put_tagged(out, METADATA_HASH_TAG, INT64.pack(value.metadata_hash) if value.metadata_hash else None)


def _read_group(decoder: FlexibleDecoder) -> GroupEpoch:
    epoch, metadata_hash = decoder.int32(), decoder.tagged().get(METADATA_HASH_TAG)
    return GroupEpoch(epoch) if metadata_hash is None else GroupEpoch(epoch, Decoder(metadata_hash).int64())


def _put_partitions(out: Encoder, value: Iterable[TopicPartitions]) -> None:
    topics = tuple(value)
    out.array_length(len(topics))
    for topic in topics:
        out.uuid(topic.topic_id)
        out.string(topic.name)
        out.int32(topic.partitions)
        out.array_length(0)
        out.no_tagged_fields()
    out.no_tagged_fields()


def _read_partitions(decoder: FlexibleDecoder) -> tuple[TopicPartitions, ...]:
    def topic() -> TopicPartitions:
        found = TopicPartitions(decoder.uuid(), decoder.string(), decoder.int32())
        decoder.structs(lambda: (decoder.int32(), decoder.array(decoder.string)))
        return found

    return tuple(decoder.structs(topic))


def _put_member(out: Encoder, value: MemberMetadata) -> None:
    for text in (value.instance_id, value.rack_id, value.client_id, value.client_host):
        out.string(text)
    _put_strings(out, sorted(value.topic_names))
    out.string(value.topic_regex)
    out.int32(value.rebalance_timeout_ms)
    out.string(value.server_assignor)
    _put_tagged(out, CLASSIC_METADATA_TAG, _classic_bytes(value.classic))


def _read_member(decoder: FlexibleDecoder) -> MemberMetadata:
    return MemberMetadata(
        instance_id=decoder.nullable_string(),
        rack_id=decoder.nullable_string(),
        client_id=decoder.string(),
        client_host=decoder.string(),
        topic_names=frozenset(decoder.array(decoder.string)),
        topic_regex=decoder.nullable_string(),
        rebalance_timeout_ms=decoder.int32(),
        server_assignor=decoder.nullable_string(),
        classic=_read_classic(decoder.tagged().get(CLASSIC_METADATA_TAG)),
    )


def _classic_bytes(value: ClassicMetadata | None) -> bytes:
    # A struct that may be null begins with a byte that says whether it is there; Kafka writes it even where it is not.
    if value is None:
        return b"\x00"
    out = Encoder(flexible=True)
    out.raw(b"\x01")
    out.int32(value.session_timeout_ms)
    out.array_length(len(value.protocols))
    for protocol in value.protocols:
        out.string(protocol.name)
        out.bytes_(protocol.metadata)
        out.no_tagged_fields()
    out.no_tagged_fields()
    return out.joined()


def _read_classic(data: bytes | None) -> ClassicMetadata | None:
    if data is None or data == b"\x00":
        return None
    decoder = FlexibleDecoder(data)
    decoder.int8()
    timeout_ms = decoder.int32()
    protocols = decoder.structs(lambda: ClassicProtocol(decoder.string(), decoder.bytes_()))
    return ClassicMetadata(timeout_ms, tuple(protocols))


def _put_target_epoch(out: Encoder, value: TargetEpoch) -> None:
    out.int32(value.epoch)
    out.no_tagged_fields()


def _put_target(out: Encoder, value: Assignment) -> None:
    _put_assignment(out, value)
    out.no_tagged_fields()


def _put_current(out: Encoder, value: CurrentAssignment) -> None:
    out.int32(value.epoch)
    out.int32(value.previous_epoch)
    out.raw(bytes((value.state,)))
    _put_assignment(out, value.assigned)
    _put_assignment(out, value.pending_revocation)
    out.no_tagged_fields()


def _read_current(decoder: FlexibleDecoder) -> CurrentAssignment:
    epoch, previous_epoch, state = decoder.int32(), decoder.int32(), MemberState(decoder.int8())
    return CurrentAssignment(epoch, previous_epoch, state, _read_assignment(decoder), _read_assignment(decoder))


def _put_regular_expression(out: Encoder, value: ResolvedRegularExpression) -> None:
    _put_strings(out, sorted(value.topic_names))
    out.int64(value.version)
    out.int64(value.timestamp_ms)
    out.no_tagged_fields()


def _read_regular_expression(decoder: FlexibleDecoder) -> ResolvedRegularExpression:
    return ResolvedRegularExpression(frozenset(decoder.array(decoder.string)), decoder.int64(), decoder.int64())


def _put_assignment(out: Encoder, assignment: Assignment) -> None:
    topics = by_topic(assignment)
    out.array_length(len(topics))
    for topic_id, partitions in topics.items():
        out.uuid(topic_id)
        out.int32_array(partitions)
        out.no_tagged_fields()


def _read_assignment(decoder: FlexibleDecoder) -> Assignment:
    return assignment_of(dict(decoder.structs(lambda: (decoder.uuid(), decoder.array(decoder.int32)))))


def _put_strings(out: Encoder, texts: Iterable[str]) -> None:
    in_order = tuple(texts)
    out.array_length(len(in_order))
    for text in in_order:
        out.string(text)


def _put_tagged(out: Encoder, tag: int, data: bytes | None) -> None:
    """Writes the tagged fields that end a struct: one with `tag` and `data`, or none if `data` is None."""
    if data is None:
        out.no_tagged_fields()
    else:
        out.raw(b"\x01" + unsigned_varint(tag) + unsigned_varint(len(data)) + data)


_ENCODERS: Mapping[Kind, Callable[[Encoder, Any], None]] = {
    Kind.GROUP: _put_group,
    Kind.PARTITIONS: _put_partitions,
    Kind.MEMBER: _put_member,
    Kind.TARGET_EPOCH: _put_target_epoch,
    Kind.TARGET: _put_target,
    Kind.CURRENT: _put_current,
    Kind.REGULAR_EXPRESSION: _put_regular_expression,
}


def _whole(fields: Callable[[FlexibleDecoder], Value]) -> Callable[[FlexibleDecoder], Value]:
    """Returns a function that reads a value by `fields`, and skips the tagged fields behind it."""

    def decode(decoder: FlexibleDecoder) -> Value:
        value = fields(decoder)
        decoder.tagged_fields()
        return value

    return decode


_DECODERS: Mapping[Kind, Callable[[FlexibleDecoder], Value]] = {
    Kind.GROUP: _read_group,
    Kind.PARTITIONS: _whole(_read_partitions),
    Kind.MEMBER: _read_member,
    Kind.TARGET_EPOCH: _whole(lambda decoder: TargetEpoch(decoder.int32())),
    Kind.TARGET: _whole(_read_assignment),
    Kind.CURRENT: _whole(_read_current),
    Kind.REGULAR_EXPRESSION: _whole(_read_regular_expression),
}
