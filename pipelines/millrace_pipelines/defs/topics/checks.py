"""The check of declared topics: whether the cluster has them with the partitions and settings that are declared."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import dagster as dg

from millrace.client import Cluster
from millrace.errors import MillraceError
from millrace_pipelines.declaration.cluster import DeclaredCluster, DeclaredTable
from millrace_pipelines.declaration.keys import marks_of
from millrace_pipelines.defs.maintenance import failures_in_words
from millrace_pipelines.defs.resources import resource_of
from millrace_pipelines.defs.topics.declared import declared_settings, differences, says

logger = logging.getLogger(__name__)

AS_DECLARED = "as_declared"
CHECKS_AT_ONCE = 20


def checked_topics(cluster: DeclaredCluster) -> list[DeclaredTable]:
    """Returns the topics whose partitions or settings are declared."""
    return [table for table in cluster.tables if table.declared.partitions is not None or table.declared.config]


def topic_checks(cluster: DeclaredCluster) -> list[dg.AssetChecksDefinition]:
    """Returns the check of each of these topics, in few steps; Dagster tells the names of a step's topics apart."""
    by_marks: dict[str, list[DeclaredTable]] = {}
    for table in checked_topics(cluster):
        by_marks.setdefault(marks_of(table.topic), []).append(table)
    return [_checks(cluster.name, marks, topics) for marks, topics in by_marks.items()]


def _checks(cluster: str, marks: str, topics: Sequence[DeclaredTable]) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=f"{cluster}_topic_checks" + (f"__{marks}" if marks else ""),
        specs=[
            dg.AssetCheckSpec(
                AS_DECLARED, asset=table.keys.topic, description="The topic has its declared partitions and settings."
            )
            for table in topics
        ],
        can_subset=True,
        required_resource_keys={cluster},
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        """Compares the topics whose checks are selected."""
        selected = {key.asset_key for key in context.selected_asset_check_keys}
        with failures_in_words(), resource_of(context, cluster).cluster() as client:
            for table in topics:
                if table.keys.topic in selected:
                    yield _result(client, table)

    return checks


def stale_checks(
    instance: dg.DagsterInstance, topics: Sequence[DeclaredTable], moved: AbstractSet[str]
) -> list[DeclaredTable]:
    """Returns some of the moved topics whose newest check would no longer count once their offsets are reported.

    Dagster lets a check count for what was reported after it only where both were reported by the same run, or both by
    none. They are at most CHECKS_AT_ONCE.
    """
    keys = {dg.AssetCheckKey(table.keys.topic, AS_DECLARED): table for table in topics if table.topic in moved}
    known = instance.event_log_storage.get_latest_asset_check_execution_by_key([*keys])
    return [table for key, table in keys.items() if key not in known or known[key].run_id][:CHECKS_AT_ONCE]


def check_evaluations(cluster: Cluster, topics: Iterable[DeclaredTable]) -> Iterator[dg.AssetCheckEvaluation]:
    """Yields the results of checks without a run; one that can't be made now is left to the next look."""
    for table in topics:
        try:
            result = _result(cluster, table)
        except MillraceError as error:
            logger.warning("topic %s can't be compared: %s", table.topic, error)
            continue
        yield dg.AssetCheckEvaluation(
            asset_key=table.keys.topic,
            check_name=AS_DECLARED,
            passed=result.passed,
            metadata=result.metadata,
            severity=result.severity,
            description=result.description,
        )


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
