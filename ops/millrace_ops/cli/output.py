"""Prints results on stdout: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from millrace.times import MAX_DATETIME_MS

NOTHING = "-"  # what a cell shows that has nothing


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table: drawn on a terminal, else a plain line for each row. Columns of numbers are aligned right."""
    cells = [tuple(row) for row in rows]
    is_number = [bool(cells) and all(isinstance(row[index], int) for row in cells) for index in range(len(columns))]
    texts = [tuple(map(_text, row)) for row in cells]
    if sys.stdout.isatty():
        _draw_table(columns, texts, is_number)
    else:
        _print_plain_table([tuple(columns), *texts], is_number)


def print_tables(*tables: Sequence[Mapping[str, object]]) -> None:
    """Prints tables below each other, and leaves out those without rows."""
    for number, rows in enumerate(filter(None, tables)):
        if number:
            print()
        print_table(tuple(rows[0]), (tuple(row.values()) for row in rows))


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


def _print_plain_table(lines: Sequence[Sequence[str]], is_number: Sequence[bool]) -> None:
    from rich.cells import cell_len

    lines = [[_one_line(cell) or NOTHING for cell in line] for line in lines]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = []
        for cell, width, right in zip(line, widths, is_number, strict=True):
            blanks = " " * (width - cell_len(cell))
            cells.append(blanks + cell if right else cell + blanks)
        print("  ".join(cells).rstrip())


def _text(cell: object) -> str:
    if cell is None:
        return NOTHING
    if isinstance(cell, bool):
        return str(cell).lower()
    return ",".join(map(_text, cell)) if isinstance(cell, (list, tuple)) else str(cell)


def _one_line(text: str) -> str:
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
