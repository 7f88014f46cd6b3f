"""WriteTxnMarkers v0, byte by byte as Kafka 0.11 to 2.7 had it."""

import struct

import pytest

from millrace.errors import ErrorCode, MalformedRequestError
from millrace.wire.legacy_markers import MarkedTopic, MarkerToWrite, decode_write_txn_markers, encode_write_txn_markers

TOPIC = struct.pack(">h", 1) + b"t" + struct.pack(">iii", 2, 0, 7)
REQUEST = struct.pack(">i", 1) + struct.pack(">qh?i", 1000, 3, True, 1) + TOPIC + struct.pack(">i", 100)


def test_what_is_asked():
    topic = MarkedTopic("t", (0, 7))
    assert decode_write_txn_markers(REQUEST).markers == (MarkerToWrite(1000, 3, True, (topic,), 100),)
    assert decode_write_txn_markers(struct.pack(">i", 0)).markers == ()


@pytest.mark.parametrize("length", range(len(REQUEST)))
def test_a_request_that_is_cut_short(length):
    with pytest.raises(MalformedRequestError):
        decode_write_txn_markers(REQUEST[:length])


def test_what_is_answered():
    partitions = [{"partition_index": 7, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}]
    parts = encode_write_txn_markers([{"producer_id": 1000, "topics": [{"name": "t", "partitions": partitions}]}])
    topic = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">iih", 1, 7, 3)
    assert b"".join(parts) == struct.pack(">iq", 1, 1000) + topic
