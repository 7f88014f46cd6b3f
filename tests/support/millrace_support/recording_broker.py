"""A listening socket that takes what a controller sends, answers that all is done, and notes the requests.

It can serve further APIs by the broker's handlers, as the controller does to other brokers.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from millrace.addresses import LOOPBACK
from millrace.ports import free_port
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.controller_apis import CONTROLLER_APIS
from millrace.wire.encoder import INT32
from millrace.wire.frame import SIZE_BYTES
from millrace.wire.header import read_request_header
from millrace_broker.handlers.api import Api, Request
from millrace_support.response_headers import encode_response_header

TIMEOUT_S = 120.0


class Recorded(NamedTuple):
    """A request that has come."""

    key: ApiKey
    version: int
    message: Any


class RecordingBroker:
    """One broker that says yes to everything; `apis` are served with `services` as the broker's handlers have them.

    No other process is given its port while it is closed, so that another one can listen there.
    """

    def __init__(self, port: int = 0, apis: Iterable[Api] = (), services: Any = None) -> None:
        self.requests: list[Recorded] = []
        self._apis = {api.key: api for api in apis}
        self._services = services
        self._come = threading.Condition()
        self._listener = socket.create_server((LOOPBACK, port or free_port()), reuse_port=False)
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = [self._listener]
        self._answered: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        for one in self._open:
            with suppress(OSError):  # where the other side has closed it
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def await_request(self, is_wanted: Callable[[Recorded], bool]) -> Recorded:
        """Returns the first request of a kind, once it has come."""
        with self._come:
            assert self._come.wait_for(lambda: any(map(is_wanted, self.requests)), TIMEOUT_S), self.requests
            return next(filter(is_wanted, self.requests))

    def await_connections(self, count: int) -> None:
        """Waits until so many connections have been made, and a request of each was answered."""
        with self._come:
            assert self._come.wait_for(lambda: len(self._answered) >= count, TIMEOUT_S), self._open

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as incoming:
            try:
                while len(size := incoming.read(SIZE_BYTES)) == SIZE_BYTES:
                    frame = incoming.read(INT32.unpack(size)[0])
                    connection.sendall(self._answer(memoryview(frame)))
                    with self._come:
                        self._answered.add(connection)
                        self._come.notify_all()
            except OSError:
                return

    def _answer(self, frame: memoryview) -> bytes:
        header = read_request_header(frame)
        key, version, body = ApiKey(header.api_key), header.api_version, frame[header.body_position :]
        if key in self._apis:
            parts = asyncio.run(self._handled(self._apis[key], Request(version, header.client_id, body)))
            message = b"".join(parts)
        elif key is ApiKey.API_VERSIONS:
            message = encode(key, version, Direction.RESPONSE, self._versions())
        else:
            message = encode(key, version, Direction.RESPONSE, self._taken(key, version, body))
        answer = encode_response_header(key, version, header.correlation_id) + message
        return INT32.pack(len(answer)) + answer

    async def _handled(self, api: Api, request: Request) -> list[Any]:
        reply = api.handle(self._services, request)
        parts = await reply if isinstance(reply, asyncio.Future) else reply
        assert parts is not None
        return list(parts)

    def _versions(self) -> dict[str, Any]:
        ranges = {**{key: api.versions for key, api in CONTROLLER_APIS.items()}, ApiKey.API_VERSIONS: (0, 3)}
        ranges |= {key: api.versions for key, api in self._apis.items()}
        keys = [
            {"api_key": key, "min_version": least, "max_version": most} for key, (least, most) in sorted(ranges.items())
        ]
        return {"error_code": 0, "throttle_time": 0, "api_keys": keys}

    def _taken(self, key: ApiKey, version: int, body: memoryview) -> dict[str, Any]:
        message = decode(key, version, Direction.REQUEST, body)
        with self._come:
            self.requests.append(Recorded(key, version, message))
            self._come.notify_all()
        stopped = message.topic_states if key is ApiKey.STOP_REPLICA else ()
        errors = [
            {"topic_name": topic.topic_name, "partition_index": one.partition_index, "error_code": 0}
            for topic in stopped
            for one in topic.partition_states
        ]
        return {"error_code": 0, "topics": [], "partition_errors": errors}
