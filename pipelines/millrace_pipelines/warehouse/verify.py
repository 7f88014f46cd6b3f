"""What the tasks answered, held against the plan before anything is committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millrace_pipelines.warehouse.errors import LoadFailedError
from millrace_pipelines.warehouse.plan import OffsetRange
from millrace_pipelines.warehouse.task import TaskResult


@dataclass(frozen=True, slots=True)
class LoadedRange:
    """One partition's part of a load: rows + dead_letters + absent == until_offset - from_offset.

    `absent` counts offsets at which the log holds no record: transaction markers and compacted ones.
    """

    partition: int
    from_offset: int
    until_offset: int
    rows: int
    dead_letters: int
    absent: int


def verify_results(ranges: Sequence[OffsetRange], results: Sequence[TaskResult]) -> list[LoadedRange]:
    """The loaded ranges by partition; LoadFailedError where tasks miss an offset, overlap or miscount."""
    return [_verify_range(span, [result for result in results if result.range.partition == span.partition])
            for span in ranges]  # fmt: skip


def _verify_range(span: OffsetRange, results: Sequence[TaskResult]) -> LoadedRange:
    position = span.from_offset
    for result in sorted(results, key=lambda result: result.range.from_offset):
        if result.range.from_offset != position:
            raise LoadFailedError(f"partition {span.partition}: tasks do not meet at offset {position}")
        _verify_counts(result)
        position = result.range.until_offset
    if position != span.until_offset:
        raise LoadFailedError(f"partition {span.partition}: tasks end at {position}, not at {span.until_offset}")
    rows, dead_letters = sum(map(_rows, results)), sum(result.dead_letters for result in results)
    return LoadedRange(*span, rows, dead_letters, span.offsets - rows - dead_letters)


def _verify_counts(result: TaskResult) -> None:
    span, file = result.range, result.rows_file
    if _rows(result) + result.dead_letters != result.records or result.records > span.offsets:
        raise LoadFailedError(
            f"partition {span.partition}, offsets {span.from_offset}-{span.until_offset - 1}: {result.records} records "
            f"were read, {_rows(result)} rows and {result.dead_letters} dead letters came of them"
        )
    if file is not None and not span.from_offset <= file.min_offset <= file.max_offset < span.until_offset:
        raise LoadFailedError(f"{file.name} has offsets outside {span.from_offset}-{span.until_offset - 1}")


def _rows(result: TaskResult) -> int:
    return 0 if result.rows_file is None else result.rows_file.rows
