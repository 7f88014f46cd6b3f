"""The check that a table's files have the bytes that were written: a seventh of them each day, all in a week."""

from __future__ import annotations

import dagster as dg

from millrace_pipelines.declaration.checks import Check
from millrace_pipelines.defs.tables.checks.results import check_result, findings_list, number
from millrace_pipelines.warehouse.completeness.stored_files import Stored


def stored_files(stored: Stored, asset_key: dg.AssetKey | None = None) -> dg.AssetCheckResult:
    """Returns the result of the deep audit of some of a table's files."""
    return check_result(
        Check.STORED_FILES,
        passed=not stored.findings,
        says=_says(stored),
        metadata={
            "files": number(stored.files),
            "bytes": number(stored.bytes),
            "files without a digest": number(stored.undigested),
            "findings": number(len(stored.findings)),
            "details": findings_list(stored.findings),
        },
        asset_key=asset_key,
    )


def _says(stored: Stored) -> str:
    if stored.findings:
        return f"{len(stored.findings)} places are damaged; the first is: {stored.findings[0]}."
    return f"The {stored.files} files of the day have the bytes that were written."
