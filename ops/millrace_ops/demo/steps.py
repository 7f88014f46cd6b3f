"""Progress on the terminal: a line for each step, with its seconds, and a bar where there is something to count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from millrace.clock import Clock

BAR_WIDTH = 24


class Step:
    """The line of a step that is under way."""

    def __init__(self, progress: Progress, name: str, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=total, note="")

    def advance(self, count: int) -> None:
        """Moves the bar on by `count`."""
        self._progress.advance(self._task, count)

    def note(self, text: str) -> None:
        """Shows a text in place of the one before."""
        self._progress.update(self._task, note=text)

    def finish(self) -> None:
        """Fills the bar and ends the spinner."""
        total = self._progress.tasks[self._task].total or 1
        self._progress.update(self._task, total=total, completed=total)


class Steps:
    """The steps so far, with the seconds that each took."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = {}
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}", table_column=Column(no_wrap=True, min_width=30)),
            _Seconds(table_column=Column(no_wrap=True, justify="right", min_width=7)),
            _Doing(table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
            console=console,
            expand=True,
        )

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keeps the lines up to date while the context lasts."""
        with self._progress:
            yield

    @contextmanager
    def step(self, name: str, total: int | None = None) -> Iterator[Step]:
        """Shows a step while the context lasts; `total` is how many things it does, where that is known."""
        step = Step(self._progress, name, total)
        started_ms = self._clock.monotonic_ms()
        yield step
        self.seconds[name] = (self._clock.monotonic_ms() - started_ms) / 1000
        step.finish()


class _Doing(ProgressColumn):
    """A bar and a count where things are counted, else the note."""

    def render(self, task: Task) -> RenderableType:
        if task.total is None or task.total == 1:
            return Text(task.fields["note"], "dim")
        row = Table.grid(padding=(0, 1))
        row.add_row(ProgressBar(task.total, task.completed, width=BAR_WIDTH), f"{int(task.completed):,}")
        return row


class _Seconds(ProgressColumn):
    def render(self, task: Task) -> Text:
        elapsed = task.finished_time if task.finished else task.elapsed
        return Text(f"{elapsed or 0.0:.1f} s", "progress.elapsed")
