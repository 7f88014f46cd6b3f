"""Versions that kio has no schema for, byte by byte as Kafka 0.8 to 3.9 had them."""

import struct

import pytest

from millrace.errors import ErrorCode, MalformedRequestError
from millrace.security.acls import PatternType
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, encode
from millrace.wire.describe_configs import (
    ConfigDescribed,
    ResourceDescribed,
    SynonymDescribed,
    encode_describe_configs_response,
)
from millrace.wire.messages import (
    ALTER_REPLICA_LOG_DIRS,
    CREATE_ACLS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    WRITE_TXN_MARKERS,
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
ACL = {"principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3}
FILTER = b"\x02\x00\x01t\xff\xff\x00\x01*\x03\x01"
CREATION = b"\x02\x00\x01t\x00\x06User:a\x00\x01*\x03\x03"
PARTITIONS = struct.pack(">h", 1) + b"t" + struct.pack(">iii", 2, 0, 7)
MARKERS = struct.pack(">i", 1) + struct.pack(">qh?i", 1000, 3, True, 1) + PARTITIONS + struct.pack(">i", 100)


def test_create_topics():
    request = struct.pack(">i", 1) + TOPIC + struct.pack(">i", 5000)
    for version, body in ((0, request), (1, request + b"\x01")):
        message = CREATE_TOPICS.decode_request(version, body)
        assert (message.topics[0].name, message.topics[0].num_partitions) == ("t", 3)
        assert message.validate_only is (version == 1)
    fields = {"throttle_time": 0, "topics": [CREATED]}
    v0 = struct.pack(">i", 1) + string("t") + struct.pack(">h", 36)
    assert CREATE_TOPICS.encode_response(0, fields) == v0
    assert CREATE_TOPICS.encode_response(1, fields) == v0 + string("there")
    assert CREATE_TOPICS.encode_response(2, fields) == bytes(4) + v0 + string("there")


def test_delete_topics():
    message = DELETE_TOPICS.decode_request(0, struct.pack(">i", 1) + string("t") + struct.pack(">i", 5000))
    assert message.topic_names == ("t",)
    result = {"name": "t", "topic_id": None, "error_code": ErrorCode.NONE, "error_message": None}
    fields = {"throttle_time": 0, "responses": [result]}
    v0 = struct.pack(">i", 1) + string("t") + struct.pack(">h", 0)
    assert DELETE_TOPICS.encode_response(0, fields) == v0


def test_describe_configs():
    request = struct.pack(">ib", 1, 2) + string("t") + struct.pack(">i", -1)
    message = DESCRIBE_CONFIGS.decode_request(0, request)
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
    assert DESCRIBE_LOG_DIRS.decode_request(0, struct.pack(">i", -1)).topics is None
    fields = {"throttle_time": 0, "error_code": ErrorCode.NONE, "results": ()}
    assert DESCRIBE_LOG_DIRS.encode_response(0, fields) == bytes(8)
    assert ALTER_REPLICA_LOG_DIRS.encode_response(0, {"throttle_time": 0, "results": ()}) == bytes(8)


def test_a_filter_of_acls():
    asked = DESCRIBE_ACLS.decode_request(0, FILTER)
    assert (asked.resource_type_filter, asked.resource_name_filter, asked.principal_filter) == (2, "t", None)
    assert (asked.host_filter, asked.operation, asked.permission_type) == ("*", 3, 1)
    assert asked.pattern_type_filter == PatternType.LITERAL
    [other] = DELETE_ACLS.decode_request(0, b"\x00\x00\x00\x01" + FILTER).filters
    assert (other.host_filter, other.pattern_type_filter) == ("*", PatternType.LITERAL)


def test_a_creation_of_an_acl():
    (creation,) = CREATE_ACLS.decode_request(0, b"\x00\x00\x00\x01" + CREATION).creations
    assert (creation.resource_name, creation.principal, creation.resource_pattern_type) == ("t", "User:a", 3)


@pytest.mark.parametrize("body", [FILTER[:-1], b"", b"\x02\xff\xfe"])
def test_a_filter_that_is_cut_off_is_refused(body):
    with pytest.raises(MalformedRequestError):
        DESCRIBE_ACLS.decode_request(0, body)


def test_answers_about_acls_are_those_of_version_1_without_the_pattern_type():
    resource = {"resource_type": 2, "resource_name": "t", "pattern_type": 3, "acls": [ACL]}
    fields = {"throttle_time": 0, "error_code": 0, "error_message": None, "resources": [resource]}
    newer = encode(ApiKey.DESCRIBE_ACLS, 1, Direction.RESPONSE, fields)
    assert DESCRIBE_ACLS.encode_response(0, fields) == newer.replace(b"\x00\x01t\x03", b"\x00\x01t")
    matching = {"error_code": 0, "error_message": None, "resource_type": 2, "resource_name": "t", "pattern_type": 3}
    result = {"error_code": 0, "error_message": None, "matching_acls": [{**matching, **ACL}]}
    fields = {"throttle_time": 0, "filter_results": [result]}
    newer = encode(ApiKey.DELETE_ACLS, 1, Direction.RESPONSE, fields)
    assert DELETE_ACLS.encode_response(0, fields) == newer.replace(b"\x00\x01t\x03", b"\x00\x01t")


def test_markers():
    [marker] = WRITE_TXN_MARKERS.decode_request(0, MARKERS).markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (1000, 3, True)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", (0, 7))]
    assert marker.coordinator_epoch == 100
    assert WRITE_TXN_MARKERS.decode_request(0, struct.pack(">i", 0)).markers == ()
    partitions = [{"partition_index": 7, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}]
    fields = {"markers": [{"producer_id": 1000, "topics": [{"name": "t", "partitions": partitions}]}]}
    answered = struct.pack(">iqi", 1, 1000, 1) + string("t") + struct.pack(">iih", 1, 7, 3)
    assert WRITE_TXN_MARKERS.encode_response(0, fields) == answered


@pytest.mark.parametrize("length", range(len(MARKERS)))
def test_markers_that_are_cut_short(length):
    with pytest.raises(MalformedRequestError):
        WRITE_TXN_MARKERS.decode_request(0, MARKERS[:length])


def test_offsets_are_committed():
    topic = struct.pack(">i", 1) + string("t") + struct.pack(">iiq", 1, 7, 42)
    message = OFFSET_COMMIT.decode_request(0, string("g") + topic + string("m"))
    [one] = message.topics[0].partitions
    assert (message.group_id, message.generation_id_or_member_epoch, message.member_id) == ("g", -1, "")
    assert (one.partition_index, one.committed_offset, one.committed_metadata, one.commit_timestamp) == (7, 42, "m", -1)
    head = string("g") + struct.pack(">i", 3) + string("member")
    message = OFFSET_COMMIT.decode_request(1, head + topic + struct.pack(">q", 1000) + string("m"))
    [one] = message.topics[0].partitions
    assert (message.generation_id_or_member_epoch, message.member_id) == (3, "member")
    assert (one.committed_offset, one.commit_timestamp, one.committed_metadata) == (42, 1000, "m")
    fields = {"throttle_time": 0, "topics": [{"name": "t", "partitions": [{"partition_index": 7, "error_code": 3}]}]}
    answered = struct.pack(">i", 1) + string("t") + struct.pack(">iih", 1, 7, 3)
    assert [OFFSET_COMMIT.encode_response(version, fields) for version in (0, 1)] == [answered, answered]


def test_offsets_are_fetched():
    message = OFFSET_FETCH.decode_request(0, string("g") + struct.pack(">i", 1) + PARTITIONS)
    assert (message.group_id, message.topics[0].name, message.topics[0].partition_indexes) == ("g", "t", (0, 7))
    partition = {"partition_index": 7, "committed_offset": 42, "metadata": "m", "error_code": 0}
    answered = struct.pack(">i", 1) + string("t") + struct.pack(">iiq", 1, 7, 42) + string("m") + bytes(2)
    assert OFFSET_FETCH.encode_response(0, {"topics": [{"name": "t", "partitions": [partition]}]}) == answered
