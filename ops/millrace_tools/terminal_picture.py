"""Draws the README's picture from real output: `python -m millrace_tools.terminal_picture docs/pictures/by-hand.svg`.

The program starts a broker in a temporary folder, runs the commands below in a terminal, and writes what they print as
SVG. The picture names no font of another host, so it looks the same without the internet.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from millrace.errors import SetupError
from millrace.testing.local_broker import LocalBroker

WIDTH = 100
WEATHER = """\
{"city": "Wien", "degrees": 21.5}
{"city": "Graz", "degrees": 23.0}
{"city": "Linz", "degrees": 19.5}
"""
COMMANDS = (
    "millrace produce weather < weather.jsonl",
    "millrace consume weather --json --last 1",
    "millrace warehouse load weather --table ./warehouse/weather",
    "millrace produce weather < weather.jsonl",
    "millrace warehouse load weather --table ./warehouse/weather",
    "millrace warehouse audit ./warehouse/weather",
    "millrace warehouse query ./warehouse 'SELECT count(*) AS rows FROM weather'",
)


def draw(path: str) -> None:
    """Runs the commands and writes the picture to `path`.

    Raises:
        SetupError: A command failed.
    """
    console = Console(record=True, width=WIDTH, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder, LocalBroker() as broker:
        with open(os.path.join(folder, "weather.jsonl"), "w", encoding="utf-8") as file:
            file.write(WEATHER)
        for command in COMMANDS:
            console.print(Text(f"$ {command}", style="bold green"))
            for line in _output(command, folder, broker.bootstrap):
                console.print(Text.from_ansi(line))
    picture = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="millrace"), flags=re.DOTALL)
    with open(path, "w", encoding="utf-8") as file:
        file.write(picture)


def _output(command: str, folder: str, bootstrap: str) -> Iterator[str]:
    """Yields the lines that a command prints in a terminal; progress and warnings, on stderr, are left out."""
    environment = os.environ | {"MILLRACE_BOOTSTRAP": bootstrap, "PYTHONWARNINGS": "ignore"}
    environment["PATH"] = os.path.dirname(sys.executable) + os.pathsep + environment["PATH"]
    in_terminal = ["script", "--quiet", "--return", "--command", f"stty cols {WIDTH}; {command} 2>errors", "/dev/null"]
    done = subprocess.run(in_terminal, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"{shlex.quote(command)} ended with {done.returncode}: {done.stdout}")
    yield from (line.rstrip() for line in done.stdout.splitlines() if line.strip())


def main() -> None:
    """Writes the picture to the path that the command line names."""
    draw(sys.argv[1])


if __name__ == "__main__":
    main()
