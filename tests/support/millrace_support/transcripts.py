"""Transcripts of state tables (tests/transcripts): what happens to a table, and what follows from it.

    # A remark.                   remarks and blank lines stay as they are
    set reauth=5000               settings, for the whole transcript
    > handshake 1 PLAIN           an event: a method of the stage, with its words and its NAME=VALUE
        chosen PLAIN              what the stage says is indented below it
        [TOKENS]                  at the end the state

`pytest --rewrite-transcripts` writes down what comes out; the difference is reviewed as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

FOLDERS = Path(__file__).parents[2] / "transcripts"
INDENT = "    "


class Stage:
    """Plays one transcript: what follows from the event `wait 1000` is what `on_wait("1000")` says.

    Attributes:
        OPTION: What a word of an event begins with that is an option, and not one of its plain words.
    """

    OPTION: ClassVar[re.Pattern[str]] = re.compile(r"[^=]+=")

    def __init__(self) -> None:
        self.lines: list[str] = []

    def play(self, event: str) -> None:
        """Has an event happen, and says what state it leaves."""
        name, *words = event.split()
        options = dict(word.split("=", 1) for word in words if self.OPTION.match(word))
        self.happen(name, [word for word in words if not self.OPTION.match(word)], options)
        if state := self.state():
            self.say(state)

    def happen(self, name: str, plain: list[str], options: dict[str, str]) -> object:
        """Calls the method of an event, and returns what that returns."""
        return getattr(self, f"on_{name}")(*plain, **options)

    def say(self, text: str) -> None:
        """Writes a line below the event."""
        self.lines.append(f"{INDENT}{text}")

    def state(self) -> str:
        """Returns the state after an event; nothing where the stage has said it."""
        return ""


NewStage = Callable[[dict[str, str]], Stage]
"""Makes the stage of a transcript with these settings."""


def played(script: str, new_stage: NewStage) -> str:
    """Returns the transcript as it comes out."""
    lines = script.splitlines()
    set_words = [word for line in lines if line.startswith("set ") for word in line.split()[1:]]
    stage = new_stage(dict(word.split("=", 1) for word in set_words))
    for line in lines:
        if not line.startswith(INDENT):
            stage.lines.append(line)
        if line.startswith(">"):
            stage.play(line.removeprefix(">").partition("#")[0])
    return "\n".join([*stage.lines, ""])


def plays(folder: str, new_stage: NewStage) -> Callable[..., None]:
    """Returns the test of a module: each transcript of a folder is what happens on the stage."""
    paths = sorted((FOLDERS / folder).glob("*.txt"))
    assert paths, folder

    @pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)
    def test(path: Path, pytestconfig: pytest.Config) -> None:
        script = path.read_text(encoding="utf-8")
        result = played(script, new_stage)
        if pytestconfig.getoption("--rewrite-transcripts"):
            path.write_text(result, encoding="utf-8")
        else:
            assert result == script

    return test
