"""Plays pages of the mirror: their files and commands in a folder, with a test's own clusters for theirs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from millrace_support.pages import blocks, commands

PATIENCE_S = 120
STATUS = "millrace mirror status"
SERVICE = "millrace mirror --config"
MASKS = [
    (re.compile(r"\d+(\.\d+)? (s|ms|min) ago"), "AGE"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\+00:00"), "TIME"),
    (re.compile(r" +"), " "),
]


class Reader:
    """Does what a page says, below a heading if one is given."""

    def __init__(self, folder: Path, places: Mapping[str, str]) -> None:
        self._folder = folder
        self._places = places
        own = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE_")}
        self._environment = {**own, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}

    def play(self, page: Path, heading: str | None = None) -> list[tuple[str, str, str]]:
        """Returns each command of the console with what the page shows, and with what it printed, both masked."""
        played = []
        with self._left_running() as start:
            for one in blocks(page):
                if heading not in (None, one.heading):
                    continue
                if one.file:
                    (self._folder / one.file).write_text(self._placed(one.text), encoding="utf-8")
                if one.language == "sh" and one.text.startswith(SERVICE):
                    start(one.text)
                for command, output in commands(one) if one.language == "console" else ():
                    shown = masked(self._placed(output))
                    played.append((command, shown, self._awaited(command, shown)))
        return played

    def _awaited(self, command: str, shown: str) -> str:
        """Returns what a command prints; one that shows how far a mirror is runs again until that is what is shown."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            printed = masked(self._run(command))
            if printed == shown or not command.startswith(STATUS) or time.monotonic() > deadline_s:
                return printed

    def _placed(self, text: str) -> str:
        for there, here in self._places.items():
            text = text.replace(there, here)
        return text

    def _run(self, command: str) -> str:
        done = subprocess.run(  # noqa: S602 -- a page is of the shell
            self._placed(command), shell=True, cwd=self._folder, env=self._environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        return done.stdout

    @contextmanager
    def _left_running(self) -> Iterator[Callable[[str], None]]:
        """Makes the context in which commands run that a page leaves running."""
        running: list[subprocess.Popen[bytes]] = []

        def start(command: str) -> None:
            with (self._folder / "mirror.log").open("wb") as log:
                running.append(
                    subprocess.Popen(
                        self._placed(command).split(), cwd=self._folder, env=self._environment, stdout=log, stderr=log
                    )
                )

        try:
            yield start
        finally:
            for one in running:
                one.send_signal(signal.SIGTERM)
            for one in running:
                one.wait(PATIENCE_S)


def masked(text: str) -> str:
    """Returns a text without what differs from run to run."""
    for mask, name in MASKS:
        text = mask.sub(name, text)
    return text
