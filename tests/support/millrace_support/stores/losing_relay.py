"""A relay before a store that passes requests on, and loses the answers to those that begin with a pattern.

    python -m millrace_support.stores.losing_relay PORT TARGET_PORT PATTERN COUNT [EVERY]

It loses the answer to every EVERYth such request; after COUNT answers were lost it loses no more. It is a process of
its own, for delta-rs lets no other thread of its process run while it waits for an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys

from millrace.addresses import LOOPBACK

CHUNK_BYTES = 1 << 16


class LosingRelay:
    """Passes connections on to a port, and loses answers."""

    def __init__(self, target_port: int, pattern: str, count: int, every: int = 1) -> None:
        self._target_port = target_port
        self._pattern = re.compile(pattern.encode())
        self._left = count
        self._every = every
        self._seen = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes one connection on until one side ends it, or an answer is lost."""
        to_reader, to_writer = await asyncio.open_connection(LOOPBACK, self._target_port)
        loses = asyncio.Event()
        there = asyncio.create_task(self._requests(reader, to_writer, loses))
        back = asyncio.create_task(_answers(to_reader, writer, loses))
        await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
        for task in (there, back):
            task.cancel()
        for one in (writer, to_writer):
            one.close()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, loses: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if self._left and self._pattern.match(data):
                    self._seen += 1
                    if self._seen % self._every == 0:
                        self._left -= 1
                        loses.set()
                writer.write(data)
                await writer.drain()


async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, loses: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            if loses.is_set():
                return
            writer.write(data)
            await writer.drain()


async def main(port: int, relay: LosingRelay) -> None:
    """Serves until the process is ended."""
    server = await asyncio.start_server(relay.serve, LOOPBACK, port)
    await server.serve_forever()


if __name__ == "__main__":
    own, target, lost, *often = sys.argv[1:]
    asyncio.run(main(int(own), LosingRelay(int(target), lost, *map(int, often))))
