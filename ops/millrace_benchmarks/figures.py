"""A measured figure and its yardstick, shown as a table and written as JSON.

Absolute rates drift with the machine from minute to minute; the ratio to a yardstick of the same run does not.
Rounds alternate between what is measured and its yardstick, and medians are compared.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

Samples = dict[str, float]
FILE_COLUMNS = 150
MEGABYTE = 1_000_000
GIGABYTE = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of a benchmark's report; `ratio` is value over yardstick, and the goal is a bound of it."""

    name: str
    value: float
    unit: str
    yardstick: str = ""
    yardstick_value: float | None = None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def ratio(self) -> float | None:
        """The value over its yardstick; None without one."""
        return self.value / self.yardstick_value if self.yardstick_value else None

    @property
    def goal(self) -> str:
        """The bound of the ratio and whether it is kept; empty without one."""
        if self.ratio is None or (self.at_least is None and self.at_most is None):
            return ""
        sign, bound = ("≥", self.at_least) if self.at_least is not None else ("≤", self.at_most)
        kept = self.ratio >= (self.at_least or 0) and self.ratio <= (self.at_most or float("inf"))
        return f"{sign} {bound:.2f} {'met' if kept else 'missed'}"


def alternate(rounds: int, *measures: Callable[[], float]) -> list[float]:
    """Returns the median of each measure over `rounds` rounds, in each of which every measure has its turn."""
    results: list[list[float]] = [[] for _ in measures]
    for _ in range(rounds):
        for result, measure in zip(results, measures, strict=True):
            result.append(measure())
    return [statistics.median(result) for result in results]


def interleave(rounds: int, *measures: Callable[[], Samples]) -> list[Samples]:
    """Returns the median of each number of each measure, in rounds as `alternate` does."""
    results: list[list[Samples]] = [[] for _ in measures]
    for _ in range(rounds):
        for result, measure in zip(results, measures, strict=True):
            result.append(measure())
    return [{name: statistics.median(one[name] for one in result) for name in result[0]} for result in results]


def show(title: str, figures: Sequence[Figure], json_file: Path | None) -> None:
    """Prints the table, and writes its figures as JSON to a file if one is given."""
    console = Console()
    table = Table(title=title, title_justify="left", box=box.HEAVY_HEAD if console.is_terminal else None)
    for column, justify in (("figure", "left"), ("value", "right"), ("unit", "left"), ("yardstick", "left")):
        table.add_column(column, justify="right" if justify == "right" else "left")
    table.add_column("its value", justify="right")
    table.add_column("ratio", justify="right")
    has_goals = any(figure.goal for figure in figures)
    if has_goals:
        table.add_column("goal")
    for figure in figures:
        yardstick_value = "" if figure.yardstick_value is None else _number(figure.yardstick_value)
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        goal = (figure.goal,) if has_goals else ()
        table.add_row(figure.name, _number(figure.value), figure.unit, figure.yardstick, yardstick_value, ratio, *goal)
    if not console.is_terminal:
        console.width = FILE_COLUMNS
    console.print(table)
    if json_file is not None:
        json_file.write_text(json.dumps(_document(title, figures), indent=1) + "\n", encoding="utf-8")


def _document(title: str, figures: Sequence[Figure]) -> dict[str, object]:
    return {
        "benchmark": title,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "figures": [asdict(figure) | {"ratio": figure.ratio, "goal": figure.goal} for figure in figures],
    }


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
