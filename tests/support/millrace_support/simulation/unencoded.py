"""Hands messages between simulated brokers over as objects: to encode and decode them takes a fifth of the time.

What stands for a message on the network is its number, and the receiver gets the object that the sender's fields make.
It is the same object of kio's that decoding gives, with the same conversions and defaults, and it can't be changed.
Messages that are encoded otherwise (Produce, the answers of Fetch) are decoded as ever. The answer to ApiVersions,
which brokers keep encoded, is not kept here, as its number would mean nothing in the next simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from millrace.wire.api_messages import ApiMessages
from millrace.wire.cold import Direction, decoder
from millrace.wire.kio_schemas import entity_type
from millrace.wire.schema_writer import Fields
from millrace_broker.handlers import k18_api_versions
from millrace_support.kio_entities import entity_of

MARK = b"not encoded: "

Messages = ApiMessages[Any, Any, Any, Any]


class _Sent:
    """All messages of a simulation, in the order in which they were sent."""

    def __init__(self) -> None:
        self._messages: list[object] = []

    def put(self, api: Messages, version: int, fields: Fields, *, direction: Direction) -> bytes:
        """Notes a message, and returns what is sent instead."""
        decoder(api.key, version, direction)  # gives the class those fields that the version lacks
        entity = entity_type(api.key, version, direction)
        self._messages.append(entity_of(entity, fields))
        return MARK + b"%d" % (len(self._messages) - 1)

    def get(
        self, api: Messages, version: int, body: memoryview | bytes, *, direction: Direction, **how: bool
    ) -> object:
        """Returns the message that was noted, or decodes one that is encoded."""
        if body[: len(MARK)] != MARK:
            return decoder(api.key, version, direction, **how)(body)
        return self._messages[int(bytes(body[len(MARK) :]))]


@contextmanager
def unencoded() -> Iterator[None]:
    """Hands messages over as objects."""
    sent = _Sent()
    with ExitStack() as patches:
        for direction in Direction:
            name = direction.name.lower()
            put, get = _method(sent.put, direction), _method(sent.get, direction)
            patches.enter_context(patch.object(ApiMessages, f"encode_{name}", put))
            patches.enter_context(patch.object(ApiMessages, f"decode_{name}", get))
        remembering = k18_api_versions._encoded  # noqa: SLF001  the only answer that is kept
        patches.enter_context(patch.object(k18_api_versions, "_encoded", remembering.__wrapped__))
        yield


def _method(do: Callable[..., object], direction: Direction) -> Callable[..., object]:
    def method(api: Messages, version: int, given: Any, **how: bool) -> object:
        return do(api, version, given, direction=direction, **how)

    return method
