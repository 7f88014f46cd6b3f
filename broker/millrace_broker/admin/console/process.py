"""The process that makes the console's pages: started when it is needed, again where it has ended, and never twice.

    stdin   one line of JSON, the settings; then nothing, and its end is the end of the process
    stdout  one line once it serves HTTP at its socket

The socket lies in a folder that only the broker's user can enter. The pipe closes when the broker dies, however that
happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping

from millrace.errors import SetupError

PROGRAM = "millrace_ops.console"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0


class ConsoleProcess:
    """The process and the folder of its socket."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = settings
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()

    async def socket(self) -> str:
        """Returns the path of the socket of the running process. Raises SetupError where it does not start."""
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                await self._start()
            return self._path()

    async def stop(self) -> None:
        """Ends the process."""
        async with self._starting:
            if self._process is not None:
                await _end(self._process)
            if self._folder is not None:
                self._folder.cleanup()

    def _path(self) -> str:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="millrace-console-")  # of mode 0700
        os.makedirs(self._folder.name, mode=0o700, exist_ok=True)  # a process that has ended has removed it
        return os.path.join(self._folder.name, "socket")

    async def _start(self) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", PROGRAM, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({**self._settings, "socket": self._path()}).encode() + b"\n")
        try:
            ready = await asyncio.wait_for(process.stdout.readline(), START_TIMEOUT_S)
        except TimeoutError:
            ready = b""
        if not ready:
            await _end(process)
            raise SetupError("the console's process does not start; the broker's log says why")
        self._process = process


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
