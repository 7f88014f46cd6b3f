"""Topics as they are declared: made where they are missing, and compared with what the cluster has by a check."""

# Without `from __future__ import annotations`: Dagster reads the annotations of steps and checks.

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import dagster as dg

from millrace.client import Admin, Cluster, Configs, ResourceKind
from millrace.errors import MillraceError, TopicExistsError
from millrace_pipelines.declaration.attributes import TableDeclaration
from millrace_pipelines.declaration.cluster import DeclaredCluster, DeclaredTable, marks_of
from millrace_pipelines.defs.maintenance import failures_in_words
from millrace_pipelines.defs.resources import resource_of

DEFAULT_COUNT = -1
logger = logging.getLogger(__name__)

AS_DECLARED = "as_declared"
CHECKS_AT_ONCE = 20


class Difference(NamedTuple):
    """A setting of a topic that is not as declared; `there` is its present value, None where the cluster has none."""

    setting: str
    declared: str
    there: str | None


def declared_settings(declared: TableDeclaration) -> dict[str, str]:
    """Returns a topic's declared settings as the cluster writes them: `true`, `604800000`."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in declared.config.items()
    }


class Creation(NamedTuple):
    """The topics that were created, and, by topic, why others could not be."""

    created: list[str]
    refused: dict[str, str]


def create_missing(cluster: Cluster, tables: Iterable[DeclaredTable], there: Iterable[str]) -> Creation:
    """Creates the topics that are declared by name and missing in the cluster; one that is refused stops no other."""
    known, created, refused = set(there), [], {}
    for table in tables:
        if table.declared.topic is None or table.topic in known:
            continue
        try:
            partitions = table.declared.partitions or DEFAULT_COUNT
            Admin(cluster).create_topic(table.topic, partitions, DEFAULT_COUNT, declared_settings(table.declared))
        except TopicExistsError:  # another client was faster, or a broker answered without its topics
            continue
        except MillraceError as error:
            refused[table.topic] = str(error)
        else:
            created.append(table.topic)
    return Creation(created, refused)


def differences(cluster: Cluster, table: DeclaredTable) -> list[Difference]:
    """Returns settings, and the number of partitions, that are not as declared; raises ClientError or TopicError."""
    found: list[Difference] = []
    wanted = table.declared.partitions
    partitions = len(cluster.metadata([table.topic]).topic(table.topic).partitions)
    if wanted is not None:
        found.append(Difference("partitions", str(wanted), str(partitions)))
    settings = declared_settings(table.declared)
    described = Configs(cluster).describe(ResourceKind.TOPIC, table.topic) if settings else []
    there = {one.name: one.value for one in described}
    found += [Difference(name, value, there.get(name)) for name, value in settings.items()]
    return [one for one in found if not is_same(one.declared, one.there)]


def is_same(declared: str, there: str | None) -> bool:
    """Returns whether a declared setting equals the cluster's; numbers such as 0.5 and 0.50 are equal."""
    if there is None or declared == there:
        return declared == there
    try:
        return float(declared) == float(there)
    except ValueError:
        return _listed(declared) == _listed(there)


def _listed(value: str) -> list[str]:
    return [part.strip() for part in value.split(",")]


def says(differing: list[Difference], settings: Mapping[str, str]) -> str:
    """Returns a sentence on how a topic differs from its declaration, or that it does not."""
    if differing:
        parts = "; ".join(
            f"{one.setting} is {one.there or 'unknown to the cluster'}, declared {one.declared}" for one in differing
        )
        return f"The topic is not as declared: {parts}."
    return f"The topic has its declared partitions and settings, of which there are {len(settings)}."


def checked_topics(cluster: DeclaredCluster) -> list[DeclaredTable]:
    """Returns the topics whose partitions or settings are declared."""
    return [table for table in cluster.tables if table.declared.partitions is not None or table.declared.config]


def topic_checks(cluster: DeclaredCluster) -> list[dg.AssetChecksDefinition]:
    """Returns the check, for each topic with declared partitions or settings, that the cluster has them so.

    Topics share a step as far as Dagster tells their names apart, in which it replaces `.` and `-` by `_`.
    """
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
        """Compares those topics with their declarations whose checks the run selects."""
        selected = {key.asset_key for key in context.selected_asset_check_keys}
        with failures_in_words(), resource_of(context, cluster).cluster() as client:
            for table in topics:
                if table.keys.topic in selected:
                    yield _result(client, table)

    return checks


def stale_checks(
    instance: dg.DagsterInstance, topics: Sequence[DeclaredTable], moved: AbstractSet[str]
) -> list[DeclaredTable]:
    """Returns those of the moved topics whose newest check Dagster would ignore once their new offsets are reported.

    Dagster lets a check count for what was reported after it only where both were reported by the same run, or both by
    none. At most CHECKS_AT_ONCE topics are returned.
    """
    keys = {dg.AssetCheckKey(table.keys.topic, AS_DECLARED): table for table in topics if table.topic in moved}
    known = instance.event_log_storage.get_latest_asset_check_execution_by_key([*keys])
    return [table for key, table in keys.items() if key not in known or known[key].run_id][:CHECKS_AT_ONCE]


def check_evaluations(cluster: Cluster, topics: Iterable[DeclaredTable]) -> Iterator[dg.AssetCheckEvaluation]:
    """Compares topics with their declarations and yields results without a run; logs topics that can't be read."""
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
    """Returns Dagster's selection of these topics' checks."""
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
