"""The checks of tables: what each looks at, the bounds that a declaration gives, and when they are made.

They read the tables and ask the brokers, and rely on nothing that Dagster keeps. After each load, all but two look at
what it added, in time that does not grow with the table; every night, one reads whole tables, and one the bytes of a
seventh of their files. They are a step of their own: where a blocking check of a load fails, the other tables are
loaded anyway, the run fails, and assets downstream that wait for blocking checks stay as they are.

A table that no load has created yet passes them. A table that can't be read fails those that read it, in words.
"""

# Without `from __future__ import annotations`: Dagster reads the annotations of steps and checks.

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace

import dagster as dg

from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.dagster_internals import AssetCheckEvaluationTargetMaterializationData
from millrace_pipelines.declaration.attributes import Check, TableDeclaration
from millrace_pipelines.declaration.cluster import RAW, DeclaredCluster, DeclaredTable, step_key
from millrace_pipelines.defs.maintenance import failures_in_words
from millrace_pipelines.defs.resources import MillraceResource, resource_of
from millrace_pipelines.defs.table_check_results import (
    DESCRIPTIONS,
    completeness,
    count_letters,
    dead_letters,
    drift_of,
    freshness,
    lag,
    load_completeness,
    newest_of,
    read_skipped,
    schema_drift,
    skipped_offsets,
    stored_files,
)
from millrace_pipelines.machine import CLOCK, DISK
from millrace_pipelines.warehouse.completeness.audit import audit, audit_newest_load
from millrace_pipelines.warehouse.completeness.stored_files import audit_stored_files, portion
from millrace_pipelines.warehouse.errors import RegistryError, TableNotFoundError
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.tables.find import lag_of
from millrace_pipelines.warehouse.tasks import THREADS, Tasks

AT_NIGHT = (Check.COMPLETENESS, Check.STORED_FILES)
AFTER_EACH_LOAD = tuple(check for check in Check if check not in AT_NIGHT)


DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTable:
    """A table as its checks need it: where it lies, where its topic is, and what is declared of it.

    Attributes:
        location: The table's location.
        bootstrap: HOST:PORT of a broker of its topic's cluster.
        client_config: The file with Kafka's client properties of security for that connection, or env:NAME.
        schema_file: The path of its declared schema, None where it has none.
        declared: What is declared of the table, such as its bounds.
        asset_key: The key of the table's asset.
        tasks: Where its files are read, for the checks that read all of them.
    """

    location: str
    bootstrap: str
    client_config: str | None = None
    schema_file: str | None = None
    declared: TableDeclaration = RAW
    asset_key: dg.AssetKey | None = None
    tasks: Tasks = THREADS


def check_specs(asset: dg.AssetKey, blocking: Collection[Check] = ()) -> list[dg.AssetCheckSpec]:
    """Returns the specifications of all checks of a table's asset; those in `blocking` hold assets downstream back."""
    return [
        dg.AssetCheckSpec(check.value, asset=asset, description=description, blocking=check in blocking)
        for check, description in DESCRIPTIONS.items()
    ]


def evaluate(
    checked: CheckedTable, checks: Iterable[Check], now_ms: int, fs: FileSystem
) -> Iterator[dg.AssetCheckResult]:
    """Yields the result of each of the given checks, in the given order.

    Raises:
        ClientError: The cluster can't be asked.
        RegistryError: The schema registry can't be asked.
    """
    for check in checks:
        yield _result(check, checked, now_ms, fs)._replace(asset_key=checked.asset_key)


def _result(check: Check, checked: CheckedTable, now_ms: int, fs: FileSystem) -> dg.AssetCheckResult:
    try:
        return EVALUATIONS[check](checked, now_ms, fs)
    except TableNotFoundError:
        passed, says = True, "No load has created the table yet."
    except RegistryError:
        raise
    except WarehouseError as error:
        passed, says = False, f"The table can't be read: {error}."
    return dg.AssetCheckResult(check_name=check.value, passed=passed, description=says)


EVALUATIONS: Mapping[Check, Callable[[CheckedTable, int, FileSystem], dg.AssetCheckResult]] = {
    Check.LOAD_COMPLETENESS: lambda checked, _, fs: load_completeness(
        audit_newest_load(checked.location, bootstrap=checked.bootstrap, client_config=checked.client_config, fs=fs)
    ),
    Check.COMPLETENESS: lambda checked, _, fs: completeness(
        audit(
            checked.location,
            bootstrap=checked.bootstrap,
            client_config=checked.client_config,
            fs=fs,
            tasks=checked.tasks,
        )
    ),
    Check.STORED_FILES: lambda checked, now_ms, fs: stored_files(
        audit_stored_files(checked.location, portion(now_ms // DAY_MS), fs, tasks=checked.tasks)
    ),
    Check.SKIPPED_OFFSETS: lambda checked, _, fs: skipped_offsets(
        read_skipped(checked.location, fs), allowed=checked.declared.max_skipped_offsets
    ),
    Check.DEAD_LETTERS: lambda checked, _, fs: dead_letters(
        count_letters(load_table(checked.location, fs), fs), max_share=checked.declared.max_dead_letter_share
    ),
    Check.FRESHNESS: lambda checked, now_ms, fs: freshness(
        newest_of(load_table(checked.location, fs)), now_ms, max_load_age=checked.declared.freshness
    ),
    Check.LAG: lambda checked, _, fs: lag(
        lag_of(ledger_of(load_table(checked.location, fs)), checked.bootstrap, checked.client_config),
        max_lag=checked.declared.lag_bound,
    ),
    Check.SCHEMA_DRIFT: lambda checked, _, fs: schema_drift(
        drift_of(load_table(checked.location, fs), checked.schema_file, checked.declared.columns)
    ),
}
"""What each check looks at; they are told the time in milliseconds since 1970, and the disk."""


def table_checks(cluster: DeclaredCluster) -> list[dg.AssetChecksDefinition]:
    """Returns the checks of all tables, a step for each: Dagster's time grows with the square of a step's checks."""
    return [_checks_of_table(cluster.name, table) for table in cluster.loaded]


def _checks_of_table(cluster: str, table: DeclaredTable) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=f"{step_key(table.keys.table).to_python_identifier()}__checks",
        specs=check_specs(table.keys.table, table.declared.blocking_checks),
        can_subset=True,
        required_resource_keys={cluster},
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        """Runs those checks of a table that the run selects."""
        selected = {key.name for key in context.selected_asset_check_keys}
        wanted = [check for check in Check if check.value in selected]
        with failures_in_words():
            millrace = resource_of(context, cluster)
            checked = checked_table(table, millrace)
            here = millrace.tasks(f"audit {checked.location}") if {*AT_NIGHT} & {*wanted} else nullcontext(THREADS)
            with here as tasks:
                yield from evaluate(replace(checked, tasks=tasks), wanted, CLOCK.now_ms(), DISK)

    return checks


def report_checks(
    context: dg.AssetExecutionContext, millrace: MillraceResource, tables: Iterable[DeclaredTable]
) -> None:
    """Runs the checks that follow a load, and reports the results to the instance as events that belong to no step.

    Dagster skips the steps of checks where the step of the loads has failed, also those of tables that were loaded.
    """
    for table in tables:
        target = newest_materialization(context.instance, table.keys.table)
        for evaluation in check_evaluations(table, millrace, AFTER_EACH_LOAD, target):
            context.instance.report_runless_asset_event(evaluation)


def newest_materialization(
    instance: dg.DagsterInstance, asset_key: dg.AssetKey
) -> AssetCheckEvaluationTargetMaterializationData | None:
    """Returns the asset's newest materialization, for a check made now to refer to; None where there is none.

    Without it, Dagster compares times, which SQLite keeps in whole seconds: a check made in the same second as the
    materialization would count as older.
    """
    for newest in instance.fetch_materializations(asset_key, limit=1).records:
        return AssetCheckEvaluationTargetMaterializationData(
            storage_id=newest.storage_id, run_id=newest.run_id, timestamp=newest.timestamp
        )
    return None


def check_evaluations(
    table: DeclaredTable,
    millrace: MillraceResource,
    checks: Iterable[Check],
    target: AssetCheckEvaluationTargetMaterializationData | None = None,
) -> Iterator[dg.AssetCheckEvaluation]:
    """Runs the given checks of a table and yields the results as Dagster events; raises ClientError or RegistryError.

    `target` is the materialization that they refer to; None for that of the same run.
    """
    for result in evaluate(checked_table(table, millrace), checks, CLOCK.now_ms(), DISK):
        yield dg.AssetCheckEvaluation(
            asset_key=table.keys.table,
            check_name=str(result.check_name),
            passed=result.passed,
            metadata=result.metadata,
            severity=result.severity,
            description=result.description,
            blocking=result.check_name in table.declared.blocking_checks,
            target_materialization_data=target,
        )


def checked_table(table: DeclaredTable, millrace: MillraceResource) -> CheckedTable:
    """Returns a declared table as its checks need it."""
    return CheckedTable(
        location=millrace.table_dir(table.location or table.topic),
        bootstrap=millrace.bootstrap,
        client_config=millrace.client_config or None,
        schema_file=table.schema or millrace.schema_file(table.topic),
        declared=table.declared,
        asset_key=table.keys.table,
    )


def checks_of(tables: Iterable[DeclaredTable], *checks: Check) -> dg.AssetSelection:
    """Returns Dagster's selection of the given checks of the given tables."""
    return dg.AssetSelection.checks(
        *(dg.AssetCheckKey(table.keys.table, check.value) for table in tables for check in checks)
    )
