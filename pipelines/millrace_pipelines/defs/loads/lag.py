"""Which lags a look reports: those of tables that lag, and of tables that have just caught up.

The cursor keeps the lags above zero alone; a table that is up to date costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from millrace_pipelines.defs.cursors import pack_cursor, unpack_cursor
from millrace_pipelines.defs.ticks import counted


class LagReport(NamedTuple):
    """The lags that are reported by this look, and those above zero, which the next look compares; both by topic."""

    observed: dict[str, int]
    seen: dict[str, int]


def lag_report(seen: Mapping[str, int], lags: Mapping[str, int | None]) -> LagReport:
    """Returns what a look reports of tables; one whose lag is None, as it can't be told, stays as it was seen."""
    told = {name: lag for name, lag in lags.items() if lag is not None}
    unknown = {name: seen[name] for name, lag in lags.items() if lag is None and name in seen}
    return LagReport(
        observed={name: lag for name, lag in told.items() if lag or name in seen},
        seen={name: lag for name, lag in told.items() if lag} | unknown,
    )


def lag_summary(lags: Mapping[str, int | None]) -> str:
    """Returns what a look found, in one line: "12 tables, 2 behind"."""
    behind = sum(1 for lag in lags.values() if lag)
    unknown = sum(1 for lag in lags.values() if lag is None)
    said = f"{counted(len(lags), 'table')}, {behind or 'none'} behind"
    return f"{said}, {unknown} whose load has an error to report" if unknown else said


def lag_cursor(seen: Mapping[str, int]) -> str:
    """Returns the cursor that `lags_of` reads."""
    return pack_cursor(dict(seen))


def lags_of(cursor: str | None) -> dict[str, int]:
    """Returns the lags that a cursor keeps; none where it has another form."""
    value = unpack_cursor(cursor)
    return {name: lag for name, lag in value.items() if isinstance(lag, int)} if isinstance(value, dict) else {}
