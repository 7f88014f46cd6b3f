"""The file in which a process of loads tells Dagster's Pipes of its jobs, a JSON object to a line.

    process  ──line──► messages ──read()──► PipesMessageHandler: the log, and what is told of jobs
                          └─ the end of `read_messages` reads what is left

Dagster's own reader looks at the file in a thread, which stops where it finds no line and then sees that the process
has ended: what the process tells between these two looks is lost, and with it the report of a load that was committed.
Here the run reads by itself, and once more after the end of the process. A process that is killed may leave part of a
line, which is no message.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
from dagster_pipes import PipesDefaultMessageWriter, PipesParams


class MessageFile(dg.PipesMessageReader):
    """Reads the messages of one process when it is asked to, and at the end of its context."""

    def __init__(self) -> None:
        self._path = Path()
        self._read_bytes = 0

    @contextmanager
    def read_messages(self, handler: dg.PipesMessageHandler) -> Iterator[PipesParams]:
        """Yields where the process writes its messages, to a file that only this user can read."""
        self._handler = handler
        with TemporaryDirectory() as folder:
            self._path = Path(folder, "messages")
            self._path.touch()
            try:
                yield {PipesDefaultMessageWriter.FILE_PATH_KEY: str(self._path)}
            finally:
                self.read()

    def read(self) -> None:
        """Hands the messages that have come since the last call to the handler."""
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            lines, end, _ = file.read().rpartition(b"\n")
        self._read_bytes += len(lines) + len(end)
        for line in lines.splitlines():
            self._handler.handle_message(json.loads(line))

    @property
    def expected_writer_count(self) -> int:
        """One, as in Dagster's own readers, which warn on each use that it is a preview."""
        return 1

    def no_messages_debug_text(self) -> str:
        """Returns the sentence that Dagster shows where no message came: it names the file."""
        return f"Messages were looked for in {self._path}."
