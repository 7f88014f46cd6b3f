"""What commands share that print and ask: tables for people, JSON for programs, errors of several names, questions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING

import typer

from millrace.errors import BrokerUnreachableError, MillraceError, SetupError
from millrace.times import MAX_DATETIME_MS
from millrace_ops.cli.suggested import told

if TYPE_CHECKING:
    from rich.progress import Progress

NOTHING = "-"  # what a cell shows that has nothing
NO_ROWS = "there is nothing to show"


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], file: IO[str] | None = None, *, empty: str = NO_ROWS
) -> None:
    """Prints a table: drawn on a terminal, else a plain line for each row. Columns of numbers are aligned right.

    With `file` it is plain, and written there. Without rows a terminal shows the sentence `empty`, and anything else
    gets the line of columns alone, as a program expects.
    """
    cells = [tuple(row) for row in rows]
    is_number = [bool(cells) and all(isinstance(row[index], int) for row in cells) for index in range(len(columns))]
    texts = [tuple(map(_text, row)) for row in cells]
    if file is None and sys.stdout.isatty():
        _draw_table(columns, texts, is_number) if texts else print(empty)
    else:
        _print_plain_table([tuple(columns), *texts], is_number, file)


def print_tables(*tables: Sequence[Mapping[str, object]]) -> None:
    """Prints one table below the other; a table without rows is left out."""
    for number, rows in enumerate(filter(None, tables)):
        if number:
            print()
        print_table(tuple(rows[0]), (tuple(row.values()) for row in rows))


def print_rows(
    rows: Sequence[Mapping[str, object]],
    *,
    as_json: bool,
    columns: Sequence[str] = (),
    nothing: str = "",
    empty: str = NO_ROWS,
) -> None:
    """Prints rows as JSON or as a table; without rows the sentence `nothing`, or the table, with its `empty`."""
    if as_json:
        print_json(rows)
    elif rows or not nothing:
        print_table(columns or tuple(rows[0]), (tuple(row.values()) for row in rows), empty=empty)
    else:
        print(nothing)


def bars_of_bytes() -> Progress:
    """Returns, as a context manager, progress bars of bytes with speed and time left, which vanish at the end.

    They are on stderr, and show nothing where that is no terminal.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True, markup=False, highlight=False)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _draw_table(columns: Sequence[str], rows: Iterable[Sequence[str]], is_number: Sequence[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, right in zip(columns, is_number, strict=True):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)


def _print_plain_table(lines: Sequence[Sequence[str]], is_number: Sequence[bool], file: IO[str] | None) -> None:
    from rich.cells import cell_len

    lines = [[one_line(cell) or NOTHING for cell in line] for line in lines]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = []
        for cell, width, right in zip(line, widths, is_number, strict=True):
            blanks = " " * (width - cell_len(cell))
            cells.append(blanks + cell if right else cell + blanks)
        print("  ".join(cells).rstrip(), file=file)


def _text(cell: object) -> str:
    if cell is None:
        return NOTHING
    if isinstance(cell, bool):
        return str(cell).lower()
    return ",".join(map(_text, cell)) if isinstance(cell, (list, tuple)) else str(cell)


def one_line(text: str) -> str:
    """Returns the text with line ends and other control characters escaped, so that a row stays one line."""
    return text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def print_json(value: object) -> None:
    """Prints one line of JSON."""
    print(json.dumps(value, ensure_ascii=False))


def iso_time(timestamp_ms: int) -> str:
    """Returns a timestamp as ISO 8601 in UTC, or as the number if it is negative or beyond the calendar."""
    if not 0 <= timestamp_ms <= MAX_DATETIME_MS:
        return str(timestamp_ms)
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


def for_each(names: Iterable[str], action: Callable[[str], None]) -> None:
    """Runs an action on every name, each once; writes a line to stderr for each error.

    Raises:
        BrokerUnreachableError: At once, because the other names could not reach a broker either.
        typer.Exit: With status 1 at the end, if an action failed.
    """
    has_failed = False
    for name in dict.fromkeys(names):
        try:
            action(name)
        except BrokerUnreachableError:
            raise
        except MillraceError as error:
            sys.stdout.flush()
            print(f"millrace: {told(error)}", file=sys.stderr)
            has_failed = True
    if has_failed:
        raise typer.Exit(1)


def confirm(question: str, *, is_confirmed: bool) -> bool:
    """Returns whether to go on: either it was confirmed beforehand or the user says yes.

    The question goes to stderr, because a program may read stdout. An empty answer means no.

    Raises:
        SetupError: There is no terminal to ask at.
    """
    from rich.console import Console
    from rich.prompt import Confirm

    if is_confirmed:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise SetupError(f"{question} There is no terminal to answer at; --yes confirms it")
    try:
        return Confirm.ask(question, default=False, console=Console(stderr=True, markup=False, highlight=False))
    except EOFError:
        return False
