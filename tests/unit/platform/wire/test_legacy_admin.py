"""Admin versions that have no schema any more, byte by byte as Kafka 0.10 to 3.9 had them."""

import struct

import pytest

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, encode
from millrace.wire.describe_configs import (
    ConfigDescribed,
    ResourceDescribed,
    SynonymDescribed,
    encode_describe_configs_response,
)
from millrace.wire.legacy_admin import decode_request, encode_response
from millrace.wire.messages import (
    ALTER_REPLICA_LOG_DIRS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
)


def string(text):
    return struct.pack(">h", len(text)) + text.encode()


TOPIC = string("t") + struct.pack(">ih", 3, 1) + struct.pack(">ii", 0, 0)  # no assignments, no configs
CREATED = {
    "name": "t",
    "topic_id": None,
    "error_code": ErrorCode.TOPIC_ALREADY_EXISTS,
    "error_message": "there",
    "num_partitions": -1,
    "replication_factor": -1,
    "configs": (),
}
SYNONYMS = [SynonymDescribed("log.retention.ms", None, 5)]
ENTRY = ConfigDescribed("retention.ms", "5", False, 1, False, SYNONYMS, 5, "How long.")
DEFAULT_ENTRY = ENTRY._replace(source=5, is_read_only=True, value=None, is_sensitive=True)
RESOURCE = ResourceDescribed(0, "", 2, "t", [ENTRY, DEFAULT_ENTRY])


def test_create_topics():
    request = struct.pack(">i", 1) + TOPIC + struct.pack(">i", 5000)
    for version, body in ((0, request), (1, request + b"\x01")):
        message = decode_request(CREATE_TOPICS, version, body)
        assert (message.topics[0].name, message.topics[0].num_partitions) == ("t", 3)
        assert message.validate_only is (version == 1)
    fields = {"throttle_time": 0, "topics": [CREATED]}
    v0 = struct.pack(">i", 1) + string("t") + struct.pack(">h", 36)
    assert encode_response(CREATE_TOPICS, 0, fields) == v0
    assert encode_response(CREATE_TOPICS, 1, fields) == v0 + string("there")
    assert encode_response(CREATE_TOPICS, 2, fields) == bytes(4) + v0 + string("there")


def test_delete_topics():
    message = decode_request(DELETE_TOPICS, 0, struct.pack(">i", 1) + string("t") + struct.pack(">i", 5000))
    assert message.topic_names == ("t",)
    result = {"name": "t", "topic_id": None, "error_code": ErrorCode.NONE, "error_message": None}
    fields = {"throttle_time": 0, "responses": [result]}
    v0 = struct.pack(">i", 1) + string("t") + struct.pack(">h", 0)
    assert encode_response(DELETE_TOPICS, 0, fields) == v0


def test_describe_configs():
    request = struct.pack(">ib", 1, 2) + string("t") + struct.pack(">i", -1)
    message = decode_request(DESCRIBE_CONFIGS, 0, request)
    assert (message.resources[0].resource_name, message.include_synonyms) == ("t", False)
    head = struct.pack(">iih", 0, 1, 0) + string("") + b"\x02" + string("t") + struct.pack(">i", 2)
    name = string("retention.ms")
    entries = name + string("5") + bytes(3) + name + b"\xff\xff" + b"\x01\x01\x01"
    assert encode_describe_configs_response(0, [RESOURCE]) == head + entries


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_described_configs_by_hand_are_those_of_the_schema(version):
    configs = [
        {
            "name": one.name,
            "value": one.value,
            "read_only": one.is_read_only,
            "config_source": one.source,
            "is_sensitive": one.is_sensitive,
            "synonyms": [synonym._asdict() for synonym in one.synonyms],
            "config_type": one.type,
            "documentation": one.documentation,
        }
        for one in RESOURCE.configs
    ]
    failed = ResourceDescribed(3, "unknown", 2, "u", [])
    results = [{**RESOURCE._asdict(), "configs": configs}, failed._asdict()]
    schema = encode(ApiKey.DESCRIBE_CONFIGS, version, Direction.RESPONSE, {"throttle_time": 0, "results": results})
    assert encode_describe_configs_response(version, [RESOURCE, failed]) == schema


def test_log_dirs_are_as_in_the_version_after():
    assert decode_request(DESCRIBE_LOG_DIRS, 0, struct.pack(">i", -1)).topics is None
    fields = {"throttle_time": 0, "error_code": ErrorCode.NONE, "results": ()}
    assert encode_response(DESCRIBE_LOG_DIRS, 0, fields) == bytes(8)
    assert encode_response(ALTER_REPLICA_LOG_DIRS, 0, {"throttle_time": 0, "results": ()}) == bytes(8)
