"""The check of offsets that the table goes on without, because someone accepted their loss."""

from __future__ import annotations

from typing import NamedTuple

import dagster as dg
import pyarrow.compute as pc

from millrace.fs import FileSystem
from millrace_pipelines.declaration.checks import Check
from millrace_pipelines.defs.tables.checks.results import check_result, number
from millrace_pipelines.warehouse.delta.table import load_if_there
from millrace_pipelines.warehouse.ledger.skipped import skipped_location


class Skipped(NamedTuple):
    """How many ranges a table goes on without, their offsets, and how many of the ranges end at an unknown offset."""

    ranges: int = 0
    offsets: int = 0
    unknown: int = 0


def read_skipped(location: str, fs: FileSystem) -> Skipped:
    """Counts what the table of skipped ranges beside a table has; raises WarehouseError where it can't be read."""
    table = load_if_there(skipped_location(location), fs)
    if table is None:
        return Skipped()
    rows = table.dataset().to_table(columns=["from_offset", "until_offset"])
    lengths = pc.subtract(rows.column("until_offset"), rows.column("from_offset"))
    return Skipped(rows.num_rows, pc.sum(lengths).as_py() or 0, lengths.null_count)


def skipped_offsets(skipped: Skipped, *, allowed: int = 0, asset_key: dg.AssetKey | None = None) -> dg.AssetCheckResult:
    """Returns a warning where more offsets were skipped than are allowed; an unknown number counts as one."""
    offsets = skipped.offsets + skipped.unknown
    unknown = f", of which {skipped.unknown} end at an unknown offset" if skipped.unknown else ""
    return check_result(
        Check.SKIPPED_OFFSETS,
        passed=offsets <= allowed,
        says=f"The table goes on without {skipped.offsets} offsets in {skipped.ranges} ranges{unknown}; "
        f"{allowed} are allowed."
        if skipped.ranges
        else "No offset was skipped.",
        metadata={
            "skipped offsets": number(skipped.offsets),
            "skipped ranges": number(skipped.ranges),
            "ranges of unknown length": number(skipped.unknown),
            "allowed offsets": number(allowed),
        },
        asset_key=asset_key,
        severity=dg.AssetCheckSeverity.WARN,
    )
