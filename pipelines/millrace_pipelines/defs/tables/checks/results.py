"""The checks of a table: their names, what each says, and how a result is made.

Where one function gives the results of several assets (`dg.multi_asset_check`), `asset_key` tells them apart.
None is blocking here: where a load stands beside others, a blocking check would stop them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg

from millrace_pipelines.declaration.checks import Check
from millrace_pipelines.defs.tables.preview import ESCAPED, MARKUP

DESCRIPTIONS: Mapping[Check, str] = {
    Check.LOAD_COMPLETENESS: "The newest load made a row or a dead letter of each record of its offsets, once.",
    Check.COMPLETENESS: "The table has each offset that its ledger claims, once, and its topic is still the same.",
    Check.STORED_FILES: "The day's seventh of the table's files have the bytes that were written.",
    Check.SKIPPED_OFFSETS: "No more offsets were skipped than are allowed.",
    Check.DEAD_LETTERS: "The share of records that could not be typed is within its bound.",
    Check.FRESHNESS: "The newest load, or the newest record, is not older than its bound.",
    Check.LAG: "The table lacks no more readable records of the topic than are allowed.",
    Check.SCHEMA_DRIFT: "The table has the columns that its declared schema asks for.",
}


def check_result(
    check: Check,
    *,
    passed: bool,
    says: str,
    metadata: Mapping[str, dg.MetadataValue],
    asset_key: dg.AssetKey | None = None,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetCheckResult:
    """Returns a result whose description is a sentence."""
    return dg.AssetCheckResult(
        passed=passed,
        asset_key=asset_key,
        check_name=check.value,
        severity=severity,
        description=says,
        metadata=metadata,
    )


def findings_list(findings: Sequence[str]) -> dg.MetadataValue:
    """Returns findings as a list in Markdown, which shows them as they are; the word "none" where there are none."""
    if not findings:
        return dg.MetadataValue.text("none")
    return dg.MetadataValue.md("\n".join(f"- {MARKUP.sub(ESCAPED, finding)}" for finding in findings))


def number(value: int) -> dg.IntMetadataValue:
    """Returns a number that the UI draws over time."""
    return dg.MetadataValue.int(value)
