"""The checks that each record is in the table once: of what the newest load added, and of the whole table."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from millrace_pipelines.declaration.checks import Check
from millrace_pipelines.defs.tables.checks.results import check_result, findings_list, number
from millrace_pipelines.warehouse.completeness.newest_load import LoadAudit


def load_completeness(audited: LoadAudit, asset_key: dg.AssetKey | None = None) -> dg.AssetCheckResult:
    """Returns the result of the audit of the newest load."""
    metadata: dict[str, dg.MetadataValue] = {
        "offsets": number(audited.offsets),
        "rows": number(audited.rows),
        "dead letters": number(audited.dead_letters),
        "findings": number(len(audited.findings)),
        "details": findings_list(audited.findings),
    }
    if audited.version is not None:
        metadata["table version"] = number(audited.version)
    return check_result(
        Check.LOAD_COMPLETENESS,
        passed=not audited.findings,
        says=_says(audited),
        metadata=metadata,
        asset_key=asset_key,
    )


def completeness(findings: Sequence[str], asset_key: dg.AssetKey | None = None) -> dg.AssetCheckResult:
    """Returns the result of the audit of a whole table."""
    return check_result(
        Check.COMPLETENESS,
        passed=not findings,
        says=_found(findings) if findings else "The table has each offset once.",
        metadata={"findings": number(len(findings)), "details": findings_list(findings)},
        asset_key=asset_key,
    )


def _says(audited: LoadAudit) -> str:
    if audited.findings:
        return _found(audited.findings)
    if audited.version is None:
        return "The newest commits of the table have no load to audit."
    if not audited.is_counted:
        return (
            f"The load's own account of its {audited.offsets} offsets adds up and ends where the ledger does; its rows "
            "were not counted, which the audit of the whole table does."
        )
    return (
        f"The {audited.offsets} offsets of the newest load are {audited.rows} rows, {audited.dead_letters} dead "
        f"letters and {audited.offsets - audited.rows - audited.dead_letters} offsets without a record, each once."
    )


def _found(findings: Sequence[str]) -> str:
    if len(findings) == 1:
        return f"The audit has one finding: {findings[0]}."
    return f"The audit has {len(findings)} findings; the first is: {findings[0]}."
