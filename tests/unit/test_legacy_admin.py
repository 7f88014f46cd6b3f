"""Admin versions that have no schema any more, byte by byte as Kafka 0.10 to 3.9 had them."""

import struct

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey
from millrace.wire.legacy_admin import decode_request, encode_response


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
ENTRY = {
    "name": "retention.ms",
    "value": "5",
    "read_only": False,
    "config_source": 1,
    "is_sensitive": False,
    "synonyms": [{"name": "x", "value": "y", "source": 5}],
    "config_type": 5,
    "documentation": None,
}


def test_create_topics():
    request = struct.pack(">i", 1) + TOPIC + struct.pack(">i", 5000)
    for version, body in ((0, request), (1, request + b"\x01")):
        message = decode_request(ApiKey.CREATE_TOPICS, version, body)
        assert (message.topics[0].name, message.topics[0].num_partitions) == ("t", 3)
        assert message.validate_only is (version == 1)
    fields = {"throttle_time": 0, "topics": [CREATED]}
    v0 = struct.pack(">i", 1) + string("t") + struct.pack(">h", 36)
    assert encode_response(ApiKey.CREATE_TOPICS, 0, fields) == v0
    assert encode_response(ApiKey.CREATE_TOPICS, 1, fields) == v0 + string("there")
    assert encode_response(ApiKey.CREATE_TOPICS, 2, fields) == bytes(4) + v0 + string("there")


def test_delete_topics():
    message = decode_request(ApiKey.DELETE_TOPICS, 0, struct.pack(">i", 1) + string("t") + struct.pack(">i", 5000))
    assert message.topic_names == ("t",)
    result = {"name": "t", "topic_id": None, "error_code": ErrorCode.NONE, "error_message": None}
    fields = {"throttle_time": 0, "responses": [result]}
    v0 = struct.pack(">i", 1) + string("t") + struct.pack(">h", 0)
    assert encode_response(ApiKey.DELETE_TOPICS, 0, fields) == v0


def test_describe_configs():
    request = struct.pack(">ib", 1, 2) + string("t") + struct.pack(">i", -1)
    message = decode_request(ApiKey.DESCRIBE_CONFIGS, 0, request)
    assert (message.resources[0].resource_name, message.include_synonyms) == ("t", False)
    default = {**ENTRY, "config_source": 5, "read_only": True}
    result = {"error_code": 0, "error_message": "", "resource_type": 2, "resource_name": "t"}
    fields = {"throttle_time": 0, "results": [{**result, "configs": [ENTRY, default]}]}
    head = struct.pack(">iih", 0, 1, 0) + string("") + b"\x02" + string("t") + struct.pack(">i", 2)
    entry = string("retention.ms") + string("5")
    assert encode_response(ApiKey.DESCRIBE_CONFIGS, 0, fields) == head + entry + bytes(3) + entry + b"\x01\x01\x00"


def test_log_dirs_are_as_in_the_version_after():
    assert decode_request(ApiKey.DESCRIBE_LOG_DIRS, 0, struct.pack(">i", -1)).topics is None
    fields = {"throttle_time": 0, "error_code": ErrorCode.NONE, "results": ()}
    assert encode_response(ApiKey.DESCRIBE_LOG_DIRS, 0, fields) == bytes(8)
    assert encode_response(ApiKey.ALTER_REPLICA_LOG_DIRS, 0, {"throttle_time": 0, "results": ()}) == bytes(8)
