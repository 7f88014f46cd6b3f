"""Shell blocks of the pages: what a shell and the parsers of our own programs say of them, without running them.

A word in capitals stands for something that the reader fills in. Where a command takes a number there, it gets one.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import chdir
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer.main

from millrace_broker.cluster.config_sources import BROKER_KEYS
from millrace_broker.startup.options import argument_parser
from millrace_ops.cli.app import app
from millrace_support.pages import ROOT

if TYPE_CHECKING:
    from typer._click.core import Command

REMARK = re.compile(r"(^|\s)#\s.*$", re.MULTILINE)
CONTINUED = re.compile(r"\\\n\s*")
OPTIONAL = re.compile(r"\[(-[^\]]*)\]")
INNER = re.compile(r"\$\(([^()]*)\)")
OPERATOR = re.compile(r"[;|&()<>]+")
ASSIGNMENT = re.compile(r"\w+=.*")
BEFORE_COMMANDS = {"until", "while", "if", "then", "do", "else", "exec", "!", "["}
NUMBERS = {"PARTITION": "0", "OFFSET": "0", "ID": "1", "N": "1", "…": None}
FILE = re.compile(r"(?<= )[\w-]+\.(?:jsonl?|txt)\b")
FUNCTIONS_OF_A_PAGE = re.compile(r"^\w+\(\) \{", re.MULTILINE)


def of_console(text: str) -> str:
    """Returns the commands of a block of the console: what stands behind `$ `."""
    return "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))


def of_cron(text: str) -> str:
    """Returns the commands of a table of cron, without their times."""
    return "\n".join(line.split(maxsplit=5)[5] for line in text.splitlines())


def check_shell(text: str, folder: Path) -> None:
    """Checks the grammar, and each command that is one of this project's; AssertionError or the parser's own error.

    Commands find the variables that the block exports, and in the folder empty files of the names that they have.
    """
    script = OPTIONAL.sub(r"\1", text)
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if FUNCTIONS_OF_A_PAGE.search(script):
        return
    for file in FILE.findall(script):
        (folder / file).touch()
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        for words in commands(script):
            for name, value in (word.split("=", 1) for word in words[1:] if words[0] == "export"):
                patch.setenv(name, value)
            _check(words)


def commands(script: str) -> Iterator[list[str]]:
    """Yields the words of each command of a script, also of those inside of others."""
    text = CONTINUED.sub(" ", REMARK.sub("", script))
    for line in text.splitlines():
        for inner in INNER.findall(line):
            yield from commands(inner)
        yield from _commands_of_a_line(INNER.sub("INNER", line))


def _commands_of_a_line(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    is_file = False
    for token in lexer:
        if OPERATOR.fullmatch(token):
            is_file = token[0] in "<>"
            if not is_file:
                yield _without_setting(words)
                words = []
        elif is_file:
            is_file = False
        else:
            words.append(token)
    yield _without_setting(words)


def _without_setting(words: list[str]) -> list[str]:
    while words and (words[0] in BEFORE_COMMANDS or ASSIGNMENT.fullmatch(words[0])):
        words = words[1:]
    return words


def _check(words: list[str]) -> None:
    program, *rest = words or [""]
    name = program.rpartition("/")[2]
    if name == "millrace":
        check_millrace(rest)
    elif name == "make":
        _check_make(rest)
    elif name in {"python", "python3"} and rest[:1] == ["-m"] and rest[1] != "venv":
        assert find_spec(rest[1]) is not None, rest[1]
    elif name == "pip":
        _check_extras(rest)


def check_millrace(arguments: list[str]) -> None:
    """Has the parser of a command of `millrace` look at its arguments; raises what it raises."""
    given = [NUMBERS.get(one, one) for one in arguments]
    words = [one for one in given if one is not None]
    if words[0] == "broker":
        parsed = argument_parser().parse_args(words[1:])
        assert {setting.partition("=")[0] for setting in parsed.set} <= {*BROKER_KEYS}
        return
    command, ctx, name = _millrace(), None, "millrace"
    while commands_of := getattr(command, "commands", None):
        ctx = type(command).context_class(command, info_name=name, parent=ctx)
        if words[0].startswith("-"):
            break
        name, *words = words
        command = commands_of[name]
    command.make_context(name, words, parent=ctx)


@cache
def _millrace() -> Command:
    return typer.main.get_command(app)


def _check_make(words: list[str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {word for word in words if "=" not in word} <= targets


def _check_extras(words: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for word in words:
        for extras in re.findall(r"^(?:millrace-log|\.)\[([\w,]+)\]$", word):
            assert {*extras.split(",")} <= {*project["optional-dependencies"]}, word
