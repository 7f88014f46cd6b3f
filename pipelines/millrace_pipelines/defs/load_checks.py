"""The checks of a cluster's tables. They read the tables and ask the brokers, and rely on nothing that Dagster keeps.

After each load, all but two look at what it added, in time that does not grow with the table; every night, one reads
whole tables, and one the bytes of a seventh of their files. They are a step of their own: where a blocking check of a
load fails, the other tables are loaded anyway, the run fails, and assets downstream that wait for blocking checks stay
as they are.
"""

from collections.abc import Iterable, Iterator

import dagster as dg

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.dagster_internals.ticks_and_checks import AssetCheckEvaluationTargetMaterializationData
from millrace_pipelines.declaration.checks import Check
from millrace_pipelines.declaration.cluster import DeclaredCluster, DeclaredTable
from millrace_pipelines.declaration.keys import step_key
from millrace_pipelines.defs.maintenance import failures_in_words
from millrace_pipelines.defs.resources import MillraceResource, resource_of
from millrace_pipelines.defs.table_checks import AFTER_EACH_LOAD, Bounds, CheckedTable, check_specs, evaluate


def table_checks(cluster: DeclaredCluster) -> list[dg.AssetChecksDefinition]:
    """Returns the checks of all tables, in a step for each: Dagster's time grows with the square of a step's checks."""
    return [_checks_of_table(cluster.name, table) for table in cluster.loaded]


def _checks_of_table(cluster: str, table: DeclaredTable) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=f"{step_key(table.keys.table).to_python_identifier()}__checks",
        specs=check_specs(table.keys.table, table.declared.blocking_checks),
        can_subset=True,
        required_resource_keys={cluster},
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        """Makes the selected checks of a table."""
        selected = {key.name for key in context.selected_asset_check_keys}
        wanted = [check for check in Check if check.value in selected]
        with failures_in_words():
            checked = checked_table(table, resource_of(context, cluster))
            yield from evaluate(checked, wanted, SystemClock().now_ms(), OsFileSystem())

    return checks


def report_checks(
    context: dg.AssetExecutionContext, millrace: MillraceResource, tables: Iterable[DeclaredTable]
) -> None:
    """Makes the checks that follow a load, and reports them without a step.

    Dagster skips the steps of checks where the step of the loads has failed, also those of tables that were loaded.
    """
    for table in tables:
        target = newest_materialization(context.instance, table.keys.table)
        for evaluation in check_evaluations(table, millrace, AFTER_EACH_LOAD, target):
            context.instance.report_runless_asset_event(evaluation)


def newest_materialization(
    instance: dg.DagsterInstance, asset_key: dg.AssetKey
) -> AssetCheckEvaluationTargetMaterializationData | None:
    """Returns the materialization that a check made now belongs to.

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
    """Makes checks of a table and yields their results as events; raises what `evaluate` raises.

    Without `target` they belong to the materialization of the same run.
    """
    for result in evaluate(checked_table(table, millrace), checks, SystemClock().now_ms(), OsFileSystem()):
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
    """Returns a table as its checks see it, with the bounds that it declares."""
    declared = table.declared
    return CheckedTable(
        location=millrace.table_dir(table.location or table.topic),
        bootstrap=millrace.bootstrap,
        client_config=millrace.client_config or None,
        schema_file=table.schema or millrace.schema_file(table.topic),
        columns=declared.columns,
        bounds=Bounds(
            skipped_offsets=declared.max_skipped_offsets,
            dead_letter_share=declared.max_dead_letter_share,
            load_age_s=None if declared.freshness is None else round(declared.freshness.total_seconds()),
            lag=declared.lag_bound,
        ),
        asset_key=table.keys.table,
    )


def checks_of(tables: Iterable[DeclaredTable], *checks: Check) -> dg.AssetSelection:
    """Returns the selection of some checks of tables."""
    return dg.AssetSelection.checks(
        *(dg.AssetCheckKey(table.keys.table, check.value) for table in tables for check in checks)
    )
