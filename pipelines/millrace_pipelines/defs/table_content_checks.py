"""The checks of what a table has: records, files, skipped offsets, dead letters; and how results are made.

Where one function gives the results of several assets (`dg.multi_asset_check`), `asset_key` tells them apart.
None is blocking here: where a load stands beside others, a blocking check would stop them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import dagster as dg
import pyarrow.compute as pc

from millrace.fs import FileSystem
from millrace_pipelines.declaration.checks import Check
from millrace_pipelines.defs.table_metadata import rows_of, waiting_letters
from millrace_pipelines.defs.table_preview import ESCAPED, MARKUP
from millrace_pipelines.warehouse.completeness.newest_load import LoadAudit
from millrace_pipelines.warehouse.completeness.stored_files import Stored
from millrace_pipelines.warehouse.delta.location import dead_letters_dir
from millrace_pipelines.warehouse.delta.table import Table, load_if_there
from millrace_pipelines.warehouse.ledger.skipped import skipped_location
from millrace_pipelines.warehouse.load.history import newest_load

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
MAX_SHARE = 0.01


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
        says=_load_says(audited),
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


def _load_says(audited: LoadAudit) -> str:
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


def stored_files(stored: Stored, asset_key: dg.AssetKey | None = None) -> dg.AssetCheckResult:
    """Returns the result of the deep audit of some of a table's files."""
    return check_result(
        Check.STORED_FILES,
        passed=not stored.findings,
        says=_files_say(stored),
        metadata={
            "files": number(stored.files),
            "bytes": number(stored.bytes),
            "files without a digest": number(stored.undigested),
            "findings": number(len(stored.findings)),
            "details": findings_list(stored.findings),
        },
        asset_key=asset_key,
    )


def _files_say(stored: Stored) -> str:
    if stored.findings:
        return f"{len(stored.findings)} places are damaged; the first is: {stored.findings[0]}."
    return f"The {stored.files} files of the day have the bytes that were written."


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


class LetterCounts(NamedTuple):
    """Rows and dead letters of the newest load, and of the table: there, letters that no replay made rows of."""

    load_rows: int
    load_letters: int
    rows: int
    waiting: int


def count_letters(table: Table, fs: FileSystem) -> LetterCounts:
    """Counts by the tables' logs; raises WarehouseError where one can't be read."""
    load = newest_load(table)
    return LetterCounts(
        load_rows=0 if load is None else load.rows,
        load_letters=0 if load is None else load.dead_letters,
        rows=rows_of(table),
        waiting=waiting_letters(load_if_there(dead_letters_dir(table.location), fs)),
    )


def dead_letters(
    counts: LetterCounts, *, max_share: float = MAX_SHARE, asset_key: dg.AssetKey | None = None
) -> dg.AssetCheckResult:
    """Returns a warning where the newest load, or the table, has a larger share of dead letters than is allowed."""
    of_load = share(counts.load_letters, counts.load_rows)
    of_table = share(counts.waiting, counts.rows)
    return check_result(
        Check.DEAD_LETTERS,
        passed=max(of_load, of_table) <= max_share,
        says=f"{counts.load_letters} of the {counts.load_rows + counts.load_letters} records of the newest load are "
        f"dead letters ({of_load:.2%}), and {counts.waiting} of all {counts.rows + counts.waiting} ({of_table:.2%}); "
        f"up to {max_share:.2%} is allowed.",
        metadata={
            "dead letters of the load": number(counts.load_letters),
            "records of the load": number(counts.load_rows + counts.load_letters),
            "dead letters that wait": number(counts.waiting),
            "rows": number(counts.rows),
            "share of the load": dg.MetadataValue.float(of_load),
            "share of the table": dg.MetadataValue.float(of_table),
        },
        asset_key=asset_key,
        severity=dg.AssetCheckSeverity.WARN,
    )


def share(letters: int, rows: int) -> float:
    """Returns the share of letters among letters and rows; 0 where there are none."""
    return letters / (letters + rows) if letters else 0.0
