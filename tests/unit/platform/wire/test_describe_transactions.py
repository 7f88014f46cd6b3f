"""The answer to DescribeTransactions is read as it is written, and bytes that are none raise one error."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import MalformedRequestError
from millrace.wire.describe_transactions import (
    TransactionDescribed,
    decode_describe_transactions_response,
    encode_describe_transactions_response,
)

DESCRIBED = [
    TransactionDescribed(0, "idle", "Empty", 60_000, -1, 7, 0),
    TransactionDescribed(0, "ä", "Ongoing", 1, 1_782_000_000_000, 8, 3, {"t": [0, 2], "u": [1]}),
    TransactionDescribed(105, "nobody"),
]
BYTES = b"".join(map(bytes, encode_describe_transactions_response(DESCRIBED)))


def test_it_is_read_as_it_is_written():
    assert decode_describe_transactions_response(BYTES) == DESCRIBED


@given(st.binary(max_size=100))
def test_other_bytes_raise_one_error(body):
    with suppress(MalformedRequestError):
        decode_describe_transactions_response(body)


@pytest.mark.parametrize("size", range(4, len(BYTES) - 1))
def test_a_cut_answer_is_malformed(size):
    with pytest.raises(MalformedRequestError):
        decode_describe_transactions_response(BYTES[:size])
