"""TLS between the socket and a connection, ended at `ssl.SSLObject`.

    socket → the shared receive buffer → BIO → SSLObject → the connection's buffer
    replies → SSLObject, a record at a time → BIO → the transport's buffer → socket

`TlsLayer` is a protocol to asyncio's transport, and the transport of a `Connection`. What asyncio has for this keeps
256 KiB for each connection. Here all connections of a loop share the buffer into which they receive, and no more than
one record lies in a BIO at a time, because a BIO never gives back the room that it once needed. OpenSSL frees its own
buffers while nothing is in them. So an idle connection costs some tens of KiB.

A connection that does not read on (`pause_reading`) leaves what has arrived encrypted, one receive buffer at most. Its
backlog of replies is the transport's, with the transport's limits.

The handshake is bounded in time and bytes. Whoever fails it is told by TLS's own alert, and the log says why. When it
is complete, the connection learns who the peer's certificate stands for. `close` tells the peer that no more comes
(close_notify), and does not wait for its answer.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

from millrace.errors import TlsError
from millrace_broker.metrics import RequestMetrics
from millrace_broker.net.connection import Connection
from millrace_broker.net.foreign_protocols import failure, no_handshake
from millrace_broker.net.tls_listener import TlsListener

logger = logging.getLogger(__name__)

RECORD_BYTES = 16 << 10  # the most that one record carries
PIECE_BYTES = RECORD_BYTES + 22  # received bytes that are put into a BIO at a time: such a record of TLS 1.3
RECEIVE_BYTES = 256 << 10
GATHERED_BYTES = 256 << 10  # encrypted at least, before the transport is given it
MAX_HANDSHAKE_BYTES = 128 << 10
HANDSHAKE_TIMEOUT_S = 30.0
NOTHING = memoryview(b"")


class TlsLayer(asyncio.Transport, asyncio.BufferedProtocol):
    """The server side of TLS on one connection, between the socket's transport and a `Connection`.

    Args:
        connection: handles what is decrypted.
        listener: has the context of the handshake.
        scratch: the receive buffer that all connections share.
        metrics: counts the connections that are refused.
    """

    def __init__(
        self, connection: Connection, listener: TlsListener, scratch: memoryview, metrics: RequestMetrics
    ) -> None:
        super().__init__()
        self._connection = connection
        self._listener = listener
        self._scratch = scratch
        self._metrics = metrics
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = listener.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._handshake_bytes = 0
        self._is_secured = False
        self._is_ended = False  # the peer has said that no more comes
        self._is_paused = False
        self._held = b""  # what had arrived when the connection paused
        self._timeout: asyncio.TimerHandle
        self._socket: asyncio.Transport

    # The protocol of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the socket's transport; the connection may refuse it before a handshake costs anything."""
        self._socket = cast("asyncio.Transport", transport)
        self._timeout = asyncio.get_running_loop().call_later(HANDSHAKE_TIMEOUT_S, self._shake_no_longer)
        self._connection.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the handshake's timer, and tells the connection that the socket has closed."""
        self._timeout.cancel()
        self._held = b""
        self._connection.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Returns the buffer for the next encrypted bytes, which all connections share."""
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Continues the handshake with the received bytes, or decrypts them for the connection."""
        data = self._scratch[:nbytes]
        try:
            if not self._is_secured:
                data = self._shake(data)
            if self._is_secured:
                self._decrypt(data)
        except ssl.SSLError as error:
            self._refuse(failure(error))
        except TlsError as error:
            self._refuse(str(error))

    def eof_received(self) -> None:
        """Lets the socket close as the peer sends no more; logs that if the handshake is not complete."""
        if not self._is_secured:
            logger.info("%s left listener %s before its handshake was complete", self._peer, self._listener.name)

    def pause_writing(self) -> None:
        """Makes the connection stop sending, as the peer does not take what is sent."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Makes the connection send again, as the peer takes bytes again."""
        self._connection.resume_writing()

    # The transport of the connection.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Returns the socket transport's extra information `name`; for `ssl_object` the SSL object."""
        return self._tls if name == "ssl_object" else self._socket.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypts and sends bytes."""
        self.writelines((data,))

    def writelines(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        """Sends bytes in order, encrypted together, so that no small part leaves by itself."""
        if self._socket.is_closing():
            return
        gathered: list[bytes] = []
        size_bytes = 0
        for part in parts:
            view = memoryview(part)
            for start in range(0, len(view), RECORD_BYTES):
                self._tls.write(view[start : start + RECORD_BYTES])
                record = self._outgoing.read()
                gathered.append(record)
                size_bytes += len(record)
                if size_bytes >= GATHERED_BYTES:
                    self._socket.writelines(gathered)
                    gathered, size_bytes = [], 0
        if gathered:
            self._socket.writelines(gathered)

    def pause_reading(self) -> None:
        """Stops reading the socket; bytes that have arrived stay encrypted, and the connection gets none."""
        self._is_paused = True
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Decrypts the bytes that had arrived before the pause, and then reads the socket again."""
        self._is_paused = False
        if self._has_rest:
            asyncio.get_running_loop().call_soon(self._work_off)
        else:
            self._socket.resume_reading()

    def is_reading(self) -> bool:
        """Returns whether received bytes are passed to the connection: reading is not paused."""
        return not self._is_paused

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Sets the limits of the socket transport's write buffer, in bytes."""
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Returns how many encrypted bytes wait to be sent, plus those received and not decrypted."""
        return self._socket.get_write_buffer_size() + len(self._held)

    def is_closing(self) -> bool:
        """Returns whether the socket is closed, or about to be."""
        return self._socket.is_closing()

    def close(self) -> None:
        """Sends the bytes that wait and TLS's close_notify, and closes the socket."""
        if self._is_secured and not self._socket.is_closing():
            with suppress(ssl.SSLError):  # the peer's own close_notify is not waited for
                self._tls.unwrap()
            self._flush()
        self._socket.close()

    def abort(self) -> None:
        """Closes the socket at once, without sending the bytes that wait."""
        self._socket.abort()

    # Between them.

    @property
    def _peer(self) -> str:
        return self._connection.peer

    @property
    def _has_rest(self) -> bool:
        return bool(self._held or self._incoming.pending or self._tls.pending())

    def _shake(self, data: memoryview) -> memoryview:
        """Continues the handshake with `data`; returns the bytes that follow its end. Raises TlsError or SSLError."""
        if not self._handshake_bytes and (reason := no_handshake(data)) is not None:
            raise TlsError(reason)
        while data and not self._is_secured and not self._socket.is_closing():
            self._handshake_bytes += len(data[:PIECE_BYTES])
            if self._handshake_bytes > MAX_HANDSHAKE_BYTES:
                raise TlsError(f"its handshake has more than {MAX_HANDSHAKE_BYTES} bytes")
            self._incoming.write(data[:PIECE_BYTES])
            data = data[PIECE_BYTES:]
            with suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
                self._secure()
            self._flush()
        return data

    def _secure(self) -> None:
        self._timeout.cancel()
        self._connection.authenticated(self._listener.principal(self._tls.getpeercert(binary_form=True)))
        self._is_secured = True

    def _decrypt(self, data: memoryview) -> None:
        """Decrypts `data` for the connection, one buffer at a time; keeps the rest if the connection pauses reading."""
        while not self._socket.is_closing():
            if self._is_paused:
                self._held = bytes(data)
                return
            buffer = self._connection.get_buffer(-1)
            filled, data = self._fill(buffer, data)
            if filled:
                self._connection.buffer_updated(filled)
            if filled < len(buffer):
                break
        self._flush()
        if self._is_ended:
            self.close()

    def _fill(self, buffer: memoryview, data: memoryview) -> tuple[int, memoryview]:
        """Decrypts into the buffer until it is full or `data` ends; returns how many bytes, and the rest of `data`."""
        filled, size = 0, len(buffer)
        incoming, tls = self._incoming, self._tls
        while filled < size:
            if incoming.pending or tls.pending():
                try:
                    count = cast("int", tls.read(size - filled, buffer[filled:]))
                except ssl.SSLWantReadError:  # a record is cut short
                    continue
                except ssl.SSLZeroReturnError:
                    count = 0
                if not count:
                    self._is_ended = True
                    return filled, NOTHING
                filled += count
            elif data:
                incoming.write(data[:PIECE_BYTES])
                data = data[PIECE_BYTES:]
            else:
                break
        return filled, data

    def _work_off(self) -> None:
        """Decrypts the bytes that were kept during a pause, and only then reads the socket again."""
        if self._is_paused or self._socket.is_closing():
            return
        held, self._held = self._held, b""
        try:
            self._decrypt(memoryview(held))
        except ssl.SSLError as error:
            self._refuse(failure(error))
        if not self._is_paused and not self._socket.is_closing():
            self._socket.resume_reading()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.write(self._outgoing.read())

    def _shake_no_longer(self) -> None:
        self._refuse(f"its handshake has taken more than {HANDSHAKE_TIMEOUT_S:.0f} s")

    def _refuse(self, reason: str) -> None:
        logger.warning("refusing %s on listener %s: %s", self._peer, self._listener.name, reason)
        self._metrics.refused += 1
        self._flush()  # an alert says it to the peer
        self._socket.close()
