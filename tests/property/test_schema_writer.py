"""Messages of every API and version are written as kio writes them, with all their fields or with defaults."""

import io
import struct
from dataclasses import MISSING
from random import Random

import pytest
from kio.serial import entity_writer

from millrace.errors import InvalidRequestError
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, encode, encode_request
from millrace.wire.kio_schemas import entity_type, schema, schema_versions
from millrace_support.kio_entities import entity_of
from millrace_support.random_messages import random_fields

ROUNDS = 20


def by_kio(key, version, direction, values):
    entity = entity_type(key, version, direction)
    out = io.BytesIO()
    entity_writer(entity)(out, entity_of(entity, values))
    return out.getvalue()


def without_defaults(random, values, fields):
    """The values without some of those that have a default."""
    kept = {}
    for one in fields:
        if (one.default is MISSING and one.tag is None) or random.random() < 0.5:
            value = values[one.name]
            if one.kind == "struct" and isinstance(value, list):
                value = [without_defaults(random, element, one.fields) for element in value]
            kept[one.name] = value
    return kept


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("key", ApiKey)
def test_a_message_is_written_as_kio_writes_it(key, direction):
    random = Random(f"{key}{direction}")
    first, last = schema_versions(key)
    for version in range(first, last + 1):
        _, fields = schema(key, version, direction)
        for _ in range(ROUNDS):
            values = random_fields(random, fields)
            assert encode(key, version, direction, values) == by_kio(key, version, direction, values)
            less = without_defaults(random, values, fields)
            try:
                expected = by_kio(key, version, direction, less)
            except TypeError:  # a tagged field that kio has no default for
                continue
            assert encode(key, version, direction, less) == expected


def test_names_of_other_versions_are_passed_over_and_a_missing_value_is_named():
    heartbeat = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    later = {**heartbeat, "group_instance_id": "i"}
    assert encode_request(ApiKey.HEARTBEAT, 0, later) == encode_request(ApiKey.HEARTBEAT, 0, heartbeat)
    for name in heartbeat:
        with pytest.raises(KeyError, match=name):
            encode_request(ApiKey.HEARTBEAT, 0, {one: value for one, value in heartbeat.items() if one != name})


@pytest.mark.parametrize(
    "wrong", [{"generation_id": 1 << 31}, {"group_id": "x" * 40_000}, {"group_id": "\ud800"}, {"member_id": None}]
)
def test_a_value_that_does_not_fit_its_field_is_an_invalid_request(wrong):
    with pytest.raises(InvalidRequestError):
        encode_request(ApiKey.HEARTBEAT, 0, {"group_id": "g", "generation_id": 1, "member_id": "m", **wrong})


def test_long_messages_about_errors_are_shortened():
    fields = {"throttle_time": 0, "results": [{"error_code": 1, "error_message": "x" * 40_000}]}
    body = encode(ApiKey.CREATE_ACLS, 1, Direction.RESPONSE, fields)
    assert struct.unpack_from(">h", body, 10) == (1003,)
