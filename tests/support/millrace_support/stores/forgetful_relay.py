"""A relay before a store that forgets the conditions of requests, as old stores do that are compatible to S3.

    python -m millrace_support.stores.forgetful_relay PORT TARGET_PORT

The names of the headers become ones of the same length that mean nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys

from millrace.addresses import LOOPBACK

CHUNK_BYTES = 1 << 16
CONDITION = re.compile(rb"\r\nif-(none-match|match):", re.IGNORECASE)


async def _serve(port: int, target_port: int) -> None:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(LOOPBACK, target_port)
        ways = [asyncio.create_task(_pass_on(reader, to_writer)), asyncio.create_task(_pass_on(to_reader, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for one in (writer, to_writer):
            one.close()

    server = await asyncio.start_server(relay, LOOPBACK, port)
    await server.serve_forever()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(CONDITION.sub(rb"\r\nno-\1:", data))
            await writer.drain()


if __name__ == "__main__":
    own, target = map(int, sys.argv[1:])
    asyncio.run(_serve(own, target))
