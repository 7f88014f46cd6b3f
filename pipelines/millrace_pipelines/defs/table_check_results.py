"""The results of a table's checks: of what it has (records, files, skipped offsets, dead letters), and how it stands.

How it stands is its age, its distance from its topic, and whether it has the declared columns. None is blocking here:
where a load stands beside others, a blocking check would stop them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

import dagster as dg
import pyarrow.compute as pc

from millrace.fs import FileSystem
from millrace_pipelines.declaration.attributes import Check
from millrace_pipelines.defs.table_metadata import ESCAPED, MARKUP, rows_of, waiting_letters
from millrace_pipelines.warehouse.completeness.audit import LoadAudit
from millrace_pipelines.warehouse.completeness.stored_files import Stored
from millrace_pipelines.warehouse.errors import RegistryError, SchemaError
from millrace_pipelines.warehouse.formats import load_if_there
from millrace_pipelines.warehouse.ledger.ledger import ledger_of, skipped_location
from millrace_pipelines.warehouse.load.history import newest_load
from millrace_pipelines.warehouse.payload.schema import read_payload_schema
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.table import Table
from millrace_pipelines.warehouse.tables.open import payload_columns, wanted_columns

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


def findings_list(findings: Sequence[str]) -> dg.MetadataValue:
    """Returns findings as a list in Markdown, which shows them as they are; the word "none" where there are none."""
    if not findings:
        return dg.MetadataValue.text("none")
    return dg.MetadataValue.md("\n".join(f"- {MARKUP.sub(ESCAPED, finding)}" for finding in findings))


def number(value: int) -> dg.IntMetadataValue:
    """Returns a number as metadata that Dagster's UI draws over time."""
    return dg.MetadataValue.int(value)


def load_completeness(audited: LoadAudit) -> dg.AssetCheckResult:
    """Returns the result of the check that audits the newest load; failed where there is any finding."""
    metadata: dict[str, dg.MetadataValue] = {
        "offsets": number(audited.offsets),
        "rows": number(audited.rows),
        "dead letters": number(audited.dead_letters),
        "findings": number(len(audited.findings)),
        "details": findings_list(audited.findings),
    }
    if audited.version is not None:
        metadata["table version"] = number(audited.version)
    return dg.AssetCheckResult(
        check_name=Check.LOAD_COMPLETENESS.value,
        passed=not audited.findings,
        description=_load_says(audited),
        metadata=metadata,
    )


def completeness(findings: Sequence[str]) -> dg.AssetCheckResult:
    """Returns the result of the check that audits a whole table; failed where there is any finding."""
    return dg.AssetCheckResult(
        check_name=Check.COMPLETENESS.value,
        passed=not findings,
        description=_found(findings) if findings else "The table has each offset once.",
        metadata={"findings": number(len(findings)), "details": findings_list(findings)},
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


def stored_files(stored: Stored) -> dg.AssetCheckResult:
    """Returns the result of the check that reads some of a table's files; failed where bytes are damaged."""
    return dg.AssetCheckResult(
        check_name=Check.STORED_FILES.value,
        passed=not stored.findings,
        description=_files_say(stored),
        metadata={
            "files": number(stored.files),
            "bytes": number(stored.bytes),
            "files without a digest": number(stored.undigested),
            "findings": number(len(stored.findings)),
            "details": findings_list(stored.findings),
        },
    )


def _files_say(stored: Stored) -> str:
    if stored.findings:
        return f"{len(stored.findings)} places are damaged; the first is: {stored.findings[0]}."
    return f"The {stored.files} files of the day have the bytes that were written."


class Skipped(NamedTuple):
    """The number of skipped ranges of a table, their offsets, and the ranges whose end is unknown."""

    ranges: int = 0
    offsets: int = 0
    unknown: int = 0


def read_skipped(location: str, fs: FileSystem) -> Skipped:
    """Counts the ranges and offsets in the table of skipped ranges; raises WarehouseError where it can't be read."""
    table = load_if_there(skipped_location(location), fs)
    if table is None:
        return Skipped()
    rows = table.dataset().to_table(columns=["from_offset", "until_offset"])
    lengths = pc.subtract(rows.column("until_offset"), rows.column("from_offset"))
    return Skipped(rows.num_rows, pc.sum(lengths).as_py() or 0, lengths.null_count)


def skipped_offsets(skipped: Skipped, *, allowed: int = 0) -> dg.AssetCheckResult:
    """Returns a warning where more offsets were skipped than `allowed`; a range of unknown length counts as one."""
    offsets = skipped.offsets + skipped.unknown
    unknown = f", of which {skipped.unknown} end at an unknown offset" if skipped.unknown else ""
    return dg.AssetCheckResult(
        check_name=Check.SKIPPED_OFFSETS.value,
        passed=offsets <= allowed,
        description=f"The table goes on without {skipped.offsets} offsets in {skipped.ranges} ranges{unknown}; "
        f"{allowed} are allowed."
        if skipped.ranges
        else "No offset was skipped.",
        metadata={
            "skipped offsets": number(skipped.offsets),
            "skipped ranges": number(skipped.ranges),
            "ranges of unknown length": number(skipped.unknown),
            "allowed offsets": number(allowed),
        },
        severity=dg.AssetCheckSeverity.WARN,
    )


class LetterCounts(NamedTuple):
    """Rows and dead letters of the newest load; the table's rows, and its dead letters that no replay made rows of."""

    load_rows: int
    load_letters: int
    rows: int
    waiting: int


def count_letters(table: Table, fs: FileSystem) -> LetterCounts:
    """Counts rows and dead letters from the logs of the tables; raises WarehouseError where one can't be read."""
    load = newest_load(table)
    return LetterCounts(
        load_rows=0 if load is None else load.rows,
        load_letters=0 if load is None else load.dead_letters,
        rows=rows_of(table),
        waiting=waiting_letters(load_if_there(dead_letters_dir(table.address), fs)),
    )


def dead_letters(counts: LetterCounts, *, max_share: float = MAX_SHARE) -> dg.AssetCheckResult:
    """Returns a warning where the newest load, or the table, has a larger share of dead letters than is allowed."""
    of_load = share(counts.load_letters, counts.load_rows)
    of_table = share(counts.waiting, counts.rows)
    return dg.AssetCheckResult(
        check_name=Check.DEAD_LETTERS.value,
        passed=max(of_load, of_table) <= max_share,
        description=f"{counts.load_letters} of the {counts.load_rows + counts.load_letters} records of the newest load "
        f"are dead letters ({of_load:.2%}), and {counts.waiting} of all {counts.rows + counts.waiting} "
        f"({of_table:.2%}); up to {max_share:.2%} is allowed.",
        metadata={
            "dead letters of the load": number(counts.load_letters),
            "records of the load": number(counts.load_rows + counts.load_letters),
            "dead letters that wait": number(counts.waiting),
            "rows": number(counts.rows),
            "share of the load": dg.MetadataValue.float(of_load),
            "share of the table": dg.MetadataValue.float(of_table),
        },
        severity=dg.AssetCheckSeverity.WARN,
    )


def share(letters: int, rows: int) -> float:
    """Returns the share of letters among letters and rows; 0 where there are none."""
    return letters / (letters + rows) if letters else 0.0


NEWEST_RECORD = "max.timestamp"


class Newest(NamedTuple):
    """The times of the newest load's commit and of the newest record, in ms since 1970; None where unknown."""

    load_ms: int | None
    record_ms: int | None


def newest_of(table: Table) -> Newest:
    """Returns the times of the newest load and record in the table's log; a record's time is that of its producer."""
    load = newest_load(table)
    actions = table.add_actions()
    record = pc.max(actions.column(NEWEST_RECORD)).as_py() if NEWEST_RECORD in actions.column_names else None
    return Newest(
        load_ms=None if load is None else load.time_ms,
        record_ms=round(record.timestamp() * 1000) if isinstance(record, datetime) else None,
    )


def freshness(newest: Newest, now_ms: int, *, max_load_age: timedelta | None = None) -> dg.AssetCheckResult:
    """Returns a warning where the newest load is older than allowed, or unknown; without a bound it passes.

    A topic without new records has no new loads either: where it may be silent, a bound on lag says more.
    """
    ages = {"load": _age_s(newest.load_ms, now_ms), "record": _age_s(newest.record_ms, now_ms)}
    bound_s = None if max_load_age is None else round(max_load_age.total_seconds())
    metadata: dict[str, dg.MetadataValue] = {
        f"age of the newest {what} in seconds": number(age) for what, age in ages.items() if age is not None
    }
    return dg.AssetCheckResult(
        check_name=Check.FRESHNESS.value,
        passed=bound_s is None or (ages["load"] is not None and ages["load"] <= bound_s),
        description=f"{_age_says('load', ages['load'], bound_s)} {_age_says('record', ages['record'], None)}",
        metadata=metadata,
        severity=dg.AssetCheckSeverity.WARN,
    )


def _age_s(time_ms: int | None, now_ms: int) -> int | None:
    """Returns the age of a time in seconds, None where the time is None; 0 where a producer's clock was ahead."""
    return None if time_ms is None else max(0, now_ms - time_ms) // 1000


def _age_says(what: str, age_s: int | None, bound_s: int | None) -> str:
    allowed = "" if bound_s is None else f"; up to {bound_s} s is allowed"
    return f"The age of the newest {what} is {'unknown' if age_s is None else f'{age_s} s'}{allowed}."


def lag(by_partition: Mapping[int, int] | None, *, max_lag: int | None = None) -> dg.AssetCheckResult:
    """Returns a warning where the table lacks more records than are allowed; without a bound it passes.

    Args:
        by_partition: The lag in offsets by partition; None where the topic is gone or was created again, which
            fails the check.
        max_lag: How many records the table may lack in all.
    """
    if by_partition is None:
        says = "The topic does not exist, or was deleted and created again since the table was loaded."
        return dg.AssetCheckResult(check_name=Check.LAG.value, passed=False, description=says)
    lags = {partition: max(0, offsets) for partition, offsets in by_partition.items()}
    lacking = sum(lags.values())
    allowed = "" if max_lag is None else f"; {max_lag} are allowed"
    return dg.AssetCheckResult(
        check_name=Check.LAG.value,
        passed=max_lag is None or lacking <= max_lag,
        description=f"The table lacks {lacking} readable offsets of the topic{allowed}.",
        metadata={"lag": number(lacking), "partitions behind": number(sum(offsets > 0 for offsets in lags.values()))},
        severity=dg.AssetCheckSeverity.WARN,
    )


class Drift(NamedTuple):
    """The differences between a table and its declared schema.

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


def schema_drift(drift: Drift) -> dg.AssetCheckResult:
    """Returns a warning where the next load changes columns, and an error where it stops for the schema."""
    changes = [
        *(f"column {name} is added by the next load" for name in drift.added),
        *(f"column {name} is widened by the next load, which writes all files again" for name in drift.widened),
        *(f"column {name} is declared no longer; it stays, null in new rows" for name in drift.undeclared),
    ]
    return dg.AssetCheckResult(
        check_name=Check.SCHEMA_DRIFT.value,
        passed=drift.refused is None and not (drift.added or drift.widened),
        description=_drift_says(drift, changes),
        metadata={
            "columns to add": number(len(drift.added)),
            "columns to widen": number(len(drift.widened)),
            "columns declared no longer": number(len(drift.undeclared)),
            "changes": findings_list(changes),
        },
        severity=dg.AssetCheckSeverity.WARN if drift.refused is None else dg.AssetCheckSeverity.ERROR,
    )


def _drift_says(drift: Drift, changes: list[str]) -> str:
    if drift.refused is not None:
        return f"The next load stops: {drift.refused}"
    if drift.added or drift.widened:
        return f"The table's columns differ from the declared schema: {', '.join(changes)}."
    return "The table has the columns of its schema."
