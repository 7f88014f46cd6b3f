"""The checks of how a table stands: its age, its distance from its topic, and whether it has the declared columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

import dagster as dg
import pyarrow.compute as pc

from millrace_pipelines.declaration.checks import Check
from millrace_pipelines.defs.table_content_checks import check_result, findings_list, number
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import RegistryError, SchemaError
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.load.history import newest_load
from millrace_pipelines.warehouse.payload.schema import read_payload_schema
from millrace_pipelines.warehouse.tables.evolve import payload_columns
from millrace_pipelines.warehouse.tables.open import wanted_columns

NEWEST_RECORD = "max.timestamp"


class Newest(NamedTuple):
    """When the newest load committed and when the newest record was made, in ms since 1970; None where unknown."""

    load_ms: int | None
    record_ms: int | None


def newest_of(table: Table) -> Newest:
    """Returns the newest load and record by the table's log, in which a record's time is that of its producer."""
    load = newest_load(table)
    actions = table.add_actions()
    record = pc.max(actions.column(NEWEST_RECORD)).as_py() if NEWEST_RECORD in actions.column_names else None
    return Newest(
        load_ms=None if load is None else load.time_ms,
        record_ms=round(record.timestamp() * 1000) if isinstance(record, datetime) else None,
    )


def freshness(
    newest: Newest,
    now_ms: int,
    *,
    max_load_age_s: int | None = None,
    max_record_age_s: int | None = None,
    asset_key: dg.AssetKey | None = None,
) -> dg.AssetCheckResult:
    """Returns a warning where the newest load or record is older than allowed, or unknown; without bounds it passes.

    A topic without new records has no new loads either: where it may be silent, a bound on lag says more.
    """
    ages = {"load": _age_s(newest.load_ms, now_ms), "record": _age_s(newest.record_ms, now_ms)}
    bounds = {"load": max_load_age_s, "record": max_record_age_s}
    metadata: dict[str, dg.MetadataValue] = {
        f"age of the newest {what} in seconds": number(age) for what, age in ages.items() if age is not None
    }
    return check_result(
        Check.FRESHNESS,
        passed=all(_is_fresh(ages[what], bound) for what, bound in bounds.items()),
        says=" ".join(_age_says(what, age, bounds[what]) for what, age in ages.items()),
        metadata=metadata,
        asset_key=asset_key,
        severity=dg.AssetCheckSeverity.WARN,
    )


def _age_s(time_ms: int | None, now_ms: int) -> int | None:
    """Returns the age of a moment in seconds; 0 for one that a producer's clock put into the future."""
    return None if time_ms is None else max(0, now_ms - time_ms) // 1000


def _is_fresh(age_s: int | None, bound_s: int | None) -> bool:
    return bound_s is None or (age_s is not None and age_s <= bound_s)


def _age_says(what: str, age_s: int | None, bound_s: int | None) -> str:
    allowed = "" if bound_s is None else f"; up to {bound_s} s is allowed"
    return f"The age of the newest {what} is {'unknown' if age_s is None else f'{age_s} s'}{allowed}."


def lag(
    by_partition: Mapping[int, int] | None, *, max_lag: int | None = None, asset_key: dg.AssetKey | None = None
) -> dg.AssetCheckResult:
    """Returns a warning where the table lacks more records than are allowed; without a bound it passes.

    Args:
        by_partition: What the table lacks of each partition; None where the topic is gone or was created again, which
            fails the check.
        max_lag: How many records the table may lack in all.
        asset_key: The table's asset.
    """
    if by_partition is None:
        says = "The topic does not exist, or was deleted and created again since the table was loaded."
        return check_result(Check.LAG, passed=False, says=says, metadata={}, asset_key=asset_key)
    lags = {partition: max(0, offsets) for partition, offsets in by_partition.items()}
    lacking = sum(lags.values())
    allowed = "" if max_lag is None else f"; {max_lag} are allowed"
    return check_result(
        Check.LAG,
        passed=max_lag is None or lacking <= max_lag,
        says=f"The table lacks {lacking} readable offsets of the topic{allowed}.",
        metadata={"lag": number(lacking), "partitions behind": number(sum(offsets > 0 for offsets in lags.values()))},
        asset_key=asset_key,
        severity=dg.AssetCheckSeverity.WARN,
    )


class Drift(NamedTuple):
    """How a table differs from its declared schema.

    Attributes:
        added: The columns that the next load adds.
        widened: The columns that the next load widens.
        undeclared: The columns that the table has and the schema has no longer; they stay, null in new rows.
        refused: Why the next load stops, None where it does not.
    """

    added: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    undeclared: tuple[str, ...] = ()
    refused: str | None = None


def drift_of(table: Table, schema_file: str | None, columns: Mapping[str, str] = MappingProxyType({})) -> Drift:
    """Returns how a table differs from the schema in a file; without a file, loads keep the table's own schema.

    Raises:
        RegistryError: The schema registry can't be asked.
    """
    if schema_file is None:
        return Drift()
    try:
        schema = read_payload_schema(schema_file, columns)
        evolution = wanted_columns(schema, table, ledger_of(table).topic).evolution
    except RegistryError:
        raise
    except SchemaError as error:
        return Drift(refused=str(error))
    declared = {*schema.arrow.names}
    undeclared = [name for name in payload_columns(table).names if declared and name not in declared]
    return Drift(evolution.added, evolution.widened, tuple(undeclared))


def schema_drift(drift: Drift, asset_key: dg.AssetKey | None = None) -> dg.AssetCheckResult:
    """Returns a warning where the next load changes columns, and an error where it stops for the schema."""
    changes = [
        *(f"column {name} is added by the next load" for name in drift.added),
        *(f"column {name} is widened by the next load, which writes all files again" for name in drift.widened),
        *(f"column {name} is declared no longer; it stays, null in new rows" for name in drift.undeclared),
    ]
    return check_result(
        Check.SCHEMA_DRIFT,
        passed=drift.refused is None and not (drift.added or drift.widened),
        says=_drift_says(drift, changes),
        metadata={
            "columns to add": number(len(drift.added)),
            "columns to widen": number(len(drift.widened)),
            "columns declared no longer": number(len(drift.undeclared)),
            "changes": findings_list(changes),
        },
        asset_key=asset_key,
        severity=dg.AssetCheckSeverity.WARN if drift.refused is None else dg.AssetCheckSeverity.ERROR,
    )


def _drift_says(drift: Drift, changes: list[str]) -> str:
    if drift.refused is not None:
        return f"The next load stops: {drift.refused}"
    if drift.added or drift.widened:
        return f"The table's columns differ from the declared schema: {', '.join(changes)}."
    return "The table has the columns of its schema."
