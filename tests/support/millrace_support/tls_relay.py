"""A relay on loopback that passes everything on, and looks at whether every byte of it belongs to a record of TLS.

with TlsRelay(port) as relay:
… clients connect to 127.0.0.1:relay.port …
relay.application_bytes        what was carried encrypted, in both directions
relay.faults                   what was no record of TLS
"""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Thread
from typing import Self

HEADER_BYTES = 5
CONTENT_TYPES = range(20, 24)  # change cipher spec, alert, handshake, application data
APPLICATION_DATA = 23
MAX_RECORD_BYTES = (16 << 10) + 2048
CHUNK_BYTES = 256 << 10


class Records:
    """The records of one direction of a connection."""

    def __init__(self) -> None:
        self._pending = b""
        self.application_bytes = 0
        self.fault = ""

    def take(self, data: bytes) -> None:
        """Takes the next bytes; the first that begin no record are the fault."""
        self._pending += data
        while len(self._pending) >= HEADER_BYTES and not self.fault:
            kind, major, length = self._pending[0], self._pending[1], int.from_bytes(self._pending[3:5])
            if kind not in CONTENT_TYPES or major != 3 or length > MAX_RECORD_BYTES:
                self.fault = f"no record of TLS: {self._pending[:40]!r}"
            elif len(self._pending) < HEADER_BYTES + length:
                return
            else:
                self.application_bytes += length if kind == APPLICATION_DATA else 0
                self._pending = self._pending[HEADER_BYTES + length :]


class TlsRelay:
    """The relay, with a thread for each direction of each connection."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._seen: list[Records] = []
        self._sockets: list[socket.socket] = []
        self._threads = [Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for one in self._sockets:
            _end(one)
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()

    @property
    def application_bytes(self) -> int:
        """How many bytes went through in records of data."""
        return sum(one.application_bytes for one in self._seen)

    @property
    def faults(self) -> list[str]:
        """What was no record of TLS."""
        return [one.fault for one in self._seen if one.fault]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
                broker = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:  # the relay ends, or the broker has ended
                return
            self._sockets += [client, broker]
            for source, target in ((client, broker), (broker, client)):
                records = Records()
                self._seen.append(records)
                thread = Thread(target=_pass_on, args=(source, target, records), daemon=True)
                self._threads.append(thread)
                thread.start()


def _pass_on(source: socket.socket, target: socket.socket, records: Records) -> None:
    with suppress(OSError):  # the other side has closed it
        while data := source.recv(CHUNK_BYTES):
            records.take(data)
            target.sendall(data)
    _end(target)


def _end(one: socket.socket) -> None:
    with suppress(OSError):  # it has ended
        one.shutdown(socket.SHUT_RDWR)
