"""Millrace's mirror as a process of its own between two clusters, for benchmarks and tests.

    settings = mirror_settings(source=…, target=…, name="here", topics="orders.*", way="copy")
    with MirrorProcess(place, settings) as mirror:
        mirror.pid

It is the command `millrace mirror --config FILE`. What it prints is the file `….mirror.log` beside its settings.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from millrace.lifeline import end_process, start_with_lifeline

STOP_TIMEOUT_S = 60.0


def mirror_settings(
    *, source: str, target: str, name: str, topics: str, way: str = "auto", further: Mapping[str, object] | None = None
) -> str:
    """Returns the settings of a mirror of one source as a file has them."""
    told = {"topics": [topics], "way": way, **(further or {})}
    lines = [f"{key} = {json.dumps(value)}" for key, value in told.items()]
    of_target = ["[target]", f"bootstrap = {json.dumps(target)}"]
    of_source = ["[[sources]]", f"name = {json.dumps(name)}", f"bootstrap = {json.dumps(source)}"]
    return "\n".join([*lines, *of_target, *of_source, ""])


class MirrorProcess:
    """A running mirror; the constructor returns once its process runs.

    Args:
        place: The folder of its settings and of what it prints.
        settings: The text of its file of settings.
        name: What its files are called.
    """

    def __init__(self, place: Path, settings: str, name: str = "mirror") -> None:
        place.mkdir(parents=True, exist_ok=True)
        self._log_file = place / f"{name}.mirror.log"
        self._settings = place / f"{name}.toml"
        self._settings.write_text(settings, encoding="utf-8")
        self._process: subprocess.Popen[bytes]
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether its process has ended."""
        return self._process.poll() is not None

    def start(self) -> None:
        """Starts it, which must not be running."""
        command = [sys.executable, "-m", "millrace_ops", "mirror", "--config", str(self._settings)]
        with self._log_file.open("ab") as log:
            self._process = start_with_lifeline(command, stdout=log, stderr=subprocess.STDOUT)

    def stop(self) -> int:
        """Sends SIGTERM, after a minute SIGKILL, and returns the exit status."""
        return end_process(self._process, signal.SIGTERM, STOP_TIMEOUT_S)

    def kill(self) -> int:
        """Sends SIGKILL, as a crash of the process, and returns the exit status."""
        return end_process(self._process, signal.SIGKILL, STOP_TIMEOUT_S)

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process."""
        self._process.send_signal(number)

    def read_log(self) -> str:
        """Returns everything that it has printed since its first start."""
        return self._log_file.read_text(errors="replace")
