"""A table of results that fits a terminal: a line for each row, whatever there is to show, as DuckDB's shell draws it.

    ┌─────────┬──────────────────────┬───┐
    │      id │ name                 │ … │     columns that find no room are left out, the last ones first
    │  bigint │ varchar              │   │
    ├─────────┼──────────────────────┼───┤
    │       1 │ Ann                  │ … │
    │       2 │ Somebody whose name… │ … │     cells are cut
    │       · │ ·                    │ · │     rows between the first and the last ones are left out
    │    9999 │ Zoe                  │ … │
    └─────────┴──────────────────────┴───┘
      9,999 rows (40 shown), 12 columns (2 shown)

The layout is pure. It is made of some rows and holds for all: a wider cell that comes later is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

LARGEST_CELL, SMALLEST_CELL = 60, 12
ELLIPSIS, BETWEEN = "…", "·"
BORDER = 4  # both sides of a line
SEPARATOR = 3  # between two cells


class Column(NamedTuple):
    """A column's name, its type as it is shown, and whether its cells stand to the right."""

    name: str
    kind: str
    is_number: bool


class Grid(NamedTuple):
    """The columns that find room, with their widths, of `all_columns` that there are."""

    columns: tuple[Column, ...]
    widths: tuple[int, ...]
    all_columns: int

    @property
    def is_whole(self) -> bool:
        """Whether all columns find room."""
        return len(self.columns) == self.all_columns

    def head(self) -> Iterator[str]:
        """Yields the lines above the rows."""
        yield self._rule("┌", "┬", "┐")
        yield self._line([one.name for one in self.columns], ELLIPSIS)
        yield self._line([one.kind for one in self.columns], "")
        yield self._rule("├", "┼", "┤")

    def row(self, cells: Sequence[str]) -> str:
        """Returns the line of a row, of which the cells of all columns are given."""
        return self._line(cells[: len(self.columns)], ELLIPSIS)

    def between(self) -> str:
        """Returns the line in the place of rows that are left out."""
        return self._line([BETWEEN] * len(self.columns), BETWEEN)

    def foot(self, rows: int, shown: int) -> Iterator[str]:
        """Yields the lines below the rows, with the number of rows and columns where some are left out."""
        yield self._rule("└", "┴", "┘")
        told = [f"{rows:,} row{'' if rows == 1 else 's'}" + (f" ({shown} shown)" if shown < rows else "")]
        if not self.is_whole:
            told.append(f"{self.all_columns} columns ({len(self.columns)} shown)")
        yield f"  {', '.join(told)}"

    def _line(self, cells: Sequence[str], of_others: str) -> str:
        shown = [
            cut(cell, width, to_the_right=column.is_number)
            for cell, width, column in zip(cells, self.widths, self.columns, strict=True)
        ]
        return "│ " + " │ ".join([*shown, *([] if self.is_whole else [cut(of_others, 1)])]) + " │"

    def _rule(self, left: str, middle: str, right: str) -> str:
        widths = [*self.widths, *([] if self.is_whole else [1])]
        return left + middle.join("─" * (width + 2) for width in widths) + right


def laid_out(columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int) -> Grid:
    """Returns the layout of a table at a width, by the cells of some rows.

    Where not everything finds room, wide columns become narrower first, and then the last ones are left out. One is
    shown in any case.
    """
    wanted = [min(LARGEST_CELL, max(cell_len(one.name), cell_len(one.kind), 1)) for one in columns]
    for row in rows:
        wanted = [max(now, min(LARGEST_CELL, cell_len(cell))) for now, cell in zip(wanted, row, strict=True)]
    shown = len(columns)
    while shown > 1 and _least(wanted[:shown], is_whole=shown == len(columns)) > width:
        shown -= 1
    room = width - _frame(shown, is_whole=shown == len(columns))
    return Grid(tuple(columns[:shown]), tuple(_narrowed(wanted[:shown], max(room, 1))), len(columns))


def _frame(columns: int, *, is_whole: bool) -> int:
    return BORDER + SEPARATOR * (columns - 1) + (0 if is_whole else SEPARATOR + 1)


def _least(widths: Sequence[int], *, is_whole: bool) -> int:
    return _frame(len(widths), is_whole=is_whole) + sum(min(one, SMALLEST_CELL) for one in widths)


def _narrowed(widths: Sequence[int], room: int) -> list[int]:
    """Returns widths whose sum is at most `room`, but at least one each: the widest ones become narrower."""
    found = list(widths)
    while sum(found) > room and max(found) > 1:
        widest = max(found)
        next_widest = max((one for one in found if one < widest), default=1)
        many = found.count(widest)
        less = min(widest - next_widest, max(1, (sum(found) - room) // many)) or 1
        for at, one in enumerate(found):
            if one == widest and sum(found) > room:
                found[at] = max(1, one - less)
    return found


def cut(text: str, width: int, *, to_the_right: bool = False) -> str:
    """Returns a text of exactly `width` cells of a terminal: with blanks, or cut before an ellipsis."""
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + ELLIPSIS if width > 1 else ELLIPSIS
    blanks = " " * (width - size)
    return blanks + text if to_the_right else text + blanks
