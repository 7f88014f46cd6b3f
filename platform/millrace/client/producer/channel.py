"""What a producer's link writes to and reads from without blocking: the socket itself, or TLS over it.

    selector says readable or writable ──► receive(), send(parts) ──► b"" and 0 where it would have to wait

TLS may want to read in order to write, and the other way round: `waits` says for which the selector is to look, so that
nothing is tried again before it can succeed. A record of TLS holds at most 16 KiB, so one call takes all of it, and
what stays behind lies in the socket, where the selector sees it.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import ssl

RECEIVE_BYTES = 64 << 10


class Channel(Protocol):
    """A socket that never blocks; raises OSError where the peer is gone.

    Attributes:
        receive_waits_for: the selector's event after which `receive` is to be called.
    """

    receive_waits_for: int

    def send(self, parts: Sequence[memoryview]) -> int:
        """Returns how many bytes of the parts were taken, 0 where it would have to wait."""
        ...

    def receive(self) -> bytes | None:
        """Returns bytes, b"" at the end of the stream; None where it would have to wait."""
        ...

    def waits(self, *, has_unsent: bool) -> int:
        """Returns the selector's events to look for."""
        ...


class PlainChannel:
    """The socket itself."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.receive_waits_for = selectors.EVENT_READ

    def send(self, parts: Sequence[memoryview]) -> int:
        """Writes several parts in one call."""
        try:
            return self._socket.sendmsg(parts)
        except (BlockingIOError, InterruptedError):
            return 0

    def receive(self) -> bytes | None:
        """Reads what has come."""
        try:
            return self._socket.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return None

    def waits(self, *, has_unsent: bool) -> int:
        """Returns reading, and writing while something is unsent."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if has_unsent else 0)


class TlsChannel:
    """TLS over a socket. A part is taken whole or not at all, and then the same part is to be offered again.

    Of a part that is not taken, records may be on their way: OpenSSL goes on behind them.
    """

    def __init__(self, connected: ssl.SSLSocket) -> None:
        import ssl  # noqa: PLC0415 -- loaded where it is used

        self._socket = connected
        self._wants_read, self._wants_write = ssl.SSLWantReadError, ssl.SSLWantWriteError
        self._send_waits_for = selectors.EVENT_WRITE
        self.receive_waits_for = selectors.EVENT_READ

    def send(self, parts: Sequence[memoryview]) -> int:
        """Writes the first part."""
        self._send_waits_for = selectors.EVENT_WRITE
        try:
            return self._socket.send(parts[0])
        except self._wants_write:
            return 0
        except self._wants_read:
            self._send_waits_for = selectors.EVENT_READ
            return 0

    def receive(self) -> bytes | None:
        """Reads at most a record."""
        self.receive_waits_for = selectors.EVENT_READ
        try:
            return self._socket.recv(RECEIVE_BYTES)
        except self._wants_read:
            return None
        except self._wants_write:
            self.receive_waits_for = selectors.EVENT_WRITE
            return None

    def waits(self, *, has_unsent: bool) -> int:
        """Returns what reading waits for, and what writing waits for while something is unsent."""
        return self.receive_waits_for | (self._send_waits_for if has_unsent else 0)
