"""A relay before one broker that loses requests, or answers to them, as the test says; then it ends the connection.

    with LossyRelay(Losses()) as relay:
        with BrokerProcess(folder, properties=relay.properties) as broker:
            relay.target = parse_address(broker.bootstrap)

Clients reach the broker here alone, by the address that it tells them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Collection
from enum import Enum, auto
from random import Random
from types import TracebackType
from typing import Self

from millrace.addresses import LOOPBACK, Address
from millrace.wire.frame import SIZE_BYTES


class Fate(Enum):
    """What becomes of a request."""

    PASSES = auto()
    IS_LOST = auto()
    LOSES_ITS_ANSWER = auto()
    COMES_LATE = auto()  # lost for the client, though the broker gets it by `deliver_late`


class Losses:
    """The fate of each request: that of `once` or `always` for its API, or else, by `often`, a random one."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self._once: dict[int, Fate] = {}
        self._always: dict[int, Fate] = {}
        self._often: frozenset[int] = frozenset()
        self._share, self._chance = 0.0, Random(0)  # noqa: S311 -- chooses what a test loses

    def once(self, api_key: int, fate: Fate) -> None:
        """Gives the next request of an API a fate."""
        self._once[api_key] = fate

    def always(self, api_key: int, fate: Fate) -> None:
        """Gives all requests of an API a fate."""
        self._always[api_key] = fate

    def often(self, api_keys: Collection[int], share: float, chance: Random) -> None:
        """Loses a share of the requests of these APIs, or their answers."""
        self._often, self._share, self._chance = frozenset(api_keys), share, chance

    def end(self) -> None:
        """Lets all requests pass from now on."""
        self._once.clear()
        self._always.clear()
        self._often = frozenset()

    def fate(self, api_key: int) -> Fate:
        """Returns what becomes of a request."""
        self.seen.add(api_key)
        fate = self._once.pop(api_key, None) or self._always.get(api_key)
        if fate is None and api_key in self._often and self._chance.random() < self._share:
            return self._chance.choice((Fate.IS_LOST, Fate.LOSES_ITS_ANSWER))
        return fate or Fate.PASSES


class LossyRelay:
    """Listens on a free port of the loopback, and passes whole requests and answers on, one after the other."""

    def __init__(self, losses: Losses) -> None:
        self.losses = losses
        self.target: Address
        self._server = socket.create_server((LOOPBACK, 0))
        self.address = Address(*self._server.getsockname())
        self._open: set[socket.socket] = set()
        self._late: list[bytes] = []

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the broker behind it, by which clients come here."""
        return {"advertised.listeners": f"PLAINTEXT://{self.address}"}

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for each in tuple(self._open):
            each.close()

    def deliver_late(self) -> int:
        """Sends the broker what comes late, in its order, and waits for each answer; returns how many they are."""
        late, self._late = self._late, []
        with socket.create_connection(self.target) as broker:
            for request in late:
                broker.sendall(request)
                _frame(broker)
        return len(late)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.add(client)
        with contextlib.suppress(OSError, EOFError), client, socket.create_connection(self.target) as broker:
            while True:
                request = _frame(client)
                fate = self.losses.fate(int.from_bytes(request[SIZE_BYTES : SIZE_BYTES + 2], "big"))
                if fate is Fate.COMES_LATE:
                    self._late.append(request)
                if fate in {Fate.COMES_LATE, Fate.IS_LOST}:
                    break
                broker.sendall(request)
                answer = _frame(broker)
                if fate is Fate.LOSES_ITS_ANSWER:
                    break
                client.sendall(answer)
        self._open.discard(client)


def _frame(source: socket.socket) -> bytes:
    head = _exactly(source, SIZE_BYTES)
    return head + _exactly(source, int.from_bytes(head, "big"))


def _exactly(source: socket.socket, size_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < size_bytes:
        chunk = source.recv(size_bytes - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)
