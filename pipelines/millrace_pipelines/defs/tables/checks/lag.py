"""The check of lag: how many readable records the topic has that the table lacks."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg

from millrace_pipelines.declaration.checks import Check
from millrace_pipelines.defs.tables.checks.results import check_result, number


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
