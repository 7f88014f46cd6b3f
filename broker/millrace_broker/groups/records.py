"""Keys and values of `__consumer_offsets`, byte for byte Kafka's (OffsetCommitKey/Value, GroupMetadataKey/Value).

    key    version i16     0, 1: a committed offset    group string, topic string, partition i32
                           2: a classic group          group string

    value of an offset     version i16     written: 3, or 1 where the client gave its own retention
           0+  offset i64      3+  leader epoch i32
           0+  metadata string, commit timestamp i64     1 only  expire timestamp i64

    value of a group       version i16     written: 3
           0+  protocol type string, generation i32, protocol string?, leader string?
           2+  current state timestamp i64
           0+  members [ 0+ member id string   3+ group instance id string?   0+ client id string, client host string
                         1+ rebalance timeout i32   0+ session timeout i32, subscription bytes, assignment bytes ]

Strings have an i16 length, bytes and arrays an i32; from version 4 on both are flexible (KIP-915): lengths are
unsigned varints of one more, and each structure ends with tagged fields, which are skipped. No value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millrace.errors import CorruptRecordError
from millrace.records.batch import NO_LEADER_EPOCH, NO_TIMESTAMP
from millrace.wire.decoder import Decoder
from millrace.wire.encoder import INT16, Encoder

OFFSET_KEY_VERSION = 1
OFFSET_KEY_VERSIONS = (0, 1)
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3
FIRST_FLEXIBLE_VALUE_VERSION = 4
MAX_TIMESTAMP = 2**63 - 1
MAX_STRING_BYTES = 2**15 - 1
RECORD_OVERHEAD_BYTES = 24  # of a record in a batch, its key and value left out: at most


class Record(NamedTuple):
    """A record of `__consumer_offsets`: a key and its newest value, None for a tombstone."""

    key: bytes
    value: bytes | None


def portions(to_append: Sequence[Record], batch_bytes: int) -> Iterator[slice]:
    """Yields slices of the records that each fit into one batch of `batch_bytes`; a larger record is alone."""
    start = size_bytes = 0
    for index, (key, value) in enumerate(to_append):
        record_bytes = len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
        if index > start and size_bytes + record_bytes > batch_bytes:
            yield slice(start, index)
            start, size_bytes = index, 0
        size_bytes += record_bytes
    if to_append:
        yield slice(start, len(to_append))


class OffsetKey(NamedTuple):
    """The group, topic and partition of a committed offset."""

    group_id: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """An offset that a group has committed, with its own expiry only from clients before OffsetCommit v5."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP


class StoredMember(NamedTuple):
    """A member in a classic group's record; the subscription is its metadata for the group's protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """A classic group as it is stored after each rebalance and each change of a static member."""

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...]


def fits(text: str, limit_bytes: int = MAX_STRING_BYTES) -> bool:
    """Returns whether a text is short enough to be stored; requests of the newest versions may have longer ones."""
    return len(text) <= limit_bytes // 4 or len(text.encode()) <= limit_bytes


def key_version(key: bytes) -> int:
    """Returns a key's version, which tells the kind of record; raises CorruptRecordError for a key without one."""
    if len(key) < INT16.size:
        raise CorruptRecordError(f"a key of {len(key)} bytes has no version")
    return int(INT16.unpack_from(key)[0])


def offset_record(key: OffsetKey, committed: CommittedOffset | None) -> Record:
    """Returns the record of a committed offset; a tombstone for None."""
    out = Encoder(flexible=False)
    out.int16(OFFSET_KEY_VERSION)
    out.string(key.group_id)
    out.string(key.topic)
    out.int32(key.partition)
    return Record(out.joined(), None if committed is None else _offset_value(committed))


def group_record(group_id: str, group: StoredGroup | None) -> Record:
    """Returns the record of a classic group; a tombstone for None."""
    out = Encoder(flexible=False)
    out.int16(GROUP_KEY_VERSION)
    out.string(group_id)
    return Record(out.joined(), None if group is None else _group_value(group))


def read_offset_key(key: bytes) -> OffsetKey:
    """Returns the group, topic and partition in a key; raises CorruptRecordError for other bytes."""
    decoder = Decoder(key, INT16.size)
    return OffsetKey(decoder.string(), decoder.string(), decoder.int32())


def read_group_key(key: bytes) -> str:
    """Returns the group id in the key of a classic group; raises CorruptRecordError for other bytes."""
    return Decoder(key, INT16.size).string()


def read_offset_value(value: bytes) -> CommittedOffset:
    """Returns the offset in a value of version 0 to 4; raises CorruptRecordError for other bytes."""
    version, decoder = _value_of(value)
    offset = decoder.int64()
    leader_epoch = decoder.int32() if version >= 3 else NO_LEADER_EPOCH
    metadata = decoder.string()
    commit_timestamp_ms = decoder.int64()
    expire_timestamp_ms = decoder.int64() if version == 1 else NO_TIMESTAMP
    decoder.tagged_fields()
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms)


def read_group_value(value: bytes) -> StoredGroup:
    """Returns the group in a value of version 0 to 4; raises CorruptRecordError for other bytes."""
    version, decoder = _value_of(value)
    protocol_type, generation = decoder.string(), decoder.int32()
    protocol_name, leader = decoder.nullable_string(), decoder.nullable_string()
    state_timestamp_ms = decoder.int64() if version >= 2 else NO_TIMESTAMP
    members = tuple(_read_member(decoder, version) for _ in range(decoder.array_length()))
    decoder.tagged_fields()
    return StoredGroup(protocol_type, generation, protocol_name, leader, state_timestamp_ms, members)


def _value_of(value: bytes) -> tuple[int, Decoder]:
    version = key_version(value)
    if not 0 <= version <= FIRST_FLEXIBLE_VALUE_VERSION:
        raise CorruptRecordError(f"value version {version} is unknown")
    return version, Decoder(value, INT16.size, flexible=version >= FIRST_FLEXIBLE_VALUE_VERSION)


def _read_member(decoder: Decoder, version: int) -> StoredMember:
    member_id = decoder.string()
    instance_id = decoder.nullable_string() if version >= 3 else None
    client_id, client_host = decoder.string(), decoder.string()
    rebalance_timeout_ms = decoder.int32() if version >= 1 else -1
    session_timeout_ms = decoder.int32()
    subscription, assignment = decoder.bytes_(), decoder.bytes_()
    decoder.tagged_fields()
    return StoredMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms if rebalance_timeout_ms >= 0 else session_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


def _offset_value(committed: CommittedOffset) -> bytes:
    out = Encoder(flexible=False)
    expires = committed.expire_timestamp_ms != NO_TIMESTAMP
    out.int16(OFFSET_VALUE_VERSION_WITH_EXPIRY if expires else OFFSET_VALUE_VERSION)
    out.int64(committed.offset)
    if not expires:
        out.int32(committed.leader_epoch)
    out.string(committed.metadata)
    out.int64(committed.commit_timestamp_ms)
    if expires:
        out.int64(committed.expire_timestamp_ms)
    return out.joined()


def _group_value(group: StoredGroup) -> bytes:
    out = Encoder(flexible=False)
    out.int16(GROUP_VALUE_VERSION)
    out.string(group.protocol_type)
    out.int32(group.generation)
    out.string(group.protocol_name)
    out.string(group.leader)
    out.int64(group.state_timestamp_ms)
    out.array_length(len(group.members))
    for member in group.members:
        out.string(member.member_id)
        out.string(member.instance_id)
        out.string(member.client_id)
        out.string(member.client_host)
        out.int32(member.rebalance_timeout_ms)
        out.int32(member.session_timeout_ms)
        out.bytes_(member.subscription)
        out.bytes_(member.assignment)
    return out.joined()
