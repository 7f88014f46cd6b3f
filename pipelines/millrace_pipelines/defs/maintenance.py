"""What the assets of maintenance share: their run configuration, their failures, and how reports are shown.

A dry run is recorded as an observation, so that no materialization claims what was not done. Its figures have other
names ("segments to delete"), since Dagster draws those of one name as one line.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias, cast

import dagster as dg
from pydantic import Field

from millrace.errors import MillraceError

Cell: TypeAlias = str | int | float | bool | None
SHOWN_ROWS = 1_000


class MaintenanceConfig(dg.Config):
    """What a run of maintenance is to look after.

    Attributes:
        topics: Names of topics, and patterns as in a shell, such as `logs-*`; none for all topics.
        dry_run: Whether the run reports what would be done and changes nothing.
    """

    topics: list[str] = Field(default=[], description="Names of topics, or patterns such as logs-*; none: all topics.")
    dry_run: bool = Field(default=False, description="Report what would be done, and change nothing.")


def maintenance_group(cluster: str) -> str:
    """Returns the name of Dagster's group of the assets that look after a cluster."""
    return f"{cluster}_maintenance"


@contextmanager
def failures_in_words() -> Iterator[None]:
    """Turns an error of Millrace into a failure of the step with the same message; only a retriable one is retried."""
    try:
        yield
    except MillraceError as error:
        raise dg.Failure(str(error), allow_retries=error.retriable) from error


def partition_metadata(reports: Sequence[Mapping[str, object]], size: str) -> dict[str, dg.RawMetadataValue]:
    """Returns tables of what was done by partition and by segment: at most 1,000 rows each, the largest.

    `size` is the field of a partition's report that has its size. Beside each table stands how many rows it leaves out.
    """
    segments = [
        {"topic": report["topic"], "partition": report["partition"], **segment}
        for report in reports
        for segment in cast("list[dict[str, object]]", report["by_segment"])
    ]
    return {**_largest("partitions", reports, size), **_largest("segments by size", segments, "size_bytes")}


def report_table(partitions: Sequence[Mapping[str, object]]) -> dg.TableMetadataValue:
    """Shows reports as a table of the UI, in which a list, such as findings, is shown as its length."""
    fields = list(partitions[0]) if partitions else []
    return dg.MetadataValue.table(
        records=[dg.TableRecord({label(field): _cell(report[field]) for field in fields}) for report in partitions],
        schema=dg.TableSchema(columns=[dg.TableColumn(label(field)) for field in fields]),
    )


def label(field: str) -> str:
    """Returns a field's name as people read it."""
    return field.replace("_", " ")


def _largest(name: str, rows: Sequence[Mapping[str, object]], size: str) -> dict[str, dg.RawMetadataValue]:
    shown = heapq.nlargest(SHOWN_ROWS, rows, key=lambda row: cast("int", row[size]))
    return {name: report_table(shown), f"{name}, left out": len(rows) - len(shown)}


def _cell(value: object) -> Cell:
    return len(value) if isinstance(value, list) else cast("Cell", value)
