"""Shows a running import on a terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn


class BarListener:
    """A bar of the bytes read, after the count of acknowledged messages; each damage is a line above it."""

    def __init__(self, console: Console, total_bytes: int) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True)
        self._bar = self._progress.add_task("starting", total=total_bytes)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def read(self, size_bytes: int, messages: int) -> None:
        """Moves the bar."""
        self._progress.update(self._bar, completed=size_bytes, description=f"{messages:,} messages")

    def damaged(self, damage: str) -> None:
        """Writes a line above the bar."""
        self._progress.console.print(damage, soft_wrap=True)
