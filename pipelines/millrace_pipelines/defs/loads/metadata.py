"""What Dagster shows of a load or a reload beside what its table and its commit say (`defs.tables.metadata`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TypeAlias

import dagster as dg

from millrace_pipelines.defs.maintenance import label, report_table
from millrace_pipelines.runs.jobs import Report
from millrace_pipelines.warehouse.ledger.plan import LostRange
from millrace_pipelines.warehouse.load.report import LoadReport

Shown: TypeAlias = dict[str, int | float | str | dg.MetadataValue]


def report_metadata(report: Report) -> Shown:
    """Returns what a materialization shows that only the report knows."""
    spans = (
        {"offsets": report.ranges}
        if isinstance(report, LoadReport)
        else {"replaced": report.replaced, "backfilled": report.backfilled}
    )
    shown: Shown = {
        **_counted(report),
        "seconds": round(report.seconds, 3),
        **{name: _table([asdict(span) for span in of]) for name, of in spans.items()},
        "lost_offsets": _table([span._asdict() for span in _lost(report)]),
        "table": dg.MetadataValue.path(report.table),
    }
    return {label(name): value for name, value in shown.items()}


def nothing_new_metadata(report: Report) -> Shown:
    """Returns what is shown where nothing was committed."""
    lag: Shown = {"lag": sum(report.lag.values())} if isinstance(report, LoadReport) else {}
    return {"loaded": "nothing new", **lag, "table": dg.MetadataValue.path(report.table)}


def _lost(report: Report) -> tuple[LostRange, ...]:
    return report.skipped if isinstance(report, LoadReport) else report.lost


def _counted(report: Report) -> dict[str, int]:
    if isinstance(report, LoadReport):
        return {"value_bytes": report.value_bytes, "lag": sum(report.lag.values())}
    return {"removed_rows": report.removed_rows}


def _table(rows: Sequence[Mapping[str, object]]) -> dg.TableMetadataValue | str:
    return report_table(rows) if rows else "none"
