"""The checks of a warehouse table. They read the table itself and ask the topic, not what Dagster remembers.

After each load, all but one look at what it added, in time that does not grow with the table; the job `audit` reads
whole tables every night.
"""

from collections.abc import Iterator

import dagster as dg

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.defs.loads.assets import warehouse_table
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.tables.checks.evaluate import CheckedTable, check_specs, evaluate
from millrace_pipelines.defs.tables.checks.results import Check
from millrace_pipelines.defs.topics.partitions import topics_partitions


@dg.multi_asset_check(specs=check_specs(warehouse_table.key, topics_partitions), can_subset=True)
def table_checks(context: dg.AssetCheckExecutionContext, millrace: MillraceResource) -> Iterator[dg.AssetCheckResult]:
    """Looks at the table of one topic."""
    name = context.partition_key
    checked = CheckedTable(
        location=millrace.table_dir(name),
        bootstrap=millrace.bootstrap,
        schema_file=millrace.schema_file(name),
        asset_key=warehouse_table.key,
    )
    selected = {key.name for key in context.selected_asset_check_keys}
    yield from evaluate(
        checked, [check for check in Check if check in selected], SystemClock().now_ms(), OsFileSystem()
    )


def selection_of(*checks: Check) -> dg.AssetSelection:
    """Returns the selection of some of the checks."""
    return dg.AssetSelection.checks(*(dg.AssetCheckKey(warehouse_table.key, check.value) for check in checks))
