"""Produce answers, versions 3 to 13, encoded by hand: this is the broker's hottest answer.

v3   responses [name, partitions [index, error, base offset, log append time]], throttle time
v5   + log start offset        v8   + record errors [], error message
v9   flexible                  v10  + tagged leader hints, never sent here
v13  topic id for name (KIP-516)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from millrace.wire.encoder import Encoder, Parts

PARTITION = struct.Struct(">ihqqq")
PARTITION_BEFORE_V5 = struct.Struct(">ihqq")
RECORD_ERRORS_MAX = 1000


class PartitionProduced(NamedTuple):
    """What became of one partition's batches; offsets are -1 where it failed."""

    partition_index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()


class TopicProduced(NamedTuple):
    """The partitions of one topic; which of name and id is sent depends on the version."""

    name: str
    topic_id: UUID
    partitions: Sequence[PartitionProduced]


def encode_produce_response(version: int, topics: Sequence[TopicProduced]) -> Parts:
    """The message without its header."""
    out = Encoder(flexible=version >= 9)
    out.array_length(len(topics))
    for topic in topics:
        out.uuid(topic.topic_id) if version >= 13 else out.string(topic.name)
        out.array_length(len(topic.partitions))
        for partition in topic.partitions:
            _partition(out, version, partition)
        out.no_tagged_fields()
    out.int32(0)
    out.no_tagged_fields()
    return out.parts


def _partition(out: Encoder, version: int, partition: PartitionProduced) -> None:
    if version >= 5:
        out.raw(PARTITION.pack(*partition[:5]))
    else:
        out.raw(PARTITION_BEFORE_V5.pack(*partition[:4]))
    if version >= 8:
        _errors(out, partition)
    out.no_tagged_fields()


def _errors(out: Encoder, partition: PartitionProduced) -> None:
    errors = partition.record_errors[:RECORD_ERRORS_MAX]
    out.array_length(len(errors))
    for index, message in errors:
        out.int32(index)
        out.string(message)
        out.no_tagged_fields()
    out.string(partition.error_message)
