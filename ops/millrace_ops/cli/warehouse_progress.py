"""Shows a running load."""

from __future__ import annotations

import sys

from rich.progress import Progress

from millrace_pipelines.warehouse.load.progress import Step


def described(step: Step) -> str:
    """Returns the step's name, and behind the plan what takes the time until the first task is done."""
    return "planned, starting Spark" if step is Step.PLANNED else str(step)


class BarListener:
    """Shows a load as a bar of tasks."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bar = progress.add_task("starting", total=None)

    def reached(self, step: Step) -> None:
        """Shows the step."""
        self._progress.update(self._bar, description=described(step))

    def tasks_done(self, done: int, total: int, records: int) -> None:
        """Moves the bar."""
        self._progress.update(self._bar, completed=done, total=total, description=f"{records:,} records")


class LineListener:
    """Writes a line to stderr for each step and each change of the tasks done."""

    def __init__(self) -> None:
        self._done = -1

    def reached(self, step: Step) -> None:
        """Writes the step."""
        print(described(step), file=sys.stderr, flush=True)

    def tasks_done(self, done: int, total: int, records: int) -> None:
        """Writes how many tasks are done, if one was."""
        if done != self._done:
            self._done = done
            print(f"{done} of {total} tasks, {records:,} records", file=sys.stderr, flush=True)
