"""Version 0 of the APIs of access control lists: the bytes of version 1 without the pattern types."""

import pytest

from millrace.errors import MalformedRequestError
from millrace.security.acls import PatternType
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.legacy_acls import (
    decode_create_acls,
    decode_delete_acls,
    decode_describe_acls,
    encode_delete_acls,
    encode_describe_acls,
)

ENTRY = {"principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3}
FILTER = b"\x02\x00\x01t\xff\xff\x00\x01*\x03\x01"
CREATION = b"\x02\x00\x01t\x00\x06User:a\x00\x01*\x03\x03"


def test_a_filter():
    asked = decode_describe_acls(FILTER)
    assert (asked.resource_type_filter, asked.resource_name_filter, asked.principal_filter) == (2, "t", None)
    assert (asked.host_filter, asked.operation, asked.permission_type) == ("*", 3, 1)
    assert asked.pattern_type_filter == PatternType.LITERAL
    assert decode_delete_acls(b"\x00\x00\x00\x01" + FILTER).filters == (asked,)


def test_a_creation():
    (creation,) = decode_create_acls(b"\x00\x00\x00\x01" + CREATION).creations
    assert (creation.resource_name, creation.principal, creation.resource_pattern_type) == ("t", "User:a", 3)


@pytest.mark.parametrize("body", [FILTER[:-1], b"", b"\x02\xff\xfe"])
def test_what_is_cut_off_is_refused(body):
    with pytest.raises(MalformedRequestError):
        decode_describe_acls(body)


def test_answers_are_those_of_version_1_without_the_pattern_type():
    resource = {"resource_type": 2, "resource_name": "t", "pattern_type": 3, "acls": [ENTRY]}
    fields = {"throttle_time": 0, "error_code": 0, "error_message": None, "resources": [resource]}
    newer = encode(ApiKey.DESCRIBE_ACLS, 1, Direction.RESPONSE, fields)
    assert b"".join(encode_describe_acls(fields)) == newer.replace(b"\x00\x01t\x03", b"\x00\x01t")
    matching = {"error_code": 0, "error_message": None, "resource_type": 2, "resource_name": "t", "pattern_type": 3}
    result = {"error_code": 0, "error_message": None, "matching_acls": [{**matching, **ENTRY}]}
    fields = {"throttle_time": 0, "filter_results": [result]}
    newer = encode(ApiKey.DELETE_ACLS, 1, Direction.RESPONSE, fields)
    assert b"".join(encode_delete_acls(fields)) == newer.replace(b"\x00\x01t\x03", b"\x00\x01t")
    assert decode(ApiKey.DELETE_ACLS, 1, Direction.RESPONSE, newer).filter_results[0].matching_acls[0].operation == 3
