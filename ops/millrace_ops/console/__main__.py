"""`python -m millrace_ops.console`: makes the console's pages for the broker that has started it.

The first line of standard input has the settings (`console`); a line on standard output says that it serves. Its log
goes to the broker's stderr, in the form of the broker's log. It ends when standard input ends, as it does with the
broker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from contextlib import suppress

from aiohttp import web

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_broker.admin.console.own_troubles import MAX_HEADER_BYTES
from millrace_broker.log_lines import output
from millrace_ops.console.console import Console, ConsoleSettings
from millrace_ops.console.server import ConsoleServer


def main() -> None:
    """Serves the console until standard input ends."""
    to_stderr = output.write_to(sys.stderr, logging.WARNING)
    settings = ConsoleSettings.from_json(sys.stdin.buffer.readline())
    output.use_format(to_stderr, settings.log_format)
    asyncio.run(_serve(settings))


async def _serve(settings: ConsoleSettings) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait_for_end() -> None:
        sys.stdin.buffer.read()
        loop.call_soon_threadsafe(ended.set)

    application = ConsoleServer(Console(settings, OsFileSystem(), SystemClock())).application()
    runner = web.AppRunner(application, access_log=None, max_field_size=MAX_HEADER_BYTES)
    await runner.setup()
    await web.UnixSite(runner, settings.socket).start()
    threading.Thread(target=wait_for_end, daemon=True).start()
    print("serving", flush=True)  # noqa: T201  # the broker waits for it
    await ended.wait()
    with suppress(OSError):  # a broker that was killed leaves both behind
        os.unlink(settings.socket)
        os.rmdir(os.path.dirname(settings.socket))
    logging.shutdown()
    os._exit(0)  # pages and looks that are under way change nothing, and nobody waits for them


if __name__ == "__main__":
    main()
