"""Compaction: many small files become few large ones with the same rows.

A file is small below three quarters of the target size; larger ones are left as they are. Small files are put into bins
of about the target size, in the order of their partitions and offsets, so that the bounds in the log stay narrow; a bin
with one file is left too. As many bins as there are cores are written at once and committed together, so that a crash
or a lost race costs no more than those. The ledger stays as it is, and readers of the table's changes see none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from millrace.clock import Clock
from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.warehouse.delta.data_file import DataFile
from millrace_pipelines.warehouse.delta.protocol import Access
from millrace_pipelines.warehouse.delta.rewrite import CurrentFile, Rewrite, current_files, read_rows, rewrite, writer
from millrace_pipelines.warehouse.delta.table import Table

DEFAULT_TARGET_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """What compaction did to one table; `version` is None where there was nothing to compact."""

    table: str
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0
    seconds: float = 0.0
    version: int | None = None


def plan_compaction(files: Iterable[CurrentFile], target_bytes: int) -> list[list[CurrentFile]]:
    """Puts small files with the same partition values into bins of about the target size, of two files at least."""
    bins: list[list[CurrentFile]] = []
    for file in sorted((file for file in files if file.size_bytes < target_bytes * 3 // 4), key=_place):
        if bins and bins[-1][0].partition_values == file.partition_values and _size(bins[-1], file) <= target_bytes:
            bins[-1].append(file)
        else:
            bins.append([file])
    return [files for files in bins if len(files) > 1]


def _size(files: Iterable[CurrentFile], one_more: CurrentFile) -> int:
    return sum(file.size_bytes for file in files) + one_more.size_bytes


def _place(file: CurrentFile) -> tuple[list[tuple[bool, str]], tuple[int, ...], tuple[int, ...], str]:
    """Returns the order of a file among others: by its folder, then by its first partition and offset."""
    folder = [(value is not None, value or "") for value in file.partition_values.values()]
    return folder, file.partitions or (0,), file.offsets or (0,), file.name


def compact(
    location: str, fs: FileSystem, clock: Clock, *, target_bytes: int = DEFAULT_TARGET_BYTES
) -> CompactionReport:
    """Compacts a table's small files.

    Raises:
        TableNotFoundError: There is no table at the location.
        TableRefusedError: The table uses something of Delta's protocol with which it can't be compacted.
        StaleLedgerError: Others rewrote the table at every attempt; what was committed before stays.
    """
    started_ms = clock.monotonic_ms()
    report = CompactionReport(table=location)
    written: set[str] = set()
    while True:
        wave = _Wave(fs, target_bytes, written)
        version = rewrite(location, fs, wave.make, Access.REARRANGE)
        if version is None:
            return report
        written |= {file.name for file in wave.after}
        report = replace(
            report,
            files_before=report.files_before + len(wave.before),
            files_after=report.files_after + len(wave.after),
            bytes_before=report.bytes_before + sum(file.size_bytes for file in wave.before),
            bytes_after=report.bytes_after + sum(file.size_bytes for file in wave.after),
            rows=report.rows + sum(file.rows for file in wave.after),
            seconds=(clock.monotonic_ms() - started_ms) / 1000,
            version=version,
        )


class _Wave:
    """As many bins as there are cores, compacted in one commit; files that this run has written are left."""

    def __init__(self, fs: FileSystem, target_bytes: int, written: AbstractSet[str]) -> None:
        self._fs = fs
        self._target_bytes = target_bytes
        self._written = written
        self.before: list[CurrentFile] = []
        self.after: list[DataFile] = []

    def make(self, table: Table, operation_id: str) -> Rewrite | None:
        """Writes the bins of this version."""
        files = [file for file in current_files(table) if file.name not in self._written]
        bins = plan_compaction(files, self._target_bytes)[: os.cpu_count()]
        if not bins:
            return None
        with ThreadPoolExecutor(len(bins)) as pool:
            merged = pool.map(partial(self._merge, table, operation_id), range(len(bins)), bins)
            self.after = [file for file in merged if file is not None]
        self.before = [file for files in bins for file in files]
        lineage = {"kind": "compact", "files_before": len(self.before), "files_after": len(self.after)}
        return Rewrite(added=self.after, removed=self.before, lineage=lineage, data_change=False)

    def _merge(self, table: Table, operation_id: str, number: int, files: Sequence[CurrentFile]) -> DataFile | None:
        with writer(table, operation_id, number, self._fs, files[0]) as output:
            for file in files:
                for rows in read_rows(table, file.name):
                    output.write(rows)
            merged = output.finish()
        if (0 if merged is None else merged.rows) != sum(file.rows for file in files):
            raise WarehouseError(f"{table.location}: {[file.name for file in files]} have not the rows the log says")
        return merged
