"""The check that each record is in the table once. It reads the table itself, not what Dagster remembers."""

import dagster as dg

from millrace_pipelines.defs.loads.assets import warehouse_table
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.topics.partitions import topics_partitions
from millrace_pipelines.warehouse.completeness.audit import audit


@dg.asset_check(
    asset=warehouse_table,
    partitions_def=topics_partitions,
    description="Offsets are contiguous across loads, and the table has as many rows as the ledger's offset ranges.",
)
def completeness(context: dg.AssetCheckExecutionContext, millrace: MillraceResource) -> dg.AssetCheckResult:
    """Audits the table of one topic."""
    table = millrace.table_dir(context.partition_key)
    return completeness_result(table, audit(table))


def completeness_result(table: str, findings: list[str]) -> dg.AssetCheckResult:
    """Returns a result that passes without findings, and else has a line for each."""
    return dg.AssetCheckResult(
        passed=not findings,
        description="complete: each offset once" if not findings else f"{len(findings)} findings",
        metadata={
            "table": dg.MetadataValue.path(table),
            "findings": dg.MetadataValue.md("\n".join(f"- {finding}" for finding in findings) or "none"),
        },
    )
