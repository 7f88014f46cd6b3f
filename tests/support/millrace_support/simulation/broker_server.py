"""Serves the connections of a simulated broker by the handlers of the real one.

Each write of a connection is one whole request, as brokers' links send them. Answers leave in the order of requests.
Each request has one, unless its connection ends before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

from millrace.errors import WireError
from millrace.wire.api import ApiKey
from millrace.wire.encoder import contents
from millrace.wire.frame import SIZE_BYTES, framed
from millrace.wire.header import RequestHeader, read_request_header
from millrace_broker.handlers.api import Reply, Request, Services
from millrace_support.response_headers import encode_response_header

ANSWERED_WITHIN_S = 30.0  # the writes of all members of a group in turn, each of which fails at its timeout

Handler = Callable[[Services, Request], Reply]


class BrokerServer(asyncio.Protocol):
    """One connection.

    Args:
        services: what the handlers use.
        handlers: answer requests.
        when_done: is called after each request that was handled or answered.
        when_owing: is called with the name of a request that has no answer after `ANSWERED_WITHIN_S`.
    """

    def __init__(
        self,
        services: Services,
        handlers: Mapping[ApiKey, Handler],
        when_done: Callable[[], None],
        when_owing: Callable[[str], None],
    ) -> None:
        self._services = services
        self._handlers = handlers
        self._when_done = when_done
        self._when_owing = when_owing
        self._replies: deque[tuple[RequestHeader, Reply]] = deque()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the connection."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Gives up what still waits for its answer."""
        for _, reply in self._replies:
            if isinstance(reply, asyncio.Future):
                reply.cancel()
        self._replies.clear()

    def data_received(self, data: bytes) -> None:
        """Handles a request."""
        frame = memoryview(data)[SIZE_BYTES:]
        header = read_request_header(frame)
        request = Request(header.api_version, header.client_id, frame[header.body_position :])
        try:
            reply = self._handlers[ApiKey(header.api_key)](self._services, request)
        except WireError:
            self._transport.abort()
            return
        self._replies.append((header, reply))
        if isinstance(reply, asyncio.Future):
            reply.add_done_callback(lambda _: self._answer())
            asyncio.get_running_loop().call_later(ANSWERED_WITHIN_S, self._check, header, reply)
        self._answer()

    def _check(self, header: RequestHeader, reply: asyncio.Future[Any]) -> None:
        if not reply.done() and not self._transport.is_closing():
            self._when_owing(ApiKey(header.api_key).name)

    def _answer(self) -> None:
        while self._replies:
            header, reply = self._replies[0]
            if isinstance(reply, asyncio.Future):
                if not reply.done():
                    break
                if reply.cancelled():
                    return
                reply = reply.result()
            self._replies.popleft()
            if not isinstance(reply, list):
                continue  # the protocol has no answer, and no client has a quota
            message = b"".join(bytes(contents(part)) for part in reply)
            head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
            self._transport.write(framed(head, message))
        self._when_done()
