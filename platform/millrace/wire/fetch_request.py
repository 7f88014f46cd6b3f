"""Fetch requests, versions 0 to 18.

Followers write v17 by hand, as one that catches up asks thousands of times: for 1,000 partitions in 1.7 ms, from the
schema in 2.7, and for one in 11 and 13 µs.

v0   replica id, max wait, min bytes, topics [name, partitions [index, offset, max bytes]]
v3   + max bytes                        v4   + isolation level          v5   + log start offset, a follower's
v7   + session id and epoch, forgotten topics [name, indexes] (KIP-227)
v9   + current leader epoch             v11  + rack
v12  flexible, + last fetched epoch     v13  topic id for name (KIP-516)
v15  replica id and broker epoch in a tagged field (KIP-903)                      v17, v18  tagged fields of followers
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from millrace.records.batch import NO_LEADER_EPOCH, NO_OFFSET
from millrace.turns import each
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.cold import milliseconds
from millrace.wire.controller_apis import NO_BROKER_EPOCH
from millrace.wire.encoder import INT32, Encoder
from millrace.wire.fetch import FIRST_VERSION_WITH_TOPIC_IDS
from millrace.wire.messages import FETCH

if TYPE_CHECKING:
    from millrace.wire.messages.fetch import FetchRequest as MessageOfKio

CONSUMER = -1
REPLICA_COMPARISON = -2  # a tool that compares replicas reads followers, too
FINAL_EPOCH = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FOLLOWERS_VERSION = 17
HEAD = struct.Struct(">iiibii")  # wait, least and most bytes, isolation level, session, its epoch
PARTITION = struct.Struct(">iiqiqib")  # index, epoch, offset, fetched epoch, start, most bytes, no tagged fields
REPLICA_STATE = struct.Struct(">iqb")
REPLICA_STATE_TAG = 1


class PartitionKey(NamedTuple):
    """A partition as the client names it: by the topic's name, from v13 on by the topic's id."""

    topic: str | UUID
    partition: int


class FetchPartition(NamedTuple):
    """The offset from which a client wants records of a partition, and how many bytes."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = NO_LEADER_EPOCH
    last_fetched_epoch: int = NO_LEADER_EPOCH
    log_start_offset: int = NO_OFFSET  # a follower's


class FetchRequest(NamedTuple):
    """A whole request; its partitions keep their order, and one that is repeated has its first place.

    `rack` is where the consumer stands, empty if it does not say. `replica_epoch` is the broker epoch of a follower, -1
    before v15.
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


def encode_fetch_request(request: FetchRequest) -> bytes:
    """Returns the request in v17; all its partitions are named by the ids of their topics."""
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
    write.tagged_fields({REPLICA_STATE_TAG: REPLICA_STATE.pack(request.replica_id, request.replica_epoch, 0)})
    return write.joined()


def _encoded(partition: int, one: FetchPartition) -> bytes:
    offset, max_bytes, leader_epoch, fetched_epoch, log_start_offset = one
    return PARTITION.pack(partition, leader_epoch, offset, fetched_epoch, log_start_offset, max_bytes, 0)


def _write_topics(write: Encoder, partitions: Iterable[tuple[PartitionKey, bytes]]) -> None:
    """Writes an array of topics, each with its id and an array of its encoded partitions."""
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
    """Returns the request in `body`; raises MalformedRequestError where the bytes are none."""
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
    )


def _forgotten(message: MessageOfKio, *, by_id: bool) -> list[PartitionKey]:
    return [
        PartitionKey((topic.topic_id or NO_TOPIC_ID) if by_id else topic.topic, index)
        for topic in each(message.forgotten_topics_data)
        for index in each(topic.partitions)
    ]
