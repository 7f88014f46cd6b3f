"""How Dagster shows reports of many partitions: a row for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

import dagster as dg

Cell: TypeAlias = str | int | float | bool | None


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


def _cell(value: object) -> Cell:
    return len(value) if isinstance(value, list) else cast("Cell", value)
