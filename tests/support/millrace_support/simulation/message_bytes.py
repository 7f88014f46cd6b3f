"""Checks in a simulation that messages arrive as they were sent: what is decoded equals the fields that were encoded.

Messages go as bytes through the broker's encoders and decoders. Beside them this keeps, for each message that was
encoded, the object of kio's that its fields make (`kio_entities`), which depends on no encoder. The answers of Fetch,
which are encoded and read by hand, are read once more by the decoder that is made of the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from millrace.records.batch import NO_LEADER_EPOCH
from millrace.wire.api_messages import ApiMessages
from millrace.wire.cold import Direction, decoder
from millrace.wire.encoder import contents
from millrace.wire.fetch import (
    FOLLOWERS_VERSION,
    NO_PREFERRED_READ_REPLICA,
    FetchResponse,
    PartitionFetched,
    PartitionKey,
    decode_fetch_response,
)
from millrace.wire.kio_schemas import entity_type
from millrace.wire.messages import FETCH
from millrace.wire.schema_writer import Fields
from millrace_broker.replication import replica_fetcher
from millrace_support.kio_entities import entity_of

if TYPE_CHECKING:
    from millrace.wire.messages.fetch import PartitionData

Messages = ApiMessages[Any, Any, Any, Any]
Anomaly = Callable[[str], None]
ENCODE: Mapping[Direction, Callable[..., bytes]] = {
    Direction.REQUEST: ApiMessages.encode_request,
    Direction.RESPONSE: ApiMessages.encode_response,
}
DECODE: Mapping[Direction, Callable[..., object]] = {
    Direction.REQUEST: ApiMessages.decode_request,
    Direction.RESPONSE: ApiMessages.decode_response,
}


class _Sent:
    """The messages of a simulation that were encoded, by their bytes."""

    def __init__(self, anomaly: Anomaly) -> None:
        self._anomaly = anomaly
        self._messages: dict[tuple[int, int, Direction, bytes], object] = {}

    def encode(self, api: Messages, version: int, fields: Fields, *, direction: Direction) -> bytes:
        """Encodes a message and notes what it says."""
        body = ENCODE[direction](api, version, fields)
        decoder(api.key, version, direction)  # gives the class those fields that the version lacks
        message = entity_of(entity_type(api.key, version, direction), fields)
        if self._messages.setdefault((api.key, version, direction, body), message) != message:
            self._anomaly(f"{api.key.name} v{version}: two messages are encoded alike, one is {message}")
        return body

    def decode(
        self, api: Messages, version: int, body: memoryview | bytes, *, direction: Direction, **how: bool
    ) -> object:
        """Decodes a message, and compares it with the one that was sent."""
        message = DECODE[direction](api, version, body, **how)
        if self._messages.get((api.key, version, direction, bytes(body)), message) != message:
            self._anomaly(f"{api.key.name} v{version} arrives as another message: {message}")
        return message

    def decode_fetched(self, body: memoryview | bytes) -> FetchResponse:
        """Decodes an answer of Fetch as followers do, and compares it with what its schema says."""
        fetched = decode_fetch_response(body)
        message: Any = decoder(FETCH.key, FOLLOWERS_VERSION, Direction.RESPONSE)(body)
        told = {
            PartitionKey(topic.topic_id, one.partition_index): _told(one)
            for topic in message.responses
            for one in topic.partitions
        }
        read = FetchResponse(message.error_code, message.session_id, told)
        if fetched._replace(fetched={key: _read(one) for key, one in fetched.fetched.items()}) != read:
            self._anomaly(f"the answer of Fetch {message} is read as {fetched}")
        return fetched


def _told(one: PartitionData) -> PartitionFetched:
    """Returns what a follower is to read of an answer that was decoded by its schema."""
    end = one.diverging_epoch
    return PartitionFetched(
        one.partition_index,
        one.error_code,
        one.high_watermark,
        one.last_stable_offset,
        one.log_start_offset,
        one.records or b"",
        diverging_epoch=None if end is None or end.epoch == NO_LEADER_EPOCH else (end.epoch, end.end_offset),
    )


def _read(one: PartitionFetched) -> PartitionFetched:
    """Returns what a follower has read of what the schema has: it knows no tagged field of ours."""
    return one._replace(
        records=bytes(contents(one.records)),
        preferred_read_replica=NO_PREFERRED_READ_REPLICA,
        current_leader=None,
        gapless_from=None,
    )


@contextmanager
def checked_bytes(anomaly: Anomaly) -> Iterator[None]:
    """Compares all messages that arrive with those that were sent."""
    sent = _Sent(anomaly)
    with ExitStack() as patches:
        for direction in Direction:
            name = direction.name.lower()
            patches.enter_context(patch.object(ApiMessages, f"encode_{name}", _method(sent.encode, direction)))
            patches.enter_context(patch.object(ApiMessages, f"decode_{name}", _method(sent.decode, direction)))
        patches.enter_context(patch.object(replica_fetcher, "decode_fetch_response", sent.decode_fetched))
        yield


def _method(do: Callable[..., object], direction: Direction) -> Callable[..., object]:
    def method(api: Messages, version: int, given: Any, **how: bool) -> object:
        return do(api, version, given, direction=direction, **how)

    return method
