"""The check of declared topics: whether the cluster has them with the partitions and settings that are declared."""

from collections.abc import Iterator, Sequence

import dagster as dg

from millrace.client import Cluster
from millrace.errors import MillraceError
from millrace_pipelines.declaration.cluster import DeclaredCluster, DeclaredTable
from millrace_pipelines.defs.maintenance import failures_in_words
from millrace_pipelines.defs.resources import resource_of
from millrace_pipelines.defs.topics.declared import declared_settings, differences, says

AS_DECLARED = "as_declared"


def checked_topics(cluster: DeclaredCluster) -> list[DeclaredTable]:
    """Returns the topics whose partitions or settings are declared."""
    return [table for table in cluster.tables if table.declared.partitions is not None or table.declared.config]


def topic_checks(cluster: DeclaredCluster) -> list[dg.AssetChecksDefinition]:
    """Returns the check of each of these topics, none where there are none."""
    topics = checked_topics(cluster)
    if not topics:
        return []

    @dg.multi_asset_check(
        name=f"{cluster.name}_topic_checks",
        specs=[
            dg.AssetCheckSpec(
                AS_DECLARED, asset=table.keys.topic, description="The topic has its declared partitions and settings."
            )
            for table in topics
        ],
        can_subset=True,
        required_resource_keys={cluster.name},
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        """Compares the topics whose checks are selected."""
        selected = {key.asset_key for key in context.selected_asset_check_keys}
        with failures_in_words(), resource_of(context, cluster.name).cluster() as client:
            for table in topics:
                if table.keys.topic in selected:
                    yield _result(client, table)

    return [checks]


def topics_as_declared(topics: Sequence[DeclaredTable]) -> dg.AssetSelection:
    """Returns the selection of these checks."""
    return dg.AssetSelection.checks(*(dg.AssetCheckKey(table.keys.topic, AS_DECLARED) for table in topics))


def _result(cluster: Cluster, table: DeclaredTable) -> dg.AssetCheckResult:
    try:
        found = differences(cluster, table)
    except MillraceError as error:
        if error.retriable:
            raise
        return _said(table, f"The topic can't be compared: {error}.", passed=False)
    return _said(table, says(found, declared_settings(table.declared)), passed=not found)


def _said(table: DeclaredTable, sentence: str, *, passed: bool) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        passed=passed,
        asset_key=table.keys.topic,
        check_name=AS_DECLARED,
        severity=dg.AssetCheckSeverity.WARN,
        description=sentence,
    )
