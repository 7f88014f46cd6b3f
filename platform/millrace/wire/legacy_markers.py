"""WriteTxnMarkers v0, which coordinators and administrators of Kafka 0.11 to 2.7 send and `kio` has no schema for.

    request     markers [producer id i64, epoch i16, commit bool, topics [name string, indexes [i32]],
                         coordinator epoch i32]
    response    markers [producer id i64, topics [name string, partitions [index i32, error i16]]]

The fields, and their names, are those of v1, which has compact lengths and tagged fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from millrace.errors import MalformedRequestError
from millrace.wire.decoder import Decoder
from millrace.wire.encoder import Encoder, Parts

if TYPE_CHECKING:
    from millrace.wire.messages.write_txn_markers import WritableTxnMarkerResultFields


class MarkedTopic(NamedTuple):
    """Partitions of one topic."""

    name: str
    partition_indexes: tuple[int, ...]


class MarkerToWrite(NamedTuple):
    """The end of one producer's transaction."""

    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: tuple[MarkedTopic, ...]
    coordinator_epoch: int


class WriteTxnMarkersRequest(NamedTuple):
    """A WriteTxnMarkers request of v0."""

    markers: tuple[MarkerToWrite, ...]


def decode_write_txn_markers(body: memoryview | bytes) -> WriteTxnMarkersRequest:
    """Returns the request; raises MalformedRequestError for other bytes."""
    decoder = Decoder(body, error=MalformedRequestError)
    return WriteTxnMarkersRequest(tuple(_marker(decoder) for _ in range(decoder.array_length())))


def _marker(decoder: Decoder) -> MarkerToWrite:
    producer_id, producer_epoch, is_commit = decoder.int64(), decoder.int16(), decoder.boolean()
    topics = tuple(_topic(decoder) for _ in range(decoder.array_length()))
    return MarkerToWrite(producer_id, producer_epoch, is_commit, topics, decoder.int32())


def _topic(decoder: Decoder) -> MarkedTopic:
    name = decoder.string()
    return MarkedTopic(name, tuple(decoder.int32() for _ in range(decoder.array_length())))


def encode_write_txn_markers(markers: Sequence[WritableTxnMarkerResultFields]) -> Parts:
    """Returns the response, made from the fields of v1."""
    out = Encoder(flexible=False)
    out.array_length(len(markers))
    for marker in markers:
        out.int64(marker["producer_id"])
        out.array_length(len(marker["topics"]))
        for topic in marker["topics"]:
            out.string(topic["name"])
            out.array_length(len(topic["partitions"]))
            for partition in topic["partitions"]:
                out.int32(partition["partition_index"])
                out.int16(partition["error_code"])
    return out.parts
