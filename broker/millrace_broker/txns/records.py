"""Keys and values of `__transaction_state`, byte for byte Kafka's (TransactionLogKey, TransactionLogValue).

    key    version i16 = 0    transactional id string

    value  version i16     0, or 1 where there is something for the tagged fields
           producer id i64, producer epoch i16, timeout i32, state i8
           partitions [ topic string, partitions [i32] ]?     null in the state Empty
           last update timestamp i64, start timestamp i64
           1, tagged:  0 previous producer id i64   1 next producer id i64   2 client transaction version i16

Version 1 is flexible (KIP-915): lengths are unsigned varints of one more, and each structure ends with tagged fields.
No value is a tombstone.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import NamedTuple

from millrace.errors import CorruptRecordError
from millrace.records.batch import NO_PRODUCER_ID
from millrace.wire.decoder import Decoder
from millrace.wire.encoder import INT16, INT64, Encoder
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.state import NO_CLIENT_VERSION, TransactionMetadata, TransactionState

KEY_VERSION = 0
PLAIN_VALUE_VERSION = 0
FLEXIBLE_VALUE_VERSION = 1
PREVIOUS_PRODUCER_ID_TAG, NEXT_PRODUCER_ID_TAG, CLIENT_VERSION_TAG = range(3)

_KEY_START = struct.Struct(">hh")
_VALUE_START = struct.Struct(">hqhib")
_TIMESTAMPS = struct.Struct(">qq")


class Record(NamedTuple):
    """A record of `__transaction_state`: a key and its newest value, None for a tombstone."""

    key: bytes
    value: bytes | None


def transaction_record(transactional_id: str, metadata: TransactionMetadata | None) -> Record:
    """Returns the record of a transactional id's state; a tombstone for None."""
    name = transactional_id.encode()
    return Record(_KEY_START.pack(KEY_VERSION, len(name)) + name, None if metadata is None else _value(metadata))


def read_key(key: bytes) -> str | None:
    """Returns the transactional id in a key, None for another version; raises CorruptRecordError for other bytes."""
    decoder = Decoder(key)
    return decoder.string() if decoder.int16() == KEY_VERSION else None


def read_value(value: bytes) -> TransactionMetadata:
    """Returns the state in a value of version 0 or 1; raises CorruptRecordError for other bytes."""
    version = Decoder(value).int16()
    if version not in (PLAIN_VALUE_VERSION, FLEXIBLE_VALUE_VERSION):
        raise CorruptRecordError(f"version {version} of a transaction's value is unknown")
    decoder = Decoder(value, INT16.size, flexible=version == FLEXIBLE_VALUE_VERSION)
    producer_id, epoch, timeout_ms, state = decoder.int64(), decoder.int16(), decoder.int32(), decoder.int8()
    partitions = _read_partitions(decoder)
    last_update_timestamp_ms, start_timestamp_ms = decoder.int64(), decoder.int64()
    tagged = decoder.read_tagged_fields()
    return TransactionMetadata(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=_state(state),
        partitions=partitions,
        start_timestamp_ms=start_timestamp_ms,
        last_update_timestamp_ms=last_update_timestamp_ms,
        previous_producer_id=_tagged_id(tagged.get(PREVIOUS_PRODUCER_ID_TAG)),
        next_producer_id=_tagged_id(tagged.get(NEXT_PRODUCER_ID_TAG)),
        client_version=_client_version(tagged.get(CLIENT_VERSION_TAG)),
    )


def _state(number: int) -> TransactionState:
    try:
        return TransactionState(number)
    except ValueError:
        raise CorruptRecordError(f"state {number} of a transaction is unknown") from None


def _read_partitions(decoder: Decoder) -> frozenset[TopicPartition]:
    partitions: list[TopicPartition] = []
    for _ in range(decoder.array_length()):
        topic = decoder.string()
        partitions += [TopicPartition(topic, decoder.int32()) for _ in range(decoder.array_length())]
        decoder.tagged_fields()
    return frozenset(partitions)


def _tagged_id(data: memoryview | None) -> int:
    return NO_PRODUCER_ID if data is None else Decoder(data).int64()


def _client_version(data: memoryview | None) -> int:
    return NO_CLIENT_VERSION if data is None else Decoder(data).int16()


def _value(metadata: TransactionMetadata) -> bytes:
    tagged = _tagged_fields(metadata)
    out = Encoder(flexible=bool(tagged))
    out.raw(
        _VALUE_START.pack(
            FLEXIBLE_VALUE_VERSION if tagged else PLAIN_VALUE_VERSION,
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.timeout_ms,
            metadata.state,
        )
    )
    if metadata.state is TransactionState.EMPTY:
        out.null_array()
    else:
        _partitions(out, metadata.partitions)
    out.raw(_TIMESTAMPS.pack(metadata.last_update_timestamp_ms, metadata.start_timestamp_ms))
    if tagged:
        out.tagged_fields(tagged)
    return out.joined()


def _partitions(out: Encoder, partitions: frozenset[TopicPartition]) -> None:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(partitions):
        by_topic[topic].append(index)
    out.array_length(len(by_topic))
    for topic, indexes in by_topic.items():
        out.string(topic)
        out.int32_array(indexes)
        out.no_tagged_fields()


def _tagged_fields(metadata: TransactionMetadata) -> dict[int, bytes]:
    """Returns a value's tagged fields by their tags: those that differ from their defaults."""
    tagged: dict[int, bytes] = {}
    if metadata.client_version == NO_CLIENT_VERSION:
        return tagged
    if metadata.previous_producer_id != NO_PRODUCER_ID:
        tagged[PREVIOUS_PRODUCER_ID_TAG] = INT64.pack(metadata.previous_producer_id)
    if metadata.next_producer_id != NO_PRODUCER_ID:
        tagged[NEXT_PRODUCER_ID_TAG] = INT64.pack(metadata.next_producer_id)
    tagged[CLIENT_VERSION_TAG] = INT16.pack(metadata.client_version)
    return tagged
