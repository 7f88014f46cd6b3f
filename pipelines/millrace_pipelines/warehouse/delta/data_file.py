"""One Parquet file of a table, as it travels from the task that wrote it to the commit that names it.

`name` is the path below the table's folder, with `/` between; a table with partition columns has a folder for each
value (`carrier=AA/part-….parquet`), and the values themselves in `partition_values`, null for none.
`statistics` are Delta's per-file statistics without the number of rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol, TypeAlias, TypedDict, cast

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

from millrace.times import EPOCH
from millrace_pipelines.arrow import Field

Bound: TypeAlias = int | str

DIGEST = "crc32c"


class Statistics(TypedDict, total=False):
    """Delta's statistics of a file's columns, by their names."""

    minValues: dict[str, Bound]
    maxValues: dict[str, Bound]
    nullCount: dict[str, int]


class GroupStatistics(Protocol):
    """What Parquet's footer says of a column in one row group, as far as it is asked; bounds of numbers and times."""

    has_null_count: bool
    null_count: int
    has_min_max: bool
    num_values: int
    min_raw: int
    max_raw: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file of rows; offsets are inclusive, and `digest` is that of its bytes (`delta.digest`)."""

    name: str
    size_bytes: int
    rows: int
    min_offset: int
    max_offset: int
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    statistics: Statistics = field(default_factory=Statistics)
    digest: str | None = None

    def add_action(self, modified_ms: int, *, data_change: bool = True) -> AddAction:
        """Returns the action that adds the file; without `data_change` its rows are those of removed files."""
        statistics: dict[str, object] = {"numRecords": self.rows, **self.statistics}
        if self.digest is not None:
            statistics[DIGEST] = self.digest
        stats = json.dumps(statistics)
        return AddAction(self.name, self.size_bytes, self.partition_values, modified_ms, data_change, stats)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFile:
    """A file that a commit removes from the table; it stays on the disk until vacuum."""

    name: str
    size_bytes: int | None = None
    partition_values: Mapping[str, str | None] = field(default_factory=dict)

    def remove_action(self, now_ms: int, *, data_change: bool = True) -> RemoveAction:
        """Returns the action that removes the file."""
        return RemoveAction(self.name, data_change, now_ms, self.size_bytes, dict(self.partition_values))


def row_blocks(file: pq.ParquetFile, most_rows: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yields a file's rows in blocks of at most `most_rows`, each within a row group, whose memory bounds a block's."""
    for group in range(file.num_row_groups):
        yield from file.iter_batches(most_rows, row_groups=[group], columns=None if columns is None else list(columns))


def statistics_of(metadata: pq.FileMetaData, schema: pa.Schema) -> Statistics:
    """Returns Delta's statistics from those in the file's footer, of integers, dates and timestamps.

    Texts have none: the log keeps its statistics for ever, and a bound may be an erased key. Floating-point numbers
    have none: Parquet leaves NaN out of its bounds, readers of Delta hold it largest.
    """
    statistics = Statistics(minValues={}, maxValues={}, nullCount={})
    columns = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    for column in schema:
        if column.name in columns and _has_bounds(column.type):
            groups = [metadata.row_group(group).column(columns[column.name]).statistics
                      for group in range(metadata.num_row_groups)]  # fmt: skip
            _add(statistics, column, cast("Sequence[GroupStatistics | None]", groups))
    return statistics


def _has_bounds(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_temporal(kind)


def _add(statistics: Statistics, column: Field, found: Sequence[GroupStatistics | None]) -> None:
    groups = [group for group in found if group is not None and group.has_null_count]
    if not groups or len(groups) < len(found):
        return
    statistics["nullCount"][column.name] = sum(group.null_count for group in groups)
    bounded = [group for group in groups if group.has_min_max]
    if not bounded or any(not group.has_min_max and group.num_values for group in groups):
        return
    low = _shown(min(group.min_raw for group in bounded), column.type, is_upper=False)
    high = _shown(max(group.max_raw for group in bounded), column.type, is_upper=True)
    if low is not None and high is not None:
        statistics["minValues"][column.name] = low
        statistics["maxValues"][column.name] = high


def _shown(raw: int, kind: pa.DataType, *, is_upper: bool) -> Bound | None:
    """Returns a bound as Delta writes it; None where it can't be written."""
    if pa.types.is_timestamp(kind):
        return _moment(raw, is_upper=is_upper)
    if pa.types.is_date(kind):
        return _day(raw)
    return int(raw) if pa.types.is_integer(kind) else None


def _moment(microseconds: int, *, is_upper: bool) -> str | None:
    """Returns a bound in the milliseconds that Delta writes: a lower one rounded down, an upper one rounded up."""
    milliseconds = -(-microseconds // 1000) if is_upper else microseconds // 1000
    try:
        moment = EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _day(days: int) -> str | None:
    try:
        return (EPOCH + timedelta(days=days)).date().isoformat()
    except OverflowError:
        return None
