"""Versions of the admin APIs that `kio` has no schema for: each is the next version without some bytes.

Clients of Kafka 0.10 to 3.9 send them.

| request | is the next version without |
|---|---|
| CreateTopics v0 | validate only, its last byte; v1 is v2 |
| DescribeConfigs v0 | include synonyms, its last byte |
| DeleteTopics v0, AlterReplicaLogDirs v0, DescribeLogDirs v0 | nothing |

| answer | is the next version without |
|---|---|
| CreateTopics v1, DeleteTopics v0 | throttle time, its first four bytes |
| CreateTopics v0 | also each topic's error message |
| AlterReplicaLogDirs v0, DescribeLogDirs v0 | nothing |

`wire.describe_configs` encodes the answers to DescribeConfigs in every version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from millrace.wire.api import ApiKey
from millrace.wire.api_messages import Answered, Asked, Message, MessageFields
from millrace.wire.encoder import Encoder

if TYPE_CHECKING:
    from millrace.wire.messages.create_topics import CreateTopicsResponseFields

SCHEMA_VERSION = {
    (ApiKey.CREATE_TOPICS, 0): 2,
    (ApiKey.CREATE_TOPICS, 1): 2,
    (ApiKey.DELETE_TOPICS, 0): 1,
    (ApiKey.DESCRIBE_CONFIGS, 0): 1,
    (ApiKey.ALTER_REPLICA_LOG_DIRS, 0): 1,
    (ApiKey.DESCRIBE_LOG_DIRS, 0): 1,
}
WITHOUT_LAST_BYTE = {(ApiKey.CREATE_TOPICS, 0), (ApiKey.DESCRIBE_CONFIGS, 0)}
WITHOUT_THROTTLE_TIME = {(ApiKey.CREATE_TOPICS, 1), (ApiKey.DELETE_TOPICS, 0)}
THROTTLE_TIME_BYTES = 4


def decode_request(api: Asked[Message], version: int, body: memoryview | bytes) -> Message:
    """Returns the request, of any version that is served; raises MalformedRequestError for other bytes."""
    schema_version = SCHEMA_VERSION.get((api.key, version), version)
    if (api.key, version) in WITHOUT_LAST_BYTE:
        body = bytes(body) + b"\x00"
    return api.decode_request(schema_version, body)


def encode_response(api: Answered[MessageFields], version: int, fields: MessageFields) -> bytes:
    """Returns the bytes of the response, in any version that is served."""
    key = api.key, version
    if key == (ApiKey.CREATE_TOPICS, 0):
        return _create_topics_v0(cast("CreateTopicsResponseFields", fields))
    message = api.encode_response(SCHEMA_VERSION.get(key, version), fields)
    return message[THROTTLE_TIME_BYTES:] if key in WITHOUT_THROTTLE_TIME else message


def _create_topics_v0(fields: CreateTopicsResponseFields) -> bytes:
    out = Encoder(flexible=False)
    out.array_length(len(fields["topics"]))
    for topic in fields["topics"]:
        out.string(topic["name"])
        out.int16(topic["error_code"])
    return out.joined()
