"""A relay before a server that holds the first request back that begins with a pattern, until it is let go.

    with HoldingRelay(target, "POST /commit") as relay:
        …                       # what sends the request, in another thread
        relay.held.wait()
        relay.let_go()

It runs in a thread of the test's process.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from types import TracebackType
from typing import Self

from millrace.addresses import LOOPBACK, Address

CHUNK_BYTES = 1 << 16


class HoldingRelay:
    """Listens on a free port of the loopback interface, and passes connections on to a server.

    Attributes:
        address: Where it listens.
        held: Whether the request has come.
    """

    def __init__(self, target: Address, pattern: str) -> None:
        self._target = target
        self._pattern = re.compile(pattern.encode())
        self._may_go = threading.Event()
        self.held = threading.Event()
        self._server = socket.create_server((LOOPBACK, 0))
        self.address = Address(*self._server.getsockname())

    def let_go(self) -> None:
        """Lets the request pass, and all that follow."""
        self._may_go.set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(self._target)
                for way in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pass_on, args=way, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_request: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if is_request and self._pattern.match(data):
                    self.held.set()
                    self._may_go.wait()
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
