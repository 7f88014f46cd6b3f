"""Versions that `kio` has no schema for, each told by what differs from a version that it has.

    (ApiKey.CREATE_TOPICS, 1): Older(2, {"throttle_time": ()})      version 1 is version 2 without throttle_time

Clients of Kafka 0.8 to 3.9 send them. OffsetFetch v1 has the bytes of v0 and another meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from millrace.wire.api import ApiKey
from millrace.wire.schema import SchemaField

Instead = Mapping[str, tuple[SchemaField, ...]]


class Older(NamedTuple):
    """A version: `like` one of kio's, but for fields of both messages that give way to others, or to none.

    A field goes by its name, or where that is not enough as `Structure.name`.
    """

    like: int
    instead: Instead = MappingProxyType({})


def _without(*names: str) -> Instead:
    return dict.fromkeys(names, ())


LIST_OFFSETS_V0 = {
    "ListOffsetsPartition.timestamp": (SchemaField("timestamp", "int64"), SchemaField("max_num_offsets", "int32")),
    "ListOffsetsPartitionResponse.timestamp": (),
    "offset": (SchemaField("old_style_offsets", "int64", is_array=True, default=()),),
}
OFFSET_COMMIT_V1 = {
    "retention_time": (),
    "committed_metadata": (
        SchemaField("commit_timestamp", "int64", default=-1),
        SchemaField("committed_metadata", "string", is_nullable=True),
    ),
}
DESCRIBE_CONFIGS_V0 = {
    **_without("include_synonyms", "synonyms"),
    "config_source": (SchemaField("is_default", "bool"),),
}
EPOCH_V1 = _without("current_leader_epoch", "throttle_time")
FETCH_V3 = _without("isolation_level", "last_stable_offset", "aborted_transactions")

OLDER_VERSIONS: Mapping[tuple[int, int], Older] = {
    (ApiKey.PRODUCE, 0): Older(3, _without("transactional_id", "log_append_time", "throttle_time")),
    (ApiKey.PRODUCE, 1): Older(3, _without("transactional_id", "log_append_time")),
    (ApiKey.PRODUCE, 2): Older(3, _without("transactional_id")),
    (ApiKey.FETCH, 0): Older(4, {**FETCH_V3, **_without("max_bytes", "throttle_time")}),
    (ApiKey.FETCH, 1): Older(4, {**FETCH_V3, **_without("max_bytes")}),
    (ApiKey.FETCH, 2): Older(4, {**FETCH_V3, **_without("max_bytes")}),
    (ApiKey.FETCH, 3): Older(4, FETCH_V3),
    (ApiKey.LIST_OFFSETS, 0): Older(1, LIST_OFFSETS_V0),
    (ApiKey.OFFSET_COMMIT, 0): Older(2, _without("generation_id_or_member_epoch", "member_id", "retention_time")),
    (ApiKey.OFFSET_COMMIT, 1): Older(2, OFFSET_COMMIT_V1),
    (ApiKey.OFFSET_FETCH, 0): Older(1),
    (ApiKey.CREATE_TOPICS, 0): Older(2, _without("validate_only", "throttle_time", "error_message")),
    (ApiKey.CREATE_TOPICS, 1): Older(2, _without("throttle_time")),
    (ApiKey.DELETE_TOPICS, 0): Older(1, _without("throttle_time")),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 0): Older(2, {**EPOCH_V1, "EpochEndOffset.leader_epoch": ()}),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 1): Older(2, EPOCH_V1),
    (ApiKey.WRITE_TXN_MARKERS, 0): Older(1),
    (ApiKey.DESCRIBE_ACLS, 0): Older(1, _without("pattern_type_filter", "pattern_type")),
    (ApiKey.CREATE_ACLS, 0): Older(1, _without("resource_pattern_type")),
    (ApiKey.DELETE_ACLS, 0): Older(1, _without("pattern_type_filter", "pattern_type")),
    (ApiKey.DESCRIBE_CONFIGS, 0): Older(1, DESCRIBE_CONFIGS_V0),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, 0): Older(1),
    (ApiKey.DESCRIBE_LOG_DIRS, 0): Older(1),
    (ApiKey.CREATE_DELEGATION_TOKEN, 0): Older(1),
    (ApiKey.RENEW_DELEGATION_TOKEN, 0): Older(1),
    (ApiKey.EXPIRE_DELEGATION_TOKEN, 0): Older(1),
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, 0): Older(1),
}
