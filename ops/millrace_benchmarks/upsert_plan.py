"""`python -m millrace_benchmarks.upsert_plan`: what an upsert into a table of any size costs on a cluster, on paper.

    table       files of so many rows, each with its index; which files and row groups the changes fall into
    pieces      one for each file: its index's blocks, then its touched row groups, then a vector or the file again
    schedule    pieces go to the executor's core that is free first, in the order of the files
    driver      its own steps, one after the other, and what it has in memory

Rates are those of one core of the machine on which `bench upsert` was measured (`Rates`), and a store that gives each
core so many bytes a second and answers after so long. Keys are random, and fall into files and row groups as balls
into boxes; or recent, and fall into the newest files.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

MEGABYTE = 1_000_000
ENTRY_BYTES = 12
BLOCK_BYTES = 4096 * ENTRY_BYTES
COORDINATE_BYTES = 60  # key, hash, partition, offset, timestamp, and where the record lies
PICKLED_BYTES = 45
LOGGED_BYTES = 1_500  # of a file in the driver: delta-rs's and Python's share
ANSWER_BYTES = 8  # of each key that met a row
ENVELOPE_SHARE = 0.45  # of a file's bytes: key, partition, offset and timestamp
VECTOR_BYTES = 2  # of each deleted row
KEPT_BYTES = 2  # of each row of a task's file with a vector: whether it stays, before and after


@dataclass(frozen=True, slots=True)
class Rates:
    """What one core does in a second, and how the store answers it."""

    found_rows: float = 28e6
    envelope_rows: float = 17e6
    written_rows: float = 0.45e6
    merged_rows: float = 0.9e6
    store_bytes: float = 50 * MEGABYTE
    store_delay: float = 0.03
    task_delay: float = 0.02
    logged_files: float = 100_000


@dataclass(frozen=True, slots=True)
class Case:
    """A table, a change and a cluster."""

    keys: int
    changes: int
    is_recent: bool = False
    by_vectors: bool = True
    executors: int = 100
    cores: int = 4
    file_rows: int = 5_000_000
    group_rows: int = 500_000
    row_bytes: int = 50

    @property
    def files(self) -> int:
        """How many files the table has."""
        return -(-self.keys // self.file_rows)


@dataclass(frozen=True, slots=True)
class Cost:
    """What an upsert takes: seconds in all, bytes read and written, files, and bytes of memory at the most."""

    seconds: float
    read_bytes: float
    written_bytes: float
    touched_files: int
    driver_bytes: float
    task_bytes: float


def hit_boxes(balls: float, boxes: int) -> float:
    """Returns into how many boxes balls fall that are thrown at random."""
    return boxes * -math.expm1(balls * math.log1p(-1 / boxes)) if boxes > 1 else min(boxes, balls)


def cost_of(case: Case, rates: Rates) -> Cost:
    """Returns what an upsert costs."""
    pieces = list(_pieces(case, rates))
    slots = case.executors * case.cores
    contest = makespan([seconds for seconds, *_ in pieces], slots)
    new_rows = case.changes / min(slots, max(case.changes // case.group_rows, 1))
    writing = new_rows / rates.written_rows + 2 * new_rows * case.row_bytes / rates.store_bytes
    merging = case.changes / rates.merged_rows + case.files / rates.logged_files
    sent = case.changes * PICKLED_BYTES / rates.store_bytes  # to each executor, by Spark's broadcast
    touched = sum(changed >= 1 for _, _, _, changed, _ in pieces)
    kept = any(is_marked for *_, is_marked in pieces) * case.file_rows * KEPT_BYTES
    return Cost(
        seconds=merging + sent + contest + writing,
        read_bytes=sum(read for _, read, *_ in pieces),
        written_bytes=sum(written for _, _, written, *_ in pieces) + case.changes * (case.row_bytes + ENTRY_BYTES),
        touched_files=touched,
        driver_bytes=case.changes * (2 * COORDINATE_BYTES + ANSWER_BYTES) + case.files * LOGGED_BYTES,
        task_bytes=case.changes * COORDINATE_BYTES + case.group_rows * case.row_bytes * 2 + BLOCK_BYTES * 256 * 2
        + case.file_rows * ENTRY_BYTES * (0 if case.by_vectors else 3) + kept,
    )  # fmt: skip


def _pieces(case: Case, rates: Rates) -> Iterator[tuple[float, float, float, float, bool]]:
    """Yields of each file: seconds, bytes read, bytes written, changed rows, and whether a vector deletes these."""
    recent = -(-case.changes // case.file_rows)
    for number in range(case.files):
        is_newest = number >= case.files - recent
        changed = case.changes / recent if is_newest else 0.0
        if not case.is_recent:
            changed = case.changes / case.files
        index_bytes = hit_boxes(case.changes, -(-case.file_rows * ENTRY_BYTES // BLOCK_BYTES)) * BLOCK_BYTES
        groups = hit_boxes(changed, -(-case.file_rows // case.group_rows))
        envelope = groups * case.group_rows
        read = index_bytes + envelope * case.row_bytes * ENVELOPE_SHARE
        seconds = rates.task_delay + index_bytes / ENTRY_BYTES / rates.found_rows + envelope / rates.envelope_rows
        written, again = _rest(case, changed)
        requests = 1 + 2 * (changed > 0)
        seconds += again / rates.written_rows + (read + again * case.row_bytes + written) / rates.store_bytes
        seconds += requests * rates.store_delay
        yield seconds, read + again * case.row_bytes, written, changed, written > 0 and not again


def _rest(case: Case, changed: float) -> tuple[float, float]:
    """Returns the bytes that are written of a file, and how many of its rows are written again."""
    if changed < 1 or changed >= case.file_rows:
        return 0.0, 0.0
    if case.by_vectors and changed <= case.file_rows / 2:
        return changed * VECTOR_BYTES, 0.0
    again = case.file_rows - changed
    return again * (case.row_bytes + ENTRY_BYTES), again


def makespan(seconds: Sequence[float], slots: int) -> float:
    """Returns when the last piece ends, where each goes to the slot that is free first."""
    free = [0.0] * slots
    for one in seconds:
        heapq.heapreplace(free, free[0] + one)
    return max(free)


def show(cases: Sequence[Case], rates: Rates) -> None:
    """Prints what each case costs."""
    table = Table(box=None)
    for column in ("keys", "changes", "files", "executors", "touched", "read", "written", "driver", "task", "time"):
        table.add_column(column, justify="right")
    for case in cases:
        cost = cost_of(case, rates)
        which = f"{case.changes / MEGABYTE:g} M {'recent' if case.is_recent else 'random'}"
        table.add_row(
            f"{case.keys / MEGABYTE:,.0f} M", which, "vectors" if case.by_vectors else "again",
            f"{case.executors} of {case.cores}", f"{cost.touched_files:,} of {case.files:,}",
            f"{cost.read_bytes / 1e9:,.1f} GB", f"{cost.written_bytes / 1e9:,.2f} GB",
            f"{cost.driver_bytes / 1e9:.2f} GB", f"{cost.task_bytes / 1e9:.2f} GB", f"{cost.seconds:,.0f} s",
        )  # fmt: skip
    console = Console()
    console.width = 150
    console.print(table)


CASES = (
    Case(10_000_000, 1_000_000, executors=1, cores=2),
    Case(100_000_000, 1_000_000, executors=1, cores=2),
    *(
        Case(10_000_000_000, changes, is_recent=is_recent, by_vectors=by_vectors)
        for changes in (10_000, 1_000_000, 10_000_000)
        for is_recent, by_vectors in ((False, True), (True, True), (False, False))
    ),
    Case(10_000_000_000, 1_000_000, executors=10),
)

if __name__ == "__main__":
    show(CASES, Rates())
