"""Processes that load a topic into one table of a store again and again, and another engine that compacts it beside.

Each load is a whole one (`load_topic`) but for Spark: its tasks run in its own process. The processes are forked from a
server that has imported what loads need, so that one that is killed is there again at once.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from millrace.errors import MillraceError
from millrace_pipelines.machine import CLOCK, DISK
from millrace_pipelines.warehouse.ledger.plan import split_ranges
from millrace_pipelines.warehouse.load.jobs import TableTasks, attempted, checked
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import LoadReport
from millrace_pipelines.warehouse.load.task import TaskResult
from millrace_pipelines.warehouse.maintenance import compact
from millrace_pipelines.warehouse.stores.options import Options, use_store_options

IDLE_S = 0.05
COMPACTIONS_PAUSE_S = 0.3
HERE: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local"))
"""In place of a session: the work of upserts is of threads, as with a master that is this machine."""


def load_here(options: LoadOptions) -> LoadReport:
    """Loads a topic without Spark."""
    return load_topic(options, spark=HERE, run=_run_here)


def _run_here(_: object, asked: TableTasks) -> list[TaskResult]:
    tasks = split_ranges(asked.ranges, asked.max_records_per_task)
    results = [attempted(one, asked.spec, asked.read, number) for number, one in enumerate(tasks)]
    return checked(results, asked.spec.topic)


def load_for_ever(options: LoadOptions, store: dict[str, Options], log: Path) -> None:
    """Loads again and again; writes a line for each load that ended: its rows, or the name of its error."""
    use_store_options(store)
    with log.open("a", encoding="utf-8", buffering=1) as lines:
        while True:
            try:
                rows = load_here(options).rows
            except MillraceError as error:
                lines.write(f"{type(error).__name__} {error}\n")
                continue
            lines.write(f"rows {rows}\n")
            time.sleep(0 if rows else IDLE_S)


def compact_for_ever(location: str, store: dict[str, Options], log: Path) -> None:
    """Compacts a table as another engine, delta-rs, does: it knows no ledger and holds no lease."""
    [options] = store.values() or [{}]
    with log.open("a", encoding="utf-8", buffering=1) as lines:
        while True:
            time.sleep(COMPACTIONS_PAUSE_S)
            try:
                done = DeltaTable(location, storage_options={**options, "allow_http": "true"}).optimize.compact()
            except (DeltaError, OSError) as error:
                lines.write(f"{type(error).__name__} {error}\n")
            else:
                lines.write(f"compacted {done['numFilesRemoved']}\n")


def keep_compact(location: str, store: dict[str, Options], log: Path) -> None:
    """Compacts a table as upkeep does, again and again."""
    use_store_options(store)
    with log.open("a", encoding="utf-8", buffering=1) as lines:
        while True:
            time.sleep(COMPACTIONS_PAUSE_S)
            try:
                done = compact(location, DISK, CLOCK)
            except MillraceError as error:
                lines.write(f"{type(error).__name__} {error}\n")
            else:
                lines.write(f"compacted {done.files_before}\n")


class Victim:
    """One of these processes, started again after each kill."""

    def __init__(self, work: Callable[..., None], *arguments: object) -> None:
        self._work, self._arguments = work, arguments
        self.start()

    def start(self) -> None:
        """Starts the process, which must not be running."""
        forked = multiprocessing.get_context("forkserver")
        forked.set_forkserver_preload([__name__])
        self._process = cast("BaseProcess", forked.Process(target=self._work, args=self._arguments, daemon=True))
        self._process.start()

    def kill(self) -> None:
        """Sends SIGKILL; raises AssertionError where the process had ended by itself."""
        assert self._process.exitcode is None, f"{self._work.__name__} has ended by itself"
        self._process.kill()
        self._process.join()
