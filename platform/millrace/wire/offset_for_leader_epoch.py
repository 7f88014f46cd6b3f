"""OffsetForLeaderEpoch, versions 0 to 4, encoded and decoded by hand (KIP-101, KIP-320).

request    v0   topics [name, partitions [index, leader epoch]]
           v2   + current leader epoch, before the leader epoch
           v3   + replica id first        v4   flexible
answer     v0   topics [name, partitions [error, index, end offset]]
           v1   + leader epoch, before the end offset
           v2   + throttle time first     v4   flexible
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millrace.errors import MalformedRequestError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.turns import each
from millrace.wire.decoder import Decoder
from millrace.wire.encoder import Encoder, Parts

FIRST_FLEXIBLE = 4


class EpochWanted(NamedTuple):
    """The leader epoch of one partition whose end offset is asked for."""

    partition_index: int
    current_leader_epoch: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The end offset of a leader epoch; -1 where it is not known."""

    partition_index: int
    error_code: int
    leader_epoch: int = NO_LEADER_EPOCH
    end_offset: int = -1


def decode_epoch_request(version: int, body: memoryview | bytes) -> list[tuple[str, list[EpochWanted]]]:
    """Returns (topic, partitions) for each topic; raises MalformedRequestError where the bytes are no such message."""
    read = Decoder(body, flexible=version >= FIRST_FLEXIBLE, error=MalformedRequestError)
    if version >= 3:
        read.int32()
    topics: list[tuple[str, list[EpochWanted]]] = []
    for _ in each(range(read.array_length())):
        name = read.string()
        topics.append((name, [_wanted(read, version) for _ in each(range(read.array_length()))]))
        read.tagged_fields()
    read.tagged_fields()
    return topics


def _wanted(read: Decoder, version: int) -> EpochWanted:
    index = read.int32()
    current_leader_epoch = read.int32() if version >= 2 else NO_LEADER_EPOCH
    leader_epoch = read.int32()
    read.tagged_fields()
    return EpochWanted(index, current_leader_epoch, leader_epoch)


def encode_epoch_response(version: int, topics: Sequence[tuple[str, Sequence[EpochEnd]]]) -> Parts:
    """Returns the message without its header."""
    out = Encoder(flexible=version >= FIRST_FLEXIBLE)
    if version >= 2:
        out.int32(0)
    out.array_length(len(topics))
    for name, partitions in each(topics):
        out.string(name)
        out.array_length(len(partitions))
        for partition in each(partitions):
            out.int16(partition.error_code)
            out.int32(partition.partition_index)
            if version >= 1:
                out.int32(partition.leader_epoch)
            out.int64(partition.end_offset)
            out.no_tagged_fields()
        out.no_tagged_fields()
    out.no_tagged_fields()
    return out.parts
