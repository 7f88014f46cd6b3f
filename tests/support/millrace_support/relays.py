"""TCP relays before servers on the loopback interface, for tests of networks that are cut.

A cut holds the bytes of connections back, in both directions: as where a network loses packets, neither side sees an
end. When the cut is healed, what was sent arrives, or the connections break. Those that begin meanwhile wait.

Where the server does not listen, the relay soon does not either, so clients are refused as by the server itself.

Where servers are brokers, a cut may hold for those connections alone that another broker has opened: the client id of
its first request tells which one. `1`, `broker-1` and `broker-1-fetcher-0` are broker 1; any other is a client.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
import threading
from collections import deque
from collections.abc import Collection
from types import TracebackType
from typing import Self

from millrace.addresses import LOOPBACK, Address
from millrace.ports import free_port

CHUNK_BYTES = 1 << 16
MAX_CONNECTIONS = 500
PAUSE_S = 0.02
REQUEST_HEAD = struct.Struct(">ihhih")  # size, API key, version, correlation id, bytes of the client id
BROKER = re.compile(rb"(?:broker-)?(\d+)(?:-.*)?")

Source = int | None  # the id of a broker; None for any other client


class Relay:
    """A relay before one server, whose `target` may be set once the server listens; made by `Relays.open`.

    Attributes:
        target: Where connections go.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, target: Address | None, *, knows_brokers: bool) -> None:
        self.target = target
        self._first_answers: deque[bytes] = deque(maxlen=MAX_CONNECTIONS)
        self._loop = loop
        self._knows_brokers = knows_brokers
        self._gates: dict[Source, asyncio.Event] = {}
        self._connections: dict[asyncio.Task[None], Source] = {}
        self._server: asyncio.Server
        self._reopening: asyncio.Task[None] | None = None
        self.address: Address

    def first_answers(self) -> list[bytes]:
        """Returns what the server sent first on each of the newest connections; nothing of one that it only ended."""
        return list(self._first_answers)  # at once, while the relays' thread may add to them

    def cut(self, sources: Collection[Source] = (None,)) -> None:
        """Holds back what these send and are sent until `heal`; returns once it does."""
        asyncio.run_coroutine_threadsafe(self._cut(sources), self._loop).result()

    def heal(self, *, breaks: bool = False) -> None:
        """Lets everything pass again; `breaks` ends the connections whose bytes were held back."""
        asyncio.run_coroutine_threadsafe(self._heal(breaks), self._loop).result()

    async def listen(self) -> None:
        """Begins to take connections."""
        self.address = Address(LOOPBACK, free_port())
        self._server = await asyncio.start_server(self._serve, *self.address)

    async def close(self) -> None:
        """Ends all connections."""
        if self._reopening is not None:
            self._reopening.cancel()
        self._server.close()
        for each in self._connections:
            each.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _cut(self, sources: Collection[Source]) -> None:
        for each in sources:
            self._gate(each).clear()

    async def _heal(self, breaks: bool) -> None:
        for task, source in self._connections.items():
            if breaks and not self._gate(source).is_set():
                task.cancel()
        for gate in self._gates.values():
            gate.set()

    def _gate(self, source: Source) -> asyncio.Event:
        if source not in self._gates:
            self._gates[source] = asyncio.Event()
            self._gates[source].set()
        return self._gates[source]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = None
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):  # each ends the connection, on both sides
            if len(self._connections) <= MAX_CONNECTIONS:
                source, head = await _read_source(reader) if self._knows_brokers else (None, b"")
                self._connections[task] = source
                await self._relay(head, reader, writer, self._gate(source))
        writer.transport.abort()
        del self._connections[task]

    async def _relay(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        await gate.wait()
        server_reader, server_writer = await self._connect()
        try:
            server_writer.write(head)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(reader, server_writer, gate))
                pumps.create_task(self._pump_answers(server_reader, writer, gate))
        except* (OSError, EOFError):
            pass
        finally:
            server_writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert self.target is not None
        try:
            return await asyncio.open_connection(*self.target)
        except OSError:
            if self._server.is_serving():
                self._server.close()
                self._reopening = asyncio.create_task(self._reopen(self.target))
            raise

    async def _reopen(self, target: Address) -> None:
        """Listens again once the server does."""
        while True:
            await asyncio.sleep(PAUSE_S)
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(*target)
                writer.close()
                self._server = await asyncio.start_server(self._serve, *self.address)
                return

    async def _pump_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        data = await reader.read(CHUNK_BYTES)
        if not data:
            raise EOFError
        self._first_answers.append(data)
        await gate.wait()
        writer.write(data)
        await _pump(reader, writer, gate)


async def _read_source(reader: asyncio.StreamReader) -> tuple[Source, bytes]:
    """Returns which broker has sent a request, and the bytes that were read of it."""
    head = await reader.readexactly(REQUEST_HEAD.size)
    *_, size = REQUEST_HEAD.unpack(head)
    client_id = await reader.readexactly(max(size, 0))
    match = BROKER.fullmatch(client_id)
    return int(match[1]) if match else None, head + client_id


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    """Passes bytes on while the gate is open; raises EOFError at the end of the stream, which ends both directions."""
    while data := await reader.read(CHUNK_BYTES):
        await gate.wait()
        writer.write(data)
        await writer.drain()
    raise EOFError


async def _end_tasks() -> None:
    """Ends what is left: connections that came while the relays closed, and relays that wait for their server."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class Relays:
    """Relays on an event loop in their own thread, which end with the `with` block."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self._opened: list[Relay] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for relay in self._opened:
            asyncio.run_coroutine_threadsafe(relay.close(), self._loop).result()
        asyncio.run_coroutine_threadsafe(_end_tasks(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self, target: Address | None = None, *, knows_brokers: bool = False) -> Relay:
        """Returns a relay that takes connections; `knows_brokers` reads who sends from the first request."""
        relay = Relay(self._loop, target, knows_brokers=knows_brokers)
        asyncio.run_coroutine_threadsafe(relay.listen(), self._loop).result()
        self._opened.append(relay)
        return relay
