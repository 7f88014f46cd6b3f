"""The nodes of a controller are encoded to the bytes that Apache Kafka 3.9.1 writes, and decoded from them."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import ZooKeeperError
from millrace.zk import codec

PARTITIONS = [("t", 0), ("t", 1)]
ENCODED = [
    (
        codec.encode_controller,
        (1, 1_700_000_000_000),
        b'{"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}',
    ),
    (codec.encode_controller_epoch, (7,), b"7"),
    (codec.encode_log_dir_failure, (1,), b'{"version":1,"broker":1,"event":1}'),
]
DECODED = [
    (
        codec.decode_controller,
        b'{"version":2,"brokerid":5,"timestamp":"1700000000000","kraftControllerEpoch":-1}',
        5,
    ),
    (codec.decode_controller_epoch, b"7", 7),
    (
        codec.decode_partitions,
        b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":1}]}',
        PARTITIONS,
    ),
    (codec.decode_log_dir_event, b'{"version":1,"broker":1,"event":1}', 1),
    (
        codec.decode_reassignment,
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]},{"topic":"t","partition":1,"replicas":[]}]}',
        {("t", 0): (1, 2), ("t", 1): ()},
    ),
]


@pytest.mark.parametrize(("encode", "values", "data"), ENCODED, ids=lambda one: getattr(one, "__name__", ""))
def test_a_node_has_kafkas_bytes(encode, values, data):
    assert encode(*values) == data


@pytest.mark.parametrize(("decode", "data", "value"), DECODED, ids=lambda one: getattr(one, "__name__", ""))
def test_kafkas_bytes_are_read(decode, data, value):
    assert decode(data) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "partitions",
                    "topic",
                    "partition",
                    "replicas",
                    "broker",
                    "features",
                    "status",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("decode", [decode for decode, _, _ in DECODED], ids=lambda decode: decode.__name__)
@given(data=st.binary(max_size=50) | JSON.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_a_typed_error(decode, data):
    with suppress(ZooKeeperError):
        decode(data)
