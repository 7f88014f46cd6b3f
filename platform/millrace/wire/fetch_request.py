"""Fetch requests, versions 0 to 18: by hand below v4, which kio does not know.

v0   replica id, max wait, min bytes, topics [name, partitions [index, offset, max bytes]]
v3   + max bytes                        v4   + isolation level          v5   + log start offset, a follower's
v7   + session id and epoch, forgotten topics [name, indexes] (KIP-227)
v9   + current leader epoch             v11  + rack
v12  flexible, + last fetched epoch     v13  topic id for name (KIP-516)
v15  the replica id is in a tagged field (KIP-903)                      v17, v18  tagged fields of followers
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from millrace.config import MAX_INT
from millrace.errors import MalformedRequestError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, milliseconds
from millrace.wire.decoder import Decoder
from millrace.wire.fetch import FIRST_VERSION_WITH_TOPIC_IDS, NO_SESSION

CONSUMER = -1
FINAL_EPOCH = -1
READ_COMMITTED = 1
FIRST_VERSION_OF_KIO = 4
FIRST_VERSION_WITH_MAX_BYTES = 3


class PartitionKey(NamedTuple):
    """A partition as the client names it: by its topic's name, from v13 on by the topic's id."""

    topic: str | UUID
    partition: int


class Wanted(NamedTuple):
    """From where on, and how much, a client wants of a partition."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = NO_LEADER_EPOCH
    last_fetched_epoch: int = NO_LEADER_EPOCH


class FetchRequest(NamedTuple):
    """The whole request; partitions in the order of the request, a repeated one at its first place."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    wanted: dict[PartitionKey, Wanted]
    forgotten: list[PartitionKey]


def decode_fetch_request(version: int, body: memoryview | bytes) -> FetchRequest:
    """The message without its header; MalformedRequestError where the bytes are none."""
    if version < FIRST_VERSION_OF_KIO:
        return _decode_old(version, body)
    message = decode(ApiKey.FETCH, version, Direction.REQUEST, body)
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    wanted: dict[PartitionKey, Wanted] = {}
    for topic in message.topics:
        name = (topic.topic_id or NO_TOPIC_ID) if by_id else topic.topic
        for one in topic.partitions:
            wanted[PartitionKey(name, one.partition)] = Wanted(
                one.fetch_offset,
                one.partition_max_bytes,
                one.current_leader_epoch if version >= 9 else NO_LEADER_EPOCH,
                one.last_fetched_epoch if version >= 12 else NO_LEADER_EPOCH,
            )
    return FetchRequest(
        message.replica_id if version < 15 else message.replica_state.replica_id,
        milliseconds(message.max_wait),
        message.min_bytes,
        message.max_bytes,
        message.isolation_level,
        message.session_id if version >= 7 else NO_SESSION,
        message.session_epoch if version >= 7 else FINAL_EPOCH,
        wanted,
        _forgotten(message, by_id=by_id) if version >= 7 else [],
    )


def _forgotten(message: Any, *, by_id: bool) -> list[PartitionKey]:
    return [
        PartitionKey((topic.topic_id or NO_TOPIC_ID) if by_id else topic.topic, index)
        for topic in message.forgotten_topics_data
        for index in topic.partitions
    ]


def _decode_old(version: int, body: memoryview | bytes) -> FetchRequest:
    read = Decoder(body, error=MalformedRequestError)
    replica_id, max_wait_ms, min_bytes = read.int32(), read.int32(), read.int32()
    max_bytes = read.int32() if version >= FIRST_VERSION_WITH_MAX_BYTES else MAX_INT
    wanted: dict[PartitionKey, Wanted] = {}
    for _ in range(read.array_length()):
        name = read.string()
        for _ in range(read.array_length()):
            key = PartitionKey(name, read.int32())
            wanted[key] = Wanted(read.int64(), read.int32())
    return FetchRequest(replica_id, max_wait_ms, min_bytes, max_bytes, 0, NO_SESSION, FINAL_EPOCH, wanted, [])
