"""Sends replies: small parts are joined into one write, large records go from the file to the socket by pieces.

    parts of replies → Outgoing → as much as the socket takes → transport

Joining megabytes to a header costs more than all the rest of a fetch (1.2 ms of CPU per megabyte, 0.45 without it). So
each large part is written by itself, and the socket is corked meanwhile, so that the peer is not woken for a header
alone. Over TLS the transport gathers the parts itself, and there is neither a cork nor `sendfile`.

A region of a file is read when its turn has come and the socket has room, a piece at a time, so a reader that does not
take its answer costs one or two pieces of memory. With `fetch.sendfile.enable` it leaves by `sendfile` instead
(docs/adr/0005 has the measurements).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millrace.errors import StorageError
from millrace.wire.encoder import FileRegion, Part, Parts, contents

LARGE_PART_BYTES = 64 << 10
PIECE_BYTES = 1 << 20
CORK: int | None = getattr(socket, "TCP_CORK", None)  # Linux has it


class _File:
    """A file descriptor as an object with `fileno`, as `loop.sendfile` takes it."""

    mode = "rb"

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """Returns the file descriptor."""
        return self._fd


class Outgoing:
    """The replies (bytes, and regions of files) of a connection that have not been passed to its transport yet.

    Args:
        transport: the socket.
        uses_sendfile: whether regions of files are sent by `sendfile`.
        on_sent: called when a region has been sent by `sendfile`, and the parts behind it are being sent.
        on_failure: called with the error where a region can't be read or sent; the connection can't go on then.

    Attributes:
        is_busy: Whether there are parts that the transport has not been given; each request asks for it.
        is_paused: Whether the transport has no room.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        *,
        uses_sendfile: bool,
        on_sent: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._transport = transport
        self._is_encrypted = transport.get_extra_info("ssl_object") is not None
        self._uses_sendfile = uses_sendfile and not self._is_encrypted
        self._on_sent = on_sent
        self._on_failure = on_failure
        self._parts: deque[Part] = deque()
        self._region_position = 0
        self._sending: asyncio.Task[None] | None = None
        self._has_failed = False
        self.is_busy = False
        self.is_paused = False

    def send(self, parts: Parts) -> None:
        """Gives the transport as many parts as it has room for, and keeps the rest for `resume`."""
        if not self.is_busy:
            if len(parts) == 1 and type(parts[0]) is bytes:
                self._transport.write(parts[0])
                return
            if not self._has_region(parts):
                self._write(parts)
                return
        self._parts.extend(parts)
        self.resume()

    def resume(self) -> None:
        """Gives the transport the parts that were kept, while it has room; none after a failure."""
        try:
            with self._corked():
                while self._parts and not self.is_paused and self._sending is None and not self._has_failed:
                    self._send_next()
        except Exception as error:  # noqa: BLE001 -- after any error the reply is cut short, and the peer must not wait for it
            self._has_failed = True
            # A transport that is aborted while it says that it has room would end its connection twice.
            asyncio.get_running_loop().call_soon(self._on_failure, error)
        self._note_whether_busy()

    def clear(self) -> None:
        """Drops all parts and both callbacks when the connection has ended, as they would make a reference cycle."""
        self._on_sent = self._on_failure = _nobody
        self._parts.clear()
        if self._sending is not None:
            self._sending.cancel()
        self._note_whether_busy()

    def _note_whether_busy(self) -> None:
        self.is_busy = bool(self._parts) or self._sending is not None or self._has_failed

    @staticmethod
    def _has_region(parts: Parts) -> bool:
        return not all(isinstance(part, bytes | memoryview) for part in parts)

    def _send_next(self) -> None:
        small: Parts = []
        while self._parts and isinstance(self._parts[0], bytes | memoryview):
            small.append(self._parts.popleft())
        if small:
            self._write(small)
            return
        region = self._parts[0]
        assert not isinstance(region, bytes | memoryview)
        if self._uses_sendfile:
            self._parts.popleft()
            self._sending = asyncio.ensure_future(self._send_file(region))
            return
        piece = region.read(self._region_position, PIECE_BYTES)
        if not piece:
            raise _cut_short()
        self._region_position += len(piece)
        if self._region_position >= len(region):
            self._parts.popleft()
            self._region_position = 0
        self._transport.write(piece)

    def _write(self, parts: Parts) -> None:
        """Writes parts that are bytes, in order; the transport keeps what the socket does not take now."""
        writes = list(_writes(parts))
        if len(writes) == 1:
            self._transport.write(writes[0])
        elif self._is_encrypted:
            self._transport.writelines(writes)
        else:
            with self._corked():
                for write in writes:
                    self._transport.write(write)

    @contextmanager
    def _corked(self) -> Iterator[None]:
        transport = self._transport
        peer = transport.get_extra_info("socket")
        if CORK is None or self._is_encrypted or transport.is_closing():
            yield
            return
        peer.setsockopt(socket.IPPROTO_TCP, CORK, 1)
        try:
            yield
        finally:
            if not transport.is_closing():
                peer.setsockopt(socket.IPPROTO_TCP, CORK, 0)

    async def _send_file(self, region: FileRegion) -> None:
        loop = asyncio.get_running_loop()
        try:
            with region.file() as (fd, position):
                file = _File(fd)
                sent = await loop.sendfile(self._transport, file, position, len(region), fallback=False)  # type: ignore[arg-type]
            _check_whole(sent, region)
        except Exception as error:  # noqa: BLE001 -- as in `resume`
            self._on_failure(error)
            return
        finally:
            self._sending = None
            self._note_whether_busy()
        self.resume()
        self._on_sent()


def _cut_short() -> StorageError:
    return StorageError("the file is shorter than the records that were found in it")


def _check_whole(sent_bytes: int, region: FileRegion) -> None:
    if sent_bytes < len(region):
        raise _cut_short()


def _writes(parts: Parts) -> Iterator[bytes | memoryview]:
    small: list[bytes | memoryview] = []
    for part in parts:
        data = contents(part)
        if len(data) < LARGE_PART_BYTES:
            small.append(data)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield data
    if small:
        yield b"".join(small)


def _nobody(*_: object) -> None:
    """Does nothing; takes the place of the callbacks of a connection that has ended."""
