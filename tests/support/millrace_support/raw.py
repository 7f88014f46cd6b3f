"""Speaks the bare protocol over one socket: any API in any version, as bytes or by kio's names.

`request` takes and returns fields by kio's names; `exchange` takes and returns the bytes of a message, for versions
that kio lacks.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from millrace.addresses import parse_address
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.frame import SIZE_BYTES, framed
from millrace.wire.header import CORRELATION_ID, encode_request_header, has_tagged_response_header

CLIENT_ID = "raw"
TIMEOUT_S = 60.0


class RawConnection:
    """A connection; requests are numbered from 1, and answers must come in their order.

    With a small receive buffer the broker soon notices a peer that does not read. With a `context` it is one of TLS.
    """

    def __init__(
        self, bootstrap: str, *, receive_buffer_bytes: int | None = None, context: ssl.SSLContext | None = None
    ) -> None:
        self._socket = socket.socket()
        self._socket.settimeout(TIMEOUT_S)
        if receive_buffer_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        address = parse_address(bootstrap)
        self._socket.connect(address)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname=address.host)
        self._sent = 0
        self._received = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def request(self, api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        """Sends a request and returns its answer, both by kio's names."""
        body = self.exchange(api_key, version, encode(api_key, version, Direction.REQUEST, fields))
        return decode(api_key, version, Direction.RESPONSE, body)

    def exchange(self, api_key: ApiKey, version: int, body: bytes) -> bytes:
        """Sends a request's body and returns the body of its answer."""
        self.send(api_key, version, body)
        return self.receive(api_key, version)

    def exchange_frame(self, frame: bytes) -> bytes:
        """Sends a request with its header, sets the correlation id in it, and returns the body of the answer."""
        api_key, version = struct.unpack_from(">hh", frame)
        self._sent += 1
        self._socket.sendall(framed(frame[:4], CORRELATION_ID.pack(self._sent), frame[4 + CORRELATION_ID.size :]))
        return self.receive(ApiKey(api_key), version)

    def exchange_token(self, token: bytes) -> bytes:
        """Sends a bare token, after SaslHandshake v0, and returns the broker's, which are no request and no answer."""
        self._socket.sendall(framed(token))
        return self._exactly(int.from_bytes(self._exactly(SIZE_BYTES), "big"))

    def send(self, api_key: ApiKey, version: int, body: bytes) -> None:
        """Sends a request and does not wait."""
        self._sent += 1
        self._socket.sendall(framed(encode_request_header(api_key, version, self._sent, CLIENT_ID), body))

    def receive(self, api_key: ApiKey, version: int) -> bytes:
        """Returns the body of the next answer; raises ConnectionError if the broker closes instead."""
        frame = self._exactly(int.from_bytes(self._exactly(SIZE_BYTES), "big"))
        self._received += 1
        (correlation_id,) = CORRELATION_ID.unpack_from(frame)
        if correlation_id != self._received:
            raise ConnectionError(f"answer {correlation_id} where {self._received} was expected")
        return frame[CORRELATION_ID.size + has_tagged_response_header(api_key, version) :]

    def close(self, *, reset: bool = False) -> None:
        """Closes the connection; with `reset`, as a process that dies with unread data."""
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def is_closed_by_peer(self) -> bool:
        """Waits for the next bytes, and returns whether the broker closes the connection instead."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            data += chunk
        return bytes(data)
