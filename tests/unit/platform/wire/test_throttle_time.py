"""The throttle time is found in every response of every version that is served, as a decoder finds it there."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.encoder import contents
from millrace.wire.kio_schemas import schema, schema_versions
from millrace.wire.metadata import BrokerMetadata, LeaderHint
from millrace.wire.produce import PartitionProduced, TopicProduced, encode_produce_response
from millrace.wire.throttle_time import with_throttle_time
from millrace_broker.handlers.cluster_registry import CLUSTER_APIS
from millrace_broker.handlers.registry import APIS

THROTTLE_MS = 12_345
NAMES = ("throttle_time", "throttle_time_ms")
SERVED = {**APIS, **CLUSTER_APIS}
VERSIONS = [
    (key, version)
    for key, api in sorted(SERVED.items())
    for version in range(max(api.versions.minimum, schema_versions(key).minimum), api.versions.maximum + 1)
]


VALUES = {
    "string": "text",
    "bytes": b"bytes",
    "records": b"records",
    "uuid": UUID(int=9),
    "bool": True,
    "float64": 1.5,
    "error_code": ErrorCode.NONE,
    "datetime_i64": datetime(2026, 1, 1, tzinfo=UTC),
}


def values(fields):
    """Returns a message in which every list has two elements."""
    made = {one.name: values(one.fields) if one.kind == "struct" else VALUES.get(one.kind, 1) for one in fields}
    return made | {one.name: [made[one.name]] * 2 for one in fields if one.is_array}


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=lambda one: str(getattr(one, "name", one)))
def test_a_response_has_the_throttle_time_and_no_other_field_is_overwritten(key, version):
    fields = values(schema(key, version, Direction.RESPONSE)[1])
    fields.pop("node_endpoints", None) if key == ApiKey.PRODUCE else None  # a part of their own, see below
    throttled = {**fields, **{name: THROTTLE_MS for name in NAMES if name in fields}}
    before, after = (encode(key, version, Direction.RESPONSE, one) for one in (fields, throttled))
    assert with_throttle_time(key, version, [before], THROTTLE_MS) == [after]


PRODUCED = PartitionProduced(0, 0, 7, -1, 3)
MOVED = PartitionProduced(0, 6, -1, -1, -1, "moved", (), LeaderHint(2, 5))


@pytest.mark.parametrize("version", range(1, 14))
@pytest.mark.parametrize("joined", [False, True], ids=["parts", "joined"])
def test_a_produce_response_has_it_at_the_end(version, joined):
    """As the broker encodes it, in parts or in one piece."""
    plain = encode_produce_response(version, [TopicProduced("t", UUID(int=1), [PRODUCED])])
    parts = [b"".join(map(contents, plain))] if joined else plain
    found = b"".join(map(contents, with_throttle_time(ApiKey.PRODUCE, version, parts, THROTTLE_MS)))
    assert found.count(THROTTLE_MS.to_bytes(4, "big")) == 1
    if version >= 3:
        answer = decode(ApiKey.PRODUCE, version, Direction.RESPONSE, found)
        assert answer.throttle_time == timedelta(milliseconds=THROTTLE_MS)
        assert answer.responses[0].partition_responses[0].base_offset == 7


@pytest.mark.parametrize("version", range(10, 14))
def test_a_produce_response_that_names_leaders_has_it_before_them(version):
    parts = encode_produce_response(
        version, [TopicProduced("t", UUID(int=1), [MOVED])], [BrokerMetadata(2, "host", 9092, None)]
    )
    found = with_throttle_time(ApiKey.PRODUCE, version, parts, THROTTLE_MS)
    answer = decode(ApiKey.PRODUCE, version, Direction.RESPONSE, b"".join(map(contents, found)))
    assert answer.throttle_time == timedelta(milliseconds=THROTTLE_MS)
    assert [one.port for one in answer.node_endpoints] == [9092]


def test_a_refused_version_of_api_versions_is_answered_without_it():
    body = encode(
        ApiKey.API_VERSIONS, 0, Direction.RESPONSE, {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": ()}
    )
    assert with_throttle_time(ApiKey.API_VERSIONS, 99, [body], THROTTLE_MS) == [body]


@pytest.mark.parametrize(("key", "version"), [(ApiKey.PRODUCE, 0), (ApiKey.FETCH, 0), (ApiKey.CREATE_TOPICS, 1)])
def test_the_first_versions_have_none(key, version):
    assert with_throttle_time(key, version, [b"answer"], THROTTLE_MS) == [b"answer"]
