"""The nodes of a controller are encoded to the bytes that Apache Kafka 3.9.1 writes, and decoded from them."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import ZooKeeperError
from millrace.zk import controller_codec as codec

PARTITIONS = [("t", 0), ("t", 1)]
EXAMPLES = [
    (
        codec.encode_controller,
        codec.decode_controller,
        codec.Controller(broker_id=1, timestamp_ms=1_700_000_000_000),
        b'{"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}',
    ),
    (codec.encode_controller_epoch, codec.decode_controller_epoch, 7, b"7"),
    (
        codec.encode_partitions,
        codec.decode_partitions,
        PARTITIONS,
        b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":1}]}',
    ),
    (codec.encode_log_dir_failure, codec.decode_log_dir_event, 1, b'{"version":1,"broker":1,"event":1}'),
    (
        codec.encode_reassignment,
        codec.decode_reassignment,
        {("t", 0): (1, 2), ("t", 1): ()},
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]},{"topic":"t","partition":1,"replicas":[]}]}',
    ),
]


@pytest.mark.parametrize(("encode", "decode", "value", "data"), EXAMPLES, ids=lambda one: getattr(one, "__name__", ""))
def test_a_node_has_kafkas_bytes_and_comes_back(encode, decode, value, data):
    assert encode(value) == data
    assert decode(data) == value


def test_a_controller_of_an_older_kafka_has_no_kraft_epoch():
    controller = codec.decode_controller(b'{"version":1,"brokerid":5,"timestamp":"17"}')
    assert controller == codec.Controller(broker_id=5, timestamp_ms=17)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "brokerid",
                    "timestamp",
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


@pytest.mark.parametrize(
    "decode", dict.fromkeys(decode for _, decode, _, _ in EXAMPLES), ids=lambda decode: decode.__name__
)
@given(data=st.binary(max_size=50) | JSON.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_a_typed_error(decode, data):
    with suppress(ZooKeeperError):
        decode(data)
