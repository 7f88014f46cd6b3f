"""Fetch answers, versions 4 to 18, encoded by hand around the file's bytes as they are.

v4   throttle time, responses [topic, partitions [index, error, high watermark, last stable offset,
     aborted transactions [], records]]
v5   + log start offset      v7   + error, session id (KIP-227)      v11  + preferred read replica
v12  flexible                v13  topic id for name (KIP-516)        v16+ tagged fields, never sent here
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from millrace.wire.encoder import Encoder, Parts

PARTITION = struct.Struct(">ihqq")
NO_PREFERRED_READ_REPLICA = -1


class PartitionFetched(NamedTuple):
    """What was read of one partition."""

    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes | memoryview


class TopicFetched(NamedTuple):
    """The partitions of one topic; which of name and id is sent depends on the version."""

    name: str
    topic_id: UUID
    partitions: Sequence[PartitionFetched]


def encode_fetch_response(version: int, topics: Sequence[TopicFetched], error_code: int = 0) -> Parts:
    """The message without its header. The session id is always 0: no incremental sessions."""
    out = Encoder(flexible=version >= 12)
    out.int32(0)
    if version >= 7:
        out.int16(error_code)
        out.int32(0)
    out.array_length(len(topics))
    for topic in topics:
        out.uuid(topic.topic_id) if version >= 13 else out.string(topic.name)
        out.array_length(len(topic.partitions))
        for partition in topic.partitions:
            _partition(out, version, partition)
        out.no_tagged_fields()
    out.no_tagged_fields()
    return out.parts


def _partition(out: Encoder, version: int, partition: PartitionFetched) -> None:
    out.raw(PARTITION.pack(*partition[:4]))
    if version >= 5:
        out.int64(partition.log_start_offset)
    out.array_length(0)
    if version >= 11:
        out.int32(NO_PREFERRED_READ_REPLICA)
    out.bytes_(partition.records)
    out.no_tagged_fields()
