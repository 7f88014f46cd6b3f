"""How `millrace up` shows the health of its parts: a table at a terminal, elsewhere a line for each change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WELL = "well"


@contextmanager
def shown_health(console: Console, latest: Callable[[], Mapping[str, str] | None]) -> Iterator[Callable[[], None]]:
    """Yields what shows the newest health when it is called, if it differs from what is shown."""
    if not console.is_terminal:
        yield _Changes(latest).show
        return
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        shown: list[Mapping[str, str]] = [{}]

        def show() -> None:
            health = latest()
            if health is not None and health != shown[-1]:
                shown[:] = [health]
                live.update(_table(health), refresh=True)

        yield show


class _Changes:
    """Prints a line for each part whose health changes; the first line names all parts that are well at first."""

    def __init__(self, latest: Callable[[], Mapping[str, str] | None]) -> None:
        self._latest = latest
        self._shown: Mapping[str, str] | None = None

    def show(self) -> None:
        health = self._latest()
        if health is None or health is self._shown:
            return
        for line in changes(self._shown, health):
            print(line, flush=True)
        self._shown = health


def changes(before: Mapping[str, str] | None, health: Mapping[str, str]) -> list[str]:
    """Returns a line for each part whose health has changed; `before` is None at the start."""
    if before is None:
        well = [part for part, problem in health.items() if not problem]
        first = [f"{WELL}: {', '.join(well)}"] if well else []
        return first + [f"{part}: {problem}" for part, problem in health.items() if problem]
    changed = {part: problem for part, problem in health.items() if before.get(part) != problem}
    return [f"{part}: {problem or 'well again'}" for part, problem in changed.items()]


def _table(health: Mapping[str, str]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table("part", "health", box=box.SIMPLE_HEAD, pad_edge=False)
    for part, problem in health.items():
        table.add_row(part, Text(problem or WELL, style="red" if problem else "green"))
    return table
