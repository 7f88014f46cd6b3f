"""The check of freshness: how old the newest load is, and the newest record."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import dagster as dg
import pyarrow.compute as pc

from millrace_pipelines.declaration.checks import Check
from millrace_pipelines.defs.tables.checks.results import check_result, number
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.load.history import newest_load

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
        says=" ".join(_says(what, age, bounds[what]) for what, age in ages.items()),
        metadata=metadata,
        asset_key=asset_key,
        severity=dg.AssetCheckSeverity.WARN,
    )


def _age_s(time_ms: int | None, now_ms: int) -> int | None:
    """Returns the age of a moment in seconds; 0 for one that a producer's clock put into the future."""
    return None if time_ms is None else max(0, now_ms - time_ms) // 1000


def _is_fresh(age_s: int | None, bound_s: int | None) -> bool:
    return bound_s is None or (age_s is not None and age_s <= bound_s)


def _says(what: str, age_s: int | None, bound_s: int | None) -> str:
    allowed = "" if bound_s is None else f"; up to {bound_s} s is allowed"
    return f"The age of the newest {what} is {'unknown' if age_s is None else f'{age_s} s'}{allowed}."
