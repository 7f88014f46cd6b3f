"""How results are shown: tables for people, JSON for programs, both on stdout."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

UNFOLDED_WIDTH = 10_000  # columns of a line that no terminal folds
MAX_DATETIME_MS = 253_402_300_799_999  # the end of year 9999


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; columns of numbers stand to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    body = [tuple(row) for row in rows]
    for index, column in enumerate(columns):
        is_number = bool(body) and all(isinstance(row[index], int) for row in body)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in body:
        table.add_row(*(str(cell) for cell in row))
    width = None if sys.stdout.isatty() else UNFOLDED_WIDTH
    Console(markup=False, highlight=False, width=width).print(table)


def print_json(value: object) -> None:
    """One line of JSON."""
    print(json.dumps(value, ensure_ascii=False))


def json_bytes(value: bytes | None) -> Any:
    """Bytes in JSON: their text where they are UTF-8, else `{"base64": ...}`; null stays null."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def iso_time(timestamp_ms: int) -> str:
    """A timestamp as ISO 8601 in UTC, or the number where it is none or beyond the calendar."""
    if not 0 <= timestamp_ms <= MAX_DATETIME_MS:
        return str(timestamp_ms)
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
