"""The harness of all benchmarks: who has a turn, which figures follow, and how they are shown.

A benchmark is a module of this package. Its `run` takes an empty folder, and one of its `PEERS` if it has any, and
returns its figures; its `run_in`, where it has one, takes a folder and the address of a store, and its `run_as` a
folder, one of its `FORMATS` of tables, and one of that format's peers. Absolute rates drift
with the machine from minute to minute; the ratio to a yardstick of the same run does not. Rounds alternate between what
is measured and its yardstick, and medians are compared.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table

Samples = dict[str, float]
FILE_COLUMNS = 150
MEGABYTE = 1_000_000
GIGABYTE = 1_000_000_000
NUMBERS = {"value", "its value", "ratio"}
CUTS = {"p50": 499, "p99": 989, "p99.9": 998}  # of a thousand parts


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


def beside_goal(name: str, value: float, unit: str, goal: float) -> Figure:
    """Returns the figure of a value that is to be at most `goal`."""
    return Figure(name=name, value=value, unit=unit, yardstick="the goal", yardstick_value=goal, at_most=1.0)


def interleave(rounds: int, *measures: Callable[[], Samples]) -> list[Samples]:
    """Returns the median of each number of each measure over `rounds` rounds, in which every measure has its turn.

    Every second round goes backwards, so that no measure comes after the same other one each time, which may have left
    work behind.
    """
    results: list[list[Samples]] = [[] for _ in measures]
    for number in range(rounds):
        turns = [*zip(results, measures, strict=True)]
        for result, measure in turns[::-1] if number % 2 else turns:
            result.append(measure())
    return [{name: statistics.median(one[name] for one in result) for name in result[0]} for result in results]


def alternate(rounds: int, *measures: Callable[[], float]) -> list[float]:
    """Returns the median of each measure of one number, in rounds as `interleave` does."""
    return [one["it"] for one in interleave(rounds, *(lambda one=one: {"it": one()} for one in measures))]


def per_second(
    amount: float, work: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """Returns a measure: it does the work once, on an amount of something, and returns how much that is in a second."""

    def measure() -> float:
        started = clock()
        work()
        return amount / (clock() - started)

    return measure


def percentiles(seconds: Sequence[float], unit: float) -> Samples:
    """Returns the 50th, 99th and 99.9th percentile of times, in a unit of which a second has `unit`."""
    cuts = statistics.quantiles(seconds, n=1000, method="inclusive")
    return {name: unit * cuts[place] for name, place in CUTS.items()}


class Named(Protocol):
    """Something with a name."""

    @property
    def name(self) -> str:
        """Its name in the report."""
        ...


Measured = TypeVar("Measured", bound=Named)


class Comparison(Generic[Measured]):
    """Measures one subject after the other, in rounds; the first is Millrace, the second, if any, its yardstick.

    Args:
        subjects: What is measured.
        rounds: How often each has its turn; the medians are compared.
        topic: The beginning of the names of topics.
    """

    def __init__(self, subjects: Sequence[Measured], rounds: int, topic: str) -> None:
        self.subjects = subjects
        self.peer = subjects[1].name if len(subjects) > 1 else ""
        self._rounds = rounds
        self._topics = (f"{topic}-{number}" for number in itertools.count())

    def new_topic(self) -> str:
        """Returns a name that no topic has had."""
        return next(self._topics)

    def measure(self, measure: Callable[[Measured, str], Samples], rounds: int | None = None) -> list[Samples]:
        """Returns the medians for each subject; each measurement has the name of a topic of its own."""
        turns = ((lambda subject=subject: measure(subject, self.new_topic())) for subject in self.subjects)
        return interleave(rounds or self._rounds, *turns)

    def figure(
        self, name: str, unit: str, key: str, measured: Sequence[Samples], *, at_least: float | None = None,
        at_most: float | None = None,
    ) -> Figure:  # fmt: skip
        """Returns the figure of one of the numbers."""
        return Figure(
            name=name, value=measured[0][key], unit=unit, yardstick=self.peer,
            yardstick_value=measured[1][key] if self.peer else None, at_least=at_least, at_most=at_most,
        )  # fmt: skip


def peers(name: str, form: str | None = None) -> tuple[str, ...]:
    """Returns what a benchmark can be measured beside, in a format of tables if one is given."""
    module = import_module(f"{__package__}.{name}")
    return getattr(module, "PEERS", ()) if form is None else module.FORMATS[form]


def formats(name: str) -> tuple[str, ...]:
    """Returns the formats of tables in which a benchmark can be run beside Delta's."""
    return tuple(getattr(import_module(f"{__package__}.{name}"), "FORMATS", ()))


def takes_store(name: str) -> bool:
    """Returns whether a benchmark can be run in a store of tables."""
    return hasattr(import_module(f"{__package__}.{name}"), "run_in")


def measure(
    name: str, peer: str | None, json_file: Path | None, store: str | None = None, form: str | None = None
) -> None:
    """Runs a benchmark in a temporary folder, and shows its figures.

    Args:
        name: The benchmark.
        peer: One of its peers.
        json_file: Where the figures are written, too.
        store: The address of a store of tables, for a benchmark that takes one.
        form: One of its formats.
    """
    beside = [one for one in peers(name, form) if one == peer]
    module = import_module(f"{__package__}.{name}")
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as place:
        if store is not None:
            figures = module.run_in(Path(place), store)
        elif form is not None:
            figures = module.run_as(Path(place), form, peer)
        else:
            figures = module.run(Path(place), *beside)
    given = {"peer": peer, "store": store, "format": form}
    options = "".join(f" --{option} {value}" for option, value in given.items() if value)
    show(f"millrace bench {name}{options}", figures, json_file)


def show(title: str, figures: Sequence[Figure], json_file: Path | None) -> None:
    """Prints the table, and writes its figures as JSON to a file if one is given."""
    console = Console()
    if not console.is_terminal:
        console.width = FILE_COLUMNS
    console.print(_table(title, figures, console.is_terminal))
    if json_file is not None:
        json_file.write_text(json.dumps(_document(title, figures), indent=1) + "\n", encoding="utf-8")


def _table(title: str, figures: Sequence[Figure], is_drawn: bool) -> Table:
    table = Table(title=title, title_justify="left", box=box.HEAVY_HEAD if is_drawn else None)
    has_goals = any(figure.goal for figure in figures)
    for column in ("figure", "value", "unit", "yardstick", "its value", "ratio", *(["goal"] if has_goals else [])):
        table.add_column(column, justify="right" if column in NUMBERS else "left")
    for figure in figures:
        yardstick_value = "" if figure.yardstick_value is None else _number(figure.yardstick_value)
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        goal = (figure.goal,) if has_goals else ()
        table.add_row(figure.name, _number(figure.value), figure.unit, figure.yardstick, yardstick_value, ratio, *goal)
    return table


def _document(title: str, figures: Sequence[Figure]) -> dict[str, object]:
    return {
        "benchmark": title,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "figures": [asdict(figure) | {"ratio": figure.ratio, "goal": figure.goal} for figure in figures],
    }


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
