"""Fetch requests, versions 0 to 18, decoded by hand.

v0   replica id, max wait, min bytes, topics [name, partitions [index, offset, max bytes]]
v3   + max bytes                        v4   + isolation level          v5   + log start offset, a follower's
v7   + session id and epoch, forgotten topics [name, indexes] (KIP-227)
v9   + current leader epoch             v11  + rack
v12  flexible, + last fetched epoch     v13  topic id for name (KIP-516)
v15  the replica id is in a tagged field (KIP-903)                      v17, v18  tagged fields of followers
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from millrace.config import MAX_INT
from millrace.errors import MalformedRequestError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.wire.decoder import Decoder
from millrace.wire.fetch import FIRST_FLEXIBLE, FIRST_VERSION_WITH_TOPIC_IDS, NO_SESSION

CONSUMER = -1
FINAL_EPOCH = -1
READ_COMMITTED = 1
REPLICA_STATE_TAG = 1


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
    read = Decoder(body, flexible=version >= FIRST_FLEXIBLE, error=MalformedRequestError)
    replica_id = read.int32() if version < 15 else CONSUMER
    max_wait_ms, min_bytes = read.int32(), read.int32()
    max_bytes = read.int32() if version >= 3 else MAX_INT
    isolation_level = read.int8() if version >= 4 else 0
    session_id, session_epoch = (read.int32(), read.int32()) if version >= 7 else (NO_SESSION, FINAL_EPOCH)
    wanted: dict[PartitionKey, Wanted] = {}
    for _ in range(read.array_length()):
        _read_topic(read, version, wanted)
    forgotten = _read_forgotten(read, version) if version >= 7 else []
    if version >= 11:
        read.string()
    tagged = read.read_tagged_fields()
    if REPLICA_STATE_TAG in tagged:
        replica_id = Decoder(tagged[REPLICA_STATE_TAG], flexible=True, error=MalformedRequestError).int32()
    return FetchRequest(
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, wanted, forgotten
    )


def _read_topic(read: Decoder, version: int, wanted: dict[PartitionKey, Wanted]) -> None:
    topic = _read_topic_name(read, version)
    for _ in range(read.array_length()):
        key = PartitionKey(topic, read.int32())
        current_leader_epoch = read.int32() if version >= 9 else NO_LEADER_EPOCH
        offset = read.int64()
        last_fetched_epoch = read.int32() if version >= 12 else NO_LEADER_EPOCH
        if version >= 5:
            read.int64()
        wanted[key] = Wanted(offset, read.int32(), current_leader_epoch, last_fetched_epoch)
        read.tagged_fields()
    read.tagged_fields()


def _read_forgotten(read: Decoder, version: int) -> list[PartitionKey]:
    forgotten: list[PartitionKey] = []
    for _ in range(read.array_length()):
        topic = _read_topic_name(read, version)
        forgotten += [PartitionKey(topic, read.int32()) for _ in range(read.array_length())]
        read.tagged_fields()
    return forgotten


def _read_topic_name(read: Decoder, version: int) -> str | UUID:
    return read.uuid() if version >= FIRST_VERSION_WITH_TOPIC_IDS else read.string()
