"""A load writes its progress to stderr: as a bar on a terminal, else as a line for each change."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

    from millrace_pipelines.warehouse.load.options import LoadListener, Step


@contextmanager
def shown_listener() -> Iterator[LoadListener]:
    """Yields a listener that writes to stderr: a progress bar on a terminal, else a line for each change."""
    from rich.console import Console
    from rich.progress import BarColumn as Bar
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield LineListener()
        return
    columns = (TextColumn("{task.description}"), Bar(), MofNCompleteColumn(), TextColumn("tasks"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield BarListener(progress)


def described(step: Step) -> str:
    """Returns a step's name for users; for the planned load it adds that Spark starts now, which takes a while."""
    from millrace_pipelines.warehouse.load.options import Step

    return "planned, starting Spark" if step is Step.PLANNED else str(step)


class BarListener:
    """Shows a load as a bar of tasks."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bar = progress.add_task("starting", total=None)

    def reached(self, step: Step) -> None:
        """Shows the name of the step beside the bar."""
        self._progress.update(self._bar, description=described(step))

    def tasks_done(self, done: int, total: int, records: int) -> None:
        """Moves the progress bar to the tasks done, and shows how many records they have read."""
        self._progress.update(self._bar, completed=done, total=total, description=f"{records:,} records")


class LineListener:
    """Writes a line to stderr for each step and each change of the tasks done."""

    def __init__(self) -> None:
        self._done = -1

    def reached(self, step: Step) -> None:
        """Writes the name of the step to stderr."""
        print(described(step), file=sys.stderr, flush=True)

    def tasks_done(self, done: int, total: int, records: int) -> None:
        """Writes to stderr how many tasks are done, unless none is."""
        if done != self._done:
            self._done = done
            print(f"{done} of {total} tasks, {records:,} records", file=sys.stderr, flush=True)
