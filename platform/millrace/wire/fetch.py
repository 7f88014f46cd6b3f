"""Fetch requests and answers, versions 0 to 18.

Answers are encoded by hand around records that are sent as they are in the file. With 1 MB of records that takes 4 µs,
from the schema, which copies them, 43; with 1 KB 10 and 13. Followers write requests of v17 by hand, as one that
catches up asks thousands of times: for 1,000 partitions in 1.7 ms, from the schema in 2.7, and for one in 11 and 13 µs.
They read answers of v13 to v17 by topic ids, with records as views of the answer: 1 MB of them in 8 µs, by kio's
decoder, which copies them, in 118, and 1 KB in 13 and 7.

request    v0   replica id, max wait, min bytes, topics [name, partitions [index, offset, max bytes]]
           v3   + max bytes                        v4   + isolation level          v5   + log start offset, a follower's
           v7   + session id and epoch, forgotten topics [name, indexes] (KIP-227)
           v9   + current leader epoch             v11  + rack
           v12  flexible, + last fetched epoch     v13  topic id for name (KIP-516)
           v15  replica id and broker epoch in a tagged field (KIP-903)         v17, v18  tagged fields of followers
           v17  + tagged, of Millrace's followers: what was damaged in answers before [topic id, index, offset]
           v17  + tagged, of a broker that heals: up to where it reads what may not be committed, the same way
answer     v0   topics [name, partitions [index, error, high watermark, records]]
           v1   + throttle time
           v4   + last stable offset, aborted transactions [producer id, first offset], null unless asked for
           v5   + log start offset      v7   + error, session id (KIP-227)      v11  + preferred read replica
           v12  flexible, + tagged: diverging epoch (KIP-595), current leader
           v13  topic id for name (KIP-516)         v16  + tagged: addresses of the leaders (KIP-951)
           v17  + tagged, to Millrace's followers: the offset from which on the log leaves out none

The tagged fields of Millrace's own have the tags 10,000 and 10,001, far above those of Apache Kafka, whose brokers skip
them (docs/formats/fetch-fields.md). A leader answers with its field only where the request has that of a follower.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from millrace.errors import MalformedRequestError
from millrace.records.batch import NO_LEADER_EPOCH, NO_OFFSET
from millrace.turns import each
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.cold import milliseconds
from millrace.wire.controller_apis import NO_BROKER_EPOCH
from millrace.wire.decoder import Decoder
from millrace.wire.encoder import INT32, INT64, Encoder, Part, Parts
from millrace.wire.messages import FETCH
from millrace.wire.metadata import BrokerMetadata, LeaderHint, encode_current_leader, encode_node_endpoints

if TYPE_CHECKING:
    from millrace.wire.messages.fetch import FetchRequest as MessageOfKio

FIRST_FLEXIBLE = 12
FIRST_VERSION_WITH_TOPIC_IDS = 13
CONSUMER = -1
REPLICA_COMPARISON = -2  # a tool that compares replicas reads followers, too
FINAL_EPOCH = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FOLLOWERS_VERSION = 17
HEAD = struct.Struct(">iiibii")  # wait, least and most bytes, isolation level, session, its epoch
WANTED_PARTITION = struct.Struct(">iiqiqib")  # index, epoch, offset, fetched epoch, start, most bytes, no tagged fields
REPLICA_STATE = struct.Struct(">iqb")
REPLICA_STATE_TAG = 1
MILLRACE_TAG, HEALED_TAG = 10_000, 10_001
OFFSET_OF_PARTITION = struct.Struct(">16siq")
TOPIC_ID_BYTES = 16


class PartitionKey(NamedTuple):
    """A partition as the client names it: by the topic's name, from v13 on by the topic's id."""

    topic: str | UUID
    partition: int


class FetchPartition(NamedTuple):
    """One partition of a Fetch request: the offset to read from, the bytes to return at most, and known epochs."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = NO_LEADER_EPOCH
    last_fetched_epoch: int = NO_LEADER_EPOCH
    log_start_offset: int = NO_OFFSET  # a follower's


class FetchRequest(NamedTuple):
    """A decoded Fetch request; `wanted` is in the request's order, a repeated partition at its first place.

    `rack` is the consumer's, "" if it does not say. `replica_epoch` is the broker epoch of a follower, -1 before v15.
    `damaged` has the offsets from which on a follower was sent damage; None if none of Millrace's asks. `healed` has
    those up to which a broker that heals reads what may not be committed, too; None if none asks.
    """

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    wanted: dict[PartitionKey, FetchPartition]
    forgotten: list[PartitionKey]
    rack: str = ""
    replica_epoch: int = NO_BROKER_EPOCH
    damaged: Mapping[PartitionKey, int] | None = None
    healed: Mapping[PartitionKey, int] | None = None


def encode_fetch_request(request: FetchRequest) -> bytes:
    """Returns the body of a Fetch request in v17; all of its partitions must be named by topic ids."""
    write = Encoder(flexible=True)
    write.raw(
        HEAD.pack(
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.isolation_level,
            request.session_id,
            request.session_epoch,
        )
    )
    _write_topics(write, ((key, _encoded(key.partition, one)) for key, one in request.wanted.items()))
    _write_topics(write, ((key, INT32.pack(key.partition)) for key in request.forgotten))
    write.string(request.rack)
    tagged = {REPLICA_STATE_TAG: REPLICA_STATE.pack(request.replica_id, request.replica_epoch, 0)}
    for tag, offsets in ((MILLRACE_TAG, request.damaged), (HEALED_TAG, request.healed)):
        if offsets is not None:
            tagged[tag] = _encoded_offsets(offsets)
    write.tagged_fields(tagged)
    return write.joined()


def _encoded_offsets(offsets: Mapping[PartitionKey, int]) -> bytes:
    return b"".join(
        OFFSET_OF_PARTITION.pack(topic.bytes, index, offset)
        for (topic, index), offset in offsets.items()
        if isinstance(topic, UUID)
    )


def _encoded(partition: int, one: FetchPartition) -> bytes:
    offset, max_bytes, leader_epoch, fetched_epoch, log_start_offset = one
    return WANTED_PARTITION.pack(partition, leader_epoch, offset, fetched_epoch, log_start_offset, max_bytes, 0)


def _write_topics(write: Encoder, partitions: Iterable[tuple[PartitionKey, bytes]]) -> None:
    """Writes an array of topics, each as its id and an array of its partitions, which are encoded already."""
    topics: dict[str | UUID, list[bytes]] = {}
    for (topic, _), encoded in partitions:
        topics.setdefault(topic, []).append(encoded)
    write.array_length(len(topics))
    for topic, parts in topics.items():
        assert isinstance(topic, UUID), "from v13 on topics are named by their ids"
        write.uuid(topic)
        write.array_length(len(parts))
        write.raw(b"".join(parts))
        write.no_tagged_fields()


def decode_fetch_request(version: int, body: memoryview | bytes) -> FetchRequest:
    """Returns the decoded Fetch request; raises MalformedRequestError for bytes that are no such request."""
    message = FETCH.decode_request(version, body)
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    wanted: dict[PartitionKey, FetchPartition] = {}
    for topic in each(message.topics):
        name = (topic.topic_id or NO_TOPIC_ID) if by_id else topic.topic
        for one in each(topic.partitions):
            wanted[PartitionKey(name, one.partition)] = FetchPartition(
                one.fetch_offset,
                one.partition_max_bytes,
                one.current_leader_epoch,
                one.last_fetched_epoch,
                one.log_start_offset,
            )
    is_of_broker = message.replica_state is not None and version == FOLLOWERS_VERSION
    tagged = _tagged_fields(body) if is_of_broker else {}
    return FetchRequest(
        message.replica_id if message.replica_state is None else message.replica_state.replica_id,
        milliseconds(message.max_wait),
        message.min_bytes,
        message.max_bytes,
        message.isolation_level,
        message.session_id,
        message.session_epoch,
        wanted,
        _forgotten(message, by_id=by_id) if message.forgotten_topics_data else [],
        message.rack_id,
        NO_BROKER_EPOCH if message.replica_state is None else message.replica_state.replica_epoch,
        _offsets(tagged.get(MILLRACE_TAG)),
        _offsets(tagged.get(HEALED_TAG)),
    )


def _tagged_fields(body: memoryview | bytes) -> Mapping[int, bytes | memoryview]:
    """Returns the tagged fields at the end of a broker's request v17.

    kio skips fields that it does not know, so the message, of which it has found that it is one, is passed over again.
    """
    read = Decoder(body, HEAD.size, flexible=True, error=MalformedRequestError)
    for partition_bytes in (WANTED_PARTITION.size - 1, None):
        for _ in range(read.array_length()):
            read.skip(TOPIC_ID_BYTES)
            count = read.array_length()
            if partition_bytes is None:
                read.skip(count * INT32.size)
            else:
                for _ in range(count):
                    read.skip(partition_bytes)
                    read.tagged_fields()
            read.tagged_fields()
    read.string()  # rack
    return read.read_tagged_fields()


def _offsets(field: bytes | memoryview | None) -> dict[PartitionKey, int] | None:
    """Returns the offset of each partition in a tagged field of Millrace's; None without the field."""
    if field is None or len(field) % OFFSET_OF_PARTITION.size:
        return None
    return {PartitionKey(UUID(bytes=one), index): at for one, index, at in OFFSET_OF_PARTITION.iter_unpack(field)}


def _forgotten(message: MessageOfKio, *, by_id: bool) -> list[PartitionKey]:
    return [
        PartitionKey((topic.topic_id or NO_TOPIC_ID) if by_id else topic.topic, index)
        for topic in each(message.forgotten_topics_data)
        for index in each(topic.partitions)
    ]


PARTITION = struct.Struct(">ihqq")
PARTITION_BEFORE_V4 = struct.Struct(">ihq")
ABORTED_TRANSACTION = struct.Struct(">qq")
EPOCH_END_OFFSET = struct.Struct(">iqb")
NO_PREFERRED_READ_REPLICA = -1
NO_SESSION = 0
DIVERGING_EPOCH_TAG = 0
CURRENT_LEADER_TAG = 1


class PartitionFetched(NamedTuple):
    """One partition of a Fetch response. Aborted transactions are (producer id, first offset).

    The preferred read replica is the broker from which a consumer should fetch instead (KIP-392). The leader's log
    leaves out no offset from `gapless_from` on; None where it does not say.
    """

    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Part
    aborted: Sequence[tuple[int, int]] | None = None
    diverging_epoch: tuple[int, int] | None = None
    current_leader: LeaderHint | None = None
    preferred_read_replica: int = NO_PREFERRED_READ_REPLICA
    gapless_from: int | None = None

    @property
    def is_urgent(self) -> bool:
        """Whether the client must be told at once: of an error, a divergence or a preferred replica."""
        return (
            bool(self.error_code)
            or self.diverging_epoch is not None
            or self.preferred_read_replica != NO_PREFERRED_READ_REPLICA
        )


class TopicFetched(NamedTuple):
    """One topic of a Fetch response; its id is sent from v13 on, its name before."""

    name: str
    topic_id: UUID
    partitions: Sequence[PartitionFetched]


def encode_fetch_response(
    version: int,
    topics: Sequence[TopicFetched],
    error_code: int = 0,
    *,
    session_id: int = NO_SESSION,
    endpoints: Sequence[BrokerMetadata] = (),
) -> Parts:
    """Returns the body of a Fetch response, as parts that are sent one after the other."""
    out = Encoder(flexible=version >= FIRST_FLEXIBLE)
    if version >= 1:
        out.int32(0)
    if version >= 7:
        out.int16(error_code)
        out.int32(session_id)
    out.array_length(len(topics))
    for topic in each(topics):
        out.uuid(topic.topic_id) if version >= FIRST_VERSION_WITH_TOPIC_IDS else out.string(topic.name)
        out.array_length(len(topic.partitions))
        for partition in each(topic.partitions):
            _partition(out, version, partition)
        out.no_tagged_fields()
    has_endpoints = version >= 16 and endpoints
    out.tagged_fields({0: encode_node_endpoints(endpoints)}) if has_endpoints else out.no_tagged_fields()
    return out.parts


def _partition(out: Encoder, version: int, partition: PartitionFetched) -> None:
    if version < 4:
        out.raw(PARTITION_BEFORE_V4.pack(*partition[:3]))
        out.bytes_(partition.records)
        return
    out.raw(PARTITION.pack(*partition[:4]))
    if version >= 5:
        out.int64(partition.log_start_offset)
    _aborted(out, partition.aborted)
    if version >= 11:
        out.int32(partition.preferred_read_replica)
    out.bytes_(partition.records)
    if out.flexible:
        out.tagged_fields(_tagged(partition))


def _aborted(out: Encoder, aborted: Sequence[tuple[int, int]] | None) -> None:
    if aborted is None:
        out.null_array()
        return
    out.array_length(len(aborted))
    for transaction in aborted:
        out.raw(ABORTED_TRANSACTION.pack(*transaction))
        out.no_tagged_fields()


def _tagged(partition: PartitionFetched) -> dict[int, bytes]:
    fields: dict[int, bytes] = {}
    if partition.diverging_epoch is not None:
        fields[DIVERGING_EPOCH_TAG] = EPOCH_END_OFFSET.pack(*partition.diverging_epoch, 0)
    if partition.current_leader is not None:
        fields[CURRENT_LEADER_TAG] = encode_current_leader(partition.current_leader)
    if partition.gapless_from is not None:
        fields[MILLRACE_TAG] = INT64.pack(partition.gapless_from)
    return fields


class FetchResponse(NamedTuple):
    """A decoded Fetch response: error code, fetch session id (0 for none), and what was fetched by partition."""

    error_code: int
    session_id: int
    fetched: dict[PartitionKey, PartitionFetched]


def decode_fetch_response(body: memoryview | bytes) -> FetchResponse:
    """Returns a decoded Fetch response of v13 to v17, for a follower; raises MalformedRequestError for other bytes.

    Aborted transactions and the current leader are left out.
    """
    read = Decoder(body, flexible=True, error=MalformedRequestError)
    read.int32()  # throttle time
    error_code, session_id = read.int16(), read.int32()
    fetched: dict[PartitionKey, PartitionFetched] = {}
    for _ in range(read.array_length()):
        topic_id = read.uuid()
        for _ in range(read.array_length()):
            one = _read_partition(read)
            fetched[PartitionKey(topic_id, one.partition_index)] = one
        read.tagged_fields()
    read.tagged_fields()
    return FetchResponse(error_code, session_id, fetched)


def _read_partition(read: Decoder) -> PartitionFetched:
    index, error_code = read.int32(), read.int16()
    high_watermark, last_stable_offset, log_start_offset = read.int64(), read.int64(), read.int64()
    for _ in range(read.array_length()):
        read.skip(ABORTED_TRANSACTION.size)
        read.tagged_fields()
    read.int32()  # preferred read replica
    records = read.nullable_view()
    tagged = read.read_tagged_fields()
    diverging, gapless = tagged.get(DIVERGING_EPOCH_TAG), tagged.get(MILLRACE_TAG)
    return PartitionFetched(
        index,
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        b"" if records is None else records,
        diverging_epoch=None if diverging is None else _epoch_end(diverging),
        gapless_from=None if gapless is None else Decoder(gapless, error=MalformedRequestError).int64(),
    )


def _epoch_end(field: memoryview) -> tuple[int, int]:
    read = Decoder(field, flexible=True, error=MalformedRequestError)
    return read.int32(), read.int64()
