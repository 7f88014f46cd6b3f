"""A place in the line of a connection: it holds requests until they are handled, and replies until they leave."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from millrace.errors import UnsupportedVersionError, WireError
from millrace.wire.api import ApiKey
from millrace.wire.encoder import Parts
from millrace.wire.header import RequestHeader, start_of_responses
from millrace_broker.handlers.api import Api, Later, Reply, Request, Response
from millrace_broker.metrics import ApiCount, RequestTimes

SMALL_REPLIES_BYTES = 16 << 10
LONG_BYTES = 4 << 10  # of a request: a thousand entries of some bytes each

Waited = Later | asyncio.Future[list[Response]]  # for one reply, or for several


class Slot:
    """A place in line, of one request or of several of one kind that arrived together and are handled together."""

    __slots__ = (
        "answered", "api", "api_key", "arrived", "bytes_in", "bytes_out", "count", "future", "headers",
        "is_alone", "is_long", "parts", "reply_bytes", "requests", "times", "version",
    )  # fmt: skip

    def __init__(self, api: Api, api_key: int, version: int, arrived: float, *, is_long: bool) -> None:
        self.api = api
        self.is_long = is_long  # its only request has turns of its own
        self.is_alone = is_long or api.handle_all is None
        self.api_key = api_key
        self.version = version
        self.arrived = arrived
        self.bytes_in = 0
        self.bytes_out = 0
        self.headers: list[RequestHeader] = []
        self.requests: list[Request] = []
        self.times: RequestTimes
        self.answered: float  # when the replies were there, by the clock of `times`
        self.count: ApiCount
        self.reply_bytes: list[int] = []  # of each request's reply; 0 for one that wants none
        self.future: Waited | None = None  # of replies that come later
        self.parts: Parts | None = None  # the frames of all replies; None until they are there

    def leaves_out(self, size_bytes: int, body: memoryview) -> bool:
        """Returns whether another request of its kind is not handled together with those that are here."""
        return size_bytes > LONG_BYTES and takes_long(self.api, self.version, body)

    def take_replies(self, responses: Sequence[Reply | WireError]) -> int | None:
        """Makes frames of the responses, which become the slot's `parts`, and returns how many bytes they are.

        Returns None, and makes nothing, where a future is among the responses.
        """
        parts: Parts = []
        start, start_bytes = start_of_responses(self.api_key, self.version)
        for header, message in zip(self.headers, responses, strict=False):
            if not isinstance(message, list):
                if isinstance(message, asyncio.Future):
                    self.reply_bytes.clear()
                    return None
                self.reply_bytes.append(0)
                continue
            size_bytes = start_bytes + (len(message[0]) if len(message) == 1 else sum(map(len, message)))
            self.reply_bytes.append(size_bytes)
            parts.append(start.pack(size_bytes, header.correlation_id))
            parts += message
        reply_bytes = self.bytes_out = sum(self.reply_bytes)
        is_small = reply_bytes < SMALL_REPLIES_BYTES  # so none of them is a region of a file
        self.parts = [b"".join(parts)] if is_small else parts  # type: ignore[arg-type]
        return reply_bytes


def takes_long(api: Api, version: int, body: memoryview) -> bool:
    """Returns whether a request of more than `LONG_BYTES` is handled alone, in turns."""
    return api.handle_all is None or (api.has_many is not None and api.has_many(version, body))


def served(apis: Mapping[int, Api], header: RequestHeader) -> Api:
    """Returns the API of a request; raises UnsupportedVersionError where it is not served in that version."""
    api = apis.get(header.api_key)
    if api is None:
        raise UnsupportedVersionError(f"API key {header.api_key} is not served")
    minimum, maximum = api.versions
    if not minimum <= header.api_version <= maximum and api.key != ApiKey.API_VERSIONS:
        raise UnsupportedVersionError(
            f"{api.key.name} v{header.api_version} is not served; v{minimum} to v{maximum} are"
        )
    return api
