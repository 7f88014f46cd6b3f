"""All checks of one table: what each looks at, and the bounds that a declaration gives.

A table that no load has created yet passes them. A table that can't be read fails those that read it, in words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import dagster as dg

from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.declaration.checks import Check
from millrace_pipelines.defs.table_content_checks import (
    DESCRIPTIONS,
    MAX_SHARE,
    check_result,
    completeness,
    count_letters,
    dead_letters,
    load_completeness,
    read_skipped,
    skipped_offsets,
    stored_files,
)
from millrace_pipelines.defs.table_state_checks import drift_of, freshness, lag, newest_of, schema_drift
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.completeness.newest_load import audit_newest_load
from millrace_pipelines.warehouse.completeness.stored_files import audit_stored_files, portion
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import RegistryError, TableNotFoundError
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.tables.find import lag_of

AT_NIGHT = (Check.COMPLETENESS, Check.STORED_FILES)
AFTER_EACH_LOAD = tuple(check for check in Check if check not in AT_NIGHT)


DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a table's declaration allows; None for no bound.

    Attributes:
        skipped_offsets: How many offsets the table may go on without.
        dead_letter_share: The largest share of records that are dead letters.
        load_age_s: The age of the newest load, in seconds.
        record_age_s: The age of the newest record, in seconds.
        lag: How many readable records the table may lack.
    """

    skipped_offsets: int = 0
    dead_letter_share: float = MAX_SHARE
    load_age_s: int | None = None
    record_age_s: int | None = None
    lag: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTable:
    """A table as its checks see it.

    Attributes:
        location: The table's location.
        bootstrap: HOST:PORT of a broker of its topic's cluster.
        client_config: The file that secures the connection to it.
        schema_file: The path of its declared schema, None where it has none.
        columns: The names of columns that are declared beside that file.
        bounds: What is allowed.
        asset_key: The table's asset, where results are told apart by it.
    """

    location: str
    bootstrap: str
    client_config: str | None = None
    schema_file: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=Bounds)
    asset_key: dg.AssetKey | None = None


def check_specs(asset: dg.AssetKey, blocking: Collection[Check] = ()) -> list[dg.AssetCheckSpec]:
    """Returns the declarations of all checks of a table's asset, some of which assets downstream wait for."""
    return [
        dg.AssetCheckSpec(check.value, asset=asset, description=description, blocking=check in blocking)
        for check, description in DESCRIPTIONS.items()
    ]


def evaluate(
    checked: CheckedTable, checks: Iterable[Check], now_ms: int, fs: FileSystem
) -> Iterator[dg.AssetCheckResult]:
    """Yields the result of each check, in their order.

    Raises:
        ClientError: The cluster can't be asked.
        RegistryError: The schema registry can't be asked.
    """
    for check in checks:
        try:
            yield EVALUATIONS[check](checked, now_ms, fs)
        except TableNotFoundError:
            yield _said(check, checked, "No load has created the table yet.", passed=True)
        except RegistryError:
            raise
        except WarehouseError as error:
            yield _said(check, checked, f"The table can't be read: {error}.", passed=False)


def _said(check: Check, checked: CheckedTable, says: str, *, passed: bool) -> dg.AssetCheckResult:
    return check_result(check, passed=passed, says=says, metadata={}, asset_key=checked.asset_key)


def _load_completeness(checked: CheckedTable, _: int, fs: FileSystem) -> dg.AssetCheckResult:
    audited = audit_newest_load(
        checked.location, bootstrap=checked.bootstrap, client_config=checked.client_config, fs=fs
    )
    return load_completeness(audited, checked.asset_key)


def _completeness(checked: CheckedTable, _: int, fs: FileSystem) -> dg.AssetCheckResult:
    found = audit(checked.location, bootstrap=checked.bootstrap, client_config=checked.client_config, fs=fs)
    return completeness(found, checked.asset_key)


def _stored_files(checked: CheckedTable, now_ms: int, fs: FileSystem) -> dg.AssetCheckResult:
    return stored_files(audit_stored_files(checked.location, portion(now_ms // DAY_MS), fs), checked.asset_key)


def _skipped_offsets(checked: CheckedTable, _: int, fs: FileSystem) -> dg.AssetCheckResult:
    skipped = read_skipped(checked.location, fs)
    return skipped_offsets(skipped, allowed=checked.bounds.skipped_offsets, asset_key=checked.asset_key)


def _dead_letters(checked: CheckedTable, _: int, fs: FileSystem) -> dg.AssetCheckResult:
    counts = count_letters(Table.load(checked.location, fs), fs)
    return dead_letters(counts, max_share=checked.bounds.dead_letter_share, asset_key=checked.asset_key)


def _freshness(checked: CheckedTable, now_ms: int, fs: FileSystem) -> dg.AssetCheckResult:
    return freshness(
        newest_of(Table.load(checked.location, fs)),
        now_ms,
        max_load_age_s=checked.bounds.load_age_s,
        max_record_age_s=checked.bounds.record_age_s,
        asset_key=checked.asset_key,
    )


def _lag(checked: CheckedTable, _: int, fs: FileSystem) -> dg.AssetCheckResult:
    lacking = lag_of(ledger_of(Table.load(checked.location, fs)), checked.bootstrap, checked.client_config)
    return lag(lacking, max_lag=checked.bounds.lag, asset_key=checked.asset_key)


def _schema_drift(checked: CheckedTable, _: int, fs: FileSystem) -> dg.AssetCheckResult:
    drift = drift_of(Table.load(checked.location, fs), checked.schema_file, checked.columns)
    return schema_drift(drift, checked.asset_key)


EVALUATIONS: Mapping[Check, Callable[[CheckedTable, int, FileSystem], dg.AssetCheckResult]] = {
    Check.LOAD_COMPLETENESS: _load_completeness,
    Check.COMPLETENESS: _completeness,
    Check.STORED_FILES: _stored_files,
    Check.SKIPPED_OFFSETS: _skipped_offsets,
    Check.DEAD_LETTERS: _dead_letters,
    Check.FRESHNESS: _freshness,
    Check.LAG: _lag,
    Check.SCHEMA_DRIFT: _schema_drift,
}
