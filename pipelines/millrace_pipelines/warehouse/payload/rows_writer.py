"""The data files of one task's rows: one file, or for a table with event time at least one for each partition.

Rows wait in memory until their partition has a row group's worth. Memory and open files are bounded: where the rows of
all partitions take more than MAX_PENDING_BYTES, the largest partition is written and its file closed, and no more than
MAX_OPEN_FILES are open at once. A partition whose file was closed gets another one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from millrace_pipelines.arrow import Places
from millrace_pipelines.warehouse.delta.data_file import DataFile
from millrace_pipelines.warehouse.delta.files import DataFileWriter

MAX_PENDING_BYTES = 128 << 20
MAX_OPEN_FILES = 16

OpenFile = Callable[[int | None], DataFileWriter]


class RowsWriter:
    """Writes rows to the files of their partitions.

    As a context manager, it removes unfinished files where an error is raised inside.

    Args:
        open_file: Makes the writer of a partition, given in spans of event time; None is the table without event time.
    """

    def __init__(self, open_file: OpenFile) -> None:
        self._open_file = open_file
        self._writers: dict[int | None, DataFileWriter] = {}
        self._finished: list[DataFileWriter] = []
        self._files: list[DataFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in (*self._finished, *self._writers.values()):
            writer.__exit__(kind, error, trace)

    def write(self, rows: pa.Table, spans: Places | None) -> None:
        """Adds rows, with their partitions where the table has any."""
        if spans is None or rows.num_rows == 0:
            self._write(None, rows)
            return
        order = np.argsort(spans, kind="stable")
        ordered, sorted_spans = rows.take(pa.array(order, pa.int64())), spans[order]
        found, firsts = np.unique(sorted_spans, return_index=True)
        for span, first, after in zip(found.tolist(), firsts, [*firsts[1:], len(order)], strict=True):
            self._write(span, ordered.slice(first, after - first))

    def _write(self, span: int | None, rows: pa.Table) -> None:
        if rows.num_rows == 0:
            return
        if span not in self._writers:
            self._writers[span] = self._open_file(span)
        self._writers[span].write(rows)
        while self._pending_bytes > MAX_PENDING_BYTES and len(self._writers) > 1:
            self._finish(max(self._writers, key=lambda one: self._writers[one].pending_bytes))
        open_files = [one for one, writer in self._writers.items() if writer.is_open]
        for one in open_files[:-MAX_OPEN_FILES]:
            self._finish(one)

    @property
    def _pending_bytes(self) -> int:
        return sum(writer.pending_bytes for writer in self._writers.values())

    def _finish(self, span: int | None) -> None:
        writer = self._writers.pop(span)
        self._finished.append(writer)
        if (file := writer.finish()) is not None:
            self._files.append(file)

    def finish(self) -> tuple[DataFile, ...]:
        """Closes and syncs all files, and returns them."""
        for span in list(self._writers):
            self._finish(span)
        return tuple(self._files)
