"""A proxy on loopback that delays what passes: each direction of a connection takes half of a round trip.

Bytes keep their order, and more of them may be under way at once, as on a long line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from threading import Event, Thread

from millrace.addresses import LOOPBACK, Address

CHUNK_BYTES = 1 << 16
START_TIMEOUT_S = 30.0


@contextmanager
def delayed(listen_port: int, target: Address, round_trip_s: float) -> Iterator[None]:
    """Passes connections to a port of the loopback interface on to `target`, in a thread, until the end."""
    loop = asyncio.new_event_loop()
    stopped, is_open = asyncio.Event(), Event()
    proxy = _Proxy(target, round_trip_s / 2)

    async def serve() -> None:
        async with await asyncio.start_server(proxy.connected, LOOPBACK, listen_port):
            is_open.set()
            await stopped.wait()
            await proxy.close()

    thread = Thread(target=loop.run_until_complete, args=(serve(),), name="delay", daemon=True)
    thread.start()
    if not is_open.wait(START_TIMEOUT_S):
        raise TimeoutError(f"the proxy does not listen on port {listen_port}")
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()


class _Proxy:
    """The connections of a proxy."""

    def __init__(self, target: Address, delay_s: float) -> None:
        self._target = target
        self._delay_s = delay_s
        self._connections: set[asyncio.Task[None]] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes one connection on until both sides have ended it."""
        task = asyncio.current_task()
        assert task is not None  # a server calls it in one
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        async with AsyncExitStack() as at_end:
            at_end.enter_context(suppress(asyncio.CancelledError))  # `close` ends it; asyncio would report an error
            at_end.callback(writer.close)
            from_target, to_target = await asyncio.open_connection(*self._target)
            at_end.callback(to_target.close)
            await asyncio.gather(self._pass_on(reader, to_target), self._pass_on(from_target, writer))

    async def close(self) -> None:
        """Ends all connections."""
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Writes what is read, each chunk after the delay, and then the end."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        async def write() -> None:
            while True:
                due, chunk = await under_way.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                if not chunk:
                    return
                writer.write(chunk)
                await writer.drain()

        async def read() -> None:
            try:
                while chunk := await reader.read(CHUNK_BYTES):
                    under_way.put_nowait((loop.time() + self._delay_s, chunk))
            finally:  # a reset ends the other side, too
                under_way.put_nowait((loop.time() + self._delay_s, b""))

        with suppress(ConnectionError):
            await asyncio.gather(read(), write())
        with suppress(OSError):
            writer.write_eof()
