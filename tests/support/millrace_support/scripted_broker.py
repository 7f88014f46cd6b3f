"""A broker on the test's own event loop, which answers each request as the test says.

    async with ScriptedBroker(answer) as broker:       # async def answer(header, message) -> bytes | None
        link = await BrokerLink.connect(broker.address, …)

What `answer` returns is sent as it is, so that it may be no valid answer at all; None closes the connection. Requests
of one connection are answered one after the other, in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

from millrace.addresses import Address
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, encode
from millrace.wire.frame import SIZE_BYTES, framed
from millrace.wire.header import RequestHeader, read_request_header
from millrace_support.response_headers import encode_response_header

Answer = Callable[[RequestHeader, memoryview], Awaitable[bytes | None]]


def answer_versions(header: RequestHeader, served: Mapping[ApiKey, VersionRange]) -> bytes | None:
    """Returns the answer to ApiVersions v0 with what is served; None where another API is asked."""
    if header.api_key != ApiKey.API_VERSIONS:
        return None
    keys = [{"api_key": key, "min_version": least, "max_version": most} for key, (least, most) in served.items()]
    fields = {"error_code": 0, "api_keys": keys, "throttle_time": 0}
    return answer_frame(header, encode(ApiKey.API_VERSIONS, header.api_version, Direction.RESPONSE, fields))


class ScriptedBroker:
    """Listens on a free port of the loopback; `requests` has the headers of all requests that have come."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._server: asyncio.Server
        self._connections: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self.requests: list[RequestHeader] = []
        self.connections = 0
        self.address: Address

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = Address(host, port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._failures and error is None:
            raise self._failures[0]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self._failures.append(failure)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(SIZE_BYTES), "big")
                frame = memoryview(await reader.readexactly(size))
                header = read_request_header(frame)
                self.requests.append(header)
                answer = await self._answer(header, frame[header.body_position :])
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.transport.abort()


def answer_frame(header: RequestHeader, message: bytes) -> bytes:
    """Returns the frame of a valid answer to a request."""
    return framed(encode_response_header(header.api_key, header.api_version, header.correlation_id), message)
