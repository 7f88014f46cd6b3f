"""Schemas agree with the table of flexible versions, and times that may be none are numbers."""

import pytest

from millrace.wire.api import ApiKey, is_flexible
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.kio_schemas import entity_type, schema_versions
from millrace.wire.messages import DESCRIBE_TRANSACTIONS

KNOWN = {key: schema_versions(key) for key in ApiKey}
VERSIONS = [(key, version) for key, (first, last) in KNOWN.items() for version in range(first, last + 1)]


@pytest.mark.parametrize("direction", Direction)
def test_the_table_of_flexible_versions_is_that_of_the_schemas(direction):
    wrong = [
        (key.name, version)
        for key, version in VERSIONS
        if entity_type(key, version, direction).__flexible__ != is_flexible(key, version)
    ]
    assert wrong == []


def test_an_idle_transactional_id_has_no_start():
    idle = {
        "error_code": 0,
        "transactional_id": "ä",
        "transaction_state": "Empty",
        "transaction_timeout": 60_000,
        "transaction_start_time": -1,
        "producer_id": 7,
        "producer_epoch": 0,
        "topics": [{"topic": "t", "partitions": [0, 2]}],
    }
    answer = DESCRIBE_TRANSACTIONS.encode_response(0, {"throttle_time": 0, "transaction_states": [idle]})
    [one] = DESCRIBE_TRANSACTIONS.decode_response(0, answer).transaction_states
    assert (one.transaction_start_time, one.transactional_id, one.topics[0].partitions) == (-1, "ä", (0, 2))


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("key", [ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN])
def test_a_token_that_was_not_renewed_has_no_time(key, version):
    fields = {"error_code": 0, "expiry_timestamp": -1, "throttle_time": 0}
    answer = encode(key, version, Direction.RESPONSE, fields)
    assert decode(key, version, Direction.RESPONSE, answer).expiry_timestamp == -1
