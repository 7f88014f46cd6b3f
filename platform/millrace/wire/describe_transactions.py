"""The answer to DescribeTransactions, version 0, by hand: `kio` has no start time of -1, of an idle id (KIP-664).

throttle time i32
transactions [ error i16, transactional id string, state string, timeout i32, start time i64,
producer id i64, producer epoch i16, topics [ name string, partitions [i32] ] ]      flexible
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from millrace.errors import MalformedRequestError
from millrace.wire.decoder import Decoder
from millrace.wire.encoder import Encoder, Parts

NO_TOPICS: Mapping[str, Sequence[int]] = MappingProxyType({})


class TransactionDescribed(NamedTuple):
    """One transactional id; with an error, the other fields have the protocol's defaults."""

    error_code: int
    transactional_id: str
    state: str = ""
    timeout_ms: int = 0
    start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: Mapping[str, Sequence[int]] = NO_TOPICS


def encode_describe_transactions_response(transactions: Sequence[TransactionDescribed]) -> Parts:
    """Returns the message without its header."""
    out = Encoder(flexible=True)
    out.int32(0)
    out.array_length(len(transactions))
    for one in transactions:
        out.int16(one.error_code)
        out.string(one.transactional_id)
        out.string(one.state)
        out.int32(one.timeout_ms)
        out.int64(one.start_time_ms)
        out.int64(one.producer_id)
        out.int16(one.producer_epoch)
        out.array_length(len(one.topics))
        for topic, partitions in one.topics.items():
            out.string(topic)
            out.int32_array(partitions)
            out.no_tagged_fields()
        out.no_tagged_fields()
    out.no_tagged_fields()
    return out.parts


def decode_describe_transactions_response(body: memoryview | bytes) -> list[TransactionDescribed]:
    """Returns the transactional ids of a message without its header; raises MalformedRequestError for other bytes."""
    read = Decoder(body, flexible=True, error=MalformedRequestError)
    read.int32()
    return [_described(read) for _ in range(read.array_length())]


def _described(read: Decoder) -> TransactionDescribed:
    described = TransactionDescribed(
        read.int16(),
        read.string(),
        read.string(),
        read.int32(),
        read.int64(),
        read.int64(),
        read.int16(),
        dict(_topic(read) for _ in range(read.array_length())),
    )
    read.tagged_fields()
    return described


def _topic(read: Decoder) -> tuple[str, Sequence[int]]:
    topic = read.string(), [read.int32() for _ in range(read.array_length())]
    read.tagged_fields()
    return topic
