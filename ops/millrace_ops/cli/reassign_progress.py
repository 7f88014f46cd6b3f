"""Shows how far moves of partitions have come: a bar at a terminal, else a line for each partition that is done."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from millrace_ops.replicas.carry_out import Progress, ProgressListener


class BarListener:
    """A bar of the bytes copied, after the count of partitions that are done."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._bar = bars.add_task("starting", total=None)

    def progressed(self, progress: Progress) -> None:
        """Moves the bar; moves without bytes are counted by partitions."""
        counts_bytes = progress.total_bytes > 0
        self._bars.update(
            self._bar,
            completed=progress.copied_bytes if counts_bytes else progress.partitions_done,
            total=progress.total_bytes if counts_bytes else progress.partitions,
            description=f"{progress.partitions_done} of {progress.partitions} partition(s)",
        )


class LineListener:
    """Writes a line to stderr whenever another partition is done."""

    def __init__(self) -> None:
        self._done = -1

    def progressed(self, progress: Progress) -> None:
        """Writes how many partitions are done, if that is another number than before."""
        if progress.partitions_done != self._done:
            self._done = progress.partitions_done
            done = f"{progress.partitions_done} of {progress.partitions} partition(s)"
            copied = f"{progress.copied_bytes:,} of {progress.total_bytes:,} bytes"
            print(f"{done}, {copied}", file=sys.stderr, flush=True)


@contextmanager
def shown_progress() -> Iterator[ProgressListener]:
    """Yields what shows the progress on stderr."""
    from rich.console import Console

    console = Console(stderr=True, markup=False, highlight=False)
    if not console.is_terminal:
        yield LineListener()
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        yield BarListener(bars)
