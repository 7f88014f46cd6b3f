"""Makes docs/commands.md from the parsers of the commands: `python -m millrace_tools.commands_page > docs/commands.md`.

A test compares the page with what this module makes, so that the page is always up to date.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

import typer.main
from typer.core import TyperGroup

from millrace_broker.startup.options import argument_parser
from millrace_ops.cli.app import app
from millrace_ops.cli.commands import FROM_SOURCES, needed_extras

if TYPE_CHECKING:
    from typer._click.core import Command, Context
    from typer._click.formatting import HelpFormatter

HEAD = """\
# Commands

Made by `python -m millrace_tools.commands_page` from the parsers of the commands; edit nothing here.
`millrace COMMAND -h` shows the
same of one command. [command-line.md](command-line.md) says how commands find the broker, and what scripts can rely on.
"""
SPECIAL = re.compile("([*<]|__)")
WIDTH = 100
PARSED_ELSEWHERE = {"millrace broker": argument_parser}
"""The command whose arguments another package parses, and its parser."""


def render() -> str:
    """Returns the page."""
    return "\n".join((HEAD, *_sections(typer.main.get_command(app), ("millrace",), None)))


class Sections:
    """Stands in for a formatter of help, and keeps the lists of arguments and options that it is given."""

    def __init__(self) -> None:
        self.tables: list[tuple[str, Sequence[tuple[str, str]]]] = []
        self._title = ""

    @contextmanager
    def section(self, title: str) -> Iterator[None]:
        """Gives the list that comes next its title."""
        self._title = title
        yield

    def write_dl(self, rows: Sequence[tuple[str, str]]) -> None:
        """Keeps a list: names, and what each means."""
        self.tables.append((self._title, rows))


def _sections(command: Command, path: tuple[str, ...], parent: Context | None) -> Iterator[str]:
    ctx = type(command).context_class(command, info_name=path[-1], parent=parent)
    name = " ".join(path)
    if name in PARSED_ELSEWHERE:
        yield _of_argparse(name, PARSED_ELSEWHERE[name]())
    elif isinstance(command, TyperGroup):
        yield f"## {name}\n\n{_plain(command.help or '')}\n"
        if command.invoke_without_command and parent is not None:
            yield _usage(command, ctx)
        if command.invoke_without_command or parent is None:
            yield _tables(command, ctx)
        for one in command.list_commands(ctx):
            yield from _sections(command.commands[one], (*path, one), ctx)
    else:
        is_of_group = len(path) > len(("millrace", "command"))
        yield f"##{'#' if is_of_group else ''} {name}\n\n{_needs(path[1:])}{_plain(command.help or '')}\n"
        yield _usage(command, ctx)
        yield _tables(command, ctx)


def _needs(path: Sequence[str]) -> str:
    if path[0] in FROM_SOURCES:
        return "Needs a clone of the project. "
    extras = needed_extras(path)
    return f"Needs `millrace-log[{','.join(extras)}]`. " if extras else ""


def _usage(command: Command, ctx: Context) -> str:
    return f"```text\n{ctx.command_path} {' '.join(command.collect_usage_pieces(ctx))}\n```\n"


def _tables(command: Command, ctx: Context) -> str:
    sections = Sections()
    command.format_options(ctx, cast("HelpFormatter", sections))
    rows = {title: [row for row in rows if "--help" not in row[0]] for title, rows in sections.tables}
    return "\n".join(_table(title[:-1].lower(), rows) for title, rows in rows.items() if rows)


def _table(kind: str, rows: Sequence[tuple[str, str]]) -> str:
    lines = [f"| {kind} | |", "|---|---|", *(f"| `{_cell(name)}` | {_plain(_cell(text))} |" for name, text in rows)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _plain(text: str) -> str:
    """Returns a help text as Markdown, in which words with special characters stand for themselves."""
    paragraphs = (" ".join(one.split()) for one in re.split(r"\n\s*\n", text))
    spans = re.split("(`[^`]*`)", "\n\n".join(paragraphs))
    return "".join(one if one.startswith("`") else SPECIAL.sub(r"\\\1", one) for one in spans)


def _of_argparse(name: str, parser: argparse.ArgumentParser) -> str:
    parser.formatter_class = partial(argparse.HelpFormatter, width=WIDTH)
    usage, _, options = parser.format_help().partition("\n\noptions:\n")
    usage = usage.removesuffix(f"\n\n{parser.description}")
    return f"## {name}\n\n{parser.description}\n\n```text\n{usage}\n\n{options}```\n"


if __name__ == "__main__":
    sys.stdout.write(render())
