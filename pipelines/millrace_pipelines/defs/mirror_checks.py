"""The checks of mirrored topics, by content: of what was mirrored since the last check, and of all, on demand.

    mirror_completeness    a bounded number of offsets of each partition, those that came since it last passed
    completeness           all that both sides have, record by record

A check that fails begins at the same place when it is made again, so that no difference is passed over. A topic that
has stopped fails the first one with its sentence.
"""

# Without `from __future__ import annotations`: Dagster reads the annotations of steps and checks.

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import dagster as dg

from millrace_pipelines.declaration.cluster import DeclaredCluster, DeclaredMirror, step_key
from millrace_pipelines.defs.maintenance import Metadata, failures_in_words
from millrace_pipelines.defs.mirror_assets import settings_of, stop_reasons, topic_key
from millrace_pipelines.defs.resources import MillraceResource, resource_of
from millrace_pipelines.defs.table_check_results import findings_list
from millrace_pipelines.mirror.audit import MirrorAudit, MirroredTopic, PartitionAudit
from millrace_pipelines.mirror.lags import TopicLag, mirrored_topics
from millrace_pipelines.mirror.newest_audit import NewestAudit
from millrace_pipelines.mirror.settings import Source, Way
from millrace_pipelines.mirror.states import State, TopicState

NEWEST = "mirror_completeness"
WHOLE = "completeness"
DESCRIPTIONS = {
    NEWEST: "The target has what the source had, record by record, of what was mirrored since the last check.",
    WHOLE: "The target has what the source has, record by record, in all that both have.",
}
CHECKED = "compared up to"
TOPIC_ID = "source topic id"
SHOWN = 10  # differences of a partition
HISTORY = 50  # results that are looked at for where a check goes on


class Begin(NamedTuple):
    """Where a check begins: the source's offsets of the partitions, and the topic's id to which they belong."""

    topic_id: str
    offsets: Mapping[int, int]


NO_BEGIN = Begin("", {})


def mirror_checks(cluster: DeclaredCluster) -> list[dg.AssetChecksDefinition]:
    """Returns the checks of the mirrored topics, a step for each."""
    mirror = cluster.mirror
    return [] if mirror is None else [_checks(cluster, mirror, topic) for topic in sorted(mirror.topics)]


def mirror_selection(cluster: DeclaredCluster, mirror: DeclaredMirror, check: str) -> dg.AssetSelection:
    """Returns Dagster's selection of one check of all mirrored topics."""
    return dg.AssetSelection.checks(*(dg.AssetCheckKey(topic_key(cluster, one), check) for one in mirror.topics))


def _checks(cluster: DeclaredCluster, mirror: DeclaredMirror, topic: str) -> dg.AssetChecksDefinition:
    key = topic_key(cluster, topic)

    @dg.multi_asset_check(
        name=f"{step_key(key).to_python_identifier()}__checks",
        specs=[dg.AssetCheckSpec(name, asset=key, description=says) for name, says in DESCRIPTIONS.items()],
        can_subset=True,
        required_resource_keys={cluster.name},
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        """Compares the topic with its source, as far as the run's checks say."""
        selected = {one.name for one in context.selected_asset_check_keys}
        millrace = resource_of(context, cluster.name)
        for name in sorted(DESCRIPTIONS.keys() & selected):
            begin = last_begin(context.instance, dg.AssetCheckKey(key, name)) if name == NEWEST else None
            with failures_in_words():
                yield compare(mirror, millrace, topic, begin)._replace(asset_key=key, check_name=name)

    return checks


def compare(mirror: DeclaredMirror, millrace: MillraceResource, topic: str, begin: Begin | None) -> dg.AssetCheckResult:
    """Returns the result of comparing a topic with its source: all of it, or what came since `begin`.

    Raises ClientError where a cluster does not answer.
    """
    settings = settings_of(mirror, millrace)
    state = mirrored_topics(settings).get(topic)
    if state is None:
        return dg.AssetCheckResult(passed=False, description=f"{topic} is mirrored no more.")
    if begin is not None and state.state is State.STOPPED:
        return _stopped(state, begin)
    since = begin.offsets if begin is not None and begin.topic_id == (state.source_topic_id or "") else {}
    source = next(one for one in settings.sources if one.name == state.source)
    with source.cluster() as there, settings.target.cluster() as here:
        if begin is None:
            reports = list(MirrorAudit(there, here, source.name).audit([_mirrored(state)]))
        else:
            newest = NewestAudit(
                source=there, target=here, mirror=source.name, limit=mirror.declared.max_checked_records
            )
            reports = list(newest.audit(_mirrored(state), since))
    return result(source, state, reports, since, mirror.declared.max_checked_records)


def _mirrored(state: TopicState) -> MirroredTopic:
    return MirroredTopic(
        source=state.topic, target=state.target_topic, follows=state.way is Way.FOLLOW, starts=state.starts
    )


def _stopped(state: TopicState, begin: Begin) -> dg.AssetCheckResult:
    reasons = stop_reasons(TopicLag(state=state, lag=None))
    return dg.AssetCheckResult(
        passed=False, description="; ".join(reasons), metadata=_kept(begin.topic_id, begin.offsets)
    )


def result(
    source: Source, state: TopicState, reports: Iterable[PartitionAudit], since: Mapping[int, int], limit: int
) -> dg.AssetCheckResult:
    """Returns the result that reports on a topic's partitions mean.

    `since` is where the comparison was to begin, and `limit` how many offsets of a partition it compared at most.
    """
    reports = list(reports)
    place = f"{source.name}/{state.topic}"
    findings = [f"{place}-{one.partition}: {found}" for one in reports for found in one.differences[:SHOWN]]
    count, records = sum(one.count for one in reports), sum(one.records for one in reports)
    ends = {one.partition: one.source.end for one in reports}
    bounded = [one for one in reports if one.source.end - one.source.begin == limit]
    left_out = sum(max(one.source.begin - since.get(one.partition, 0), 0) for one in bounded)
    says = f"{records:,} records are the same on both sides." if not count else f"{count:,} differences."
    return dg.AssetCheckResult(
        passed=not count,
        description=says,
        metadata={
            "records": records,
            "differences": count,
            "to come": sum(one.to_come for one in reports),
            "offsets left out": left_out,
            "findings": findings_list(findings),
            **_kept(state.source_topic_id or "", {**since, **ends} if not count else since),
        },
    )


def _kept(topic_id: str, offsets: Mapping[int, int]) -> Metadata:
    return {
        TOPIC_ID: topic_id,
        CHECKED: dg.MetadataValue.json({str(one): offset for one, offset in sorted(offsets.items())}),
    }


def last_begin(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> Begin:
    """Returns where a check goes on, as its newest result says; at the beginning without one."""
    for one in instance.event_log_storage.get_asset_check_execution_history(check, limit=HISTORY):
        evaluation = one.evaluation
        if not isinstance(evaluation, dg.AssetCheckEvaluation):  # a check that is only planned, or has ended early
            continue
        kept = evaluation.metadata.get(CHECKED)
        if isinstance(kept, dg.JsonMetadataValue) and isinstance(kept.value, dict):
            offsets = {int(partition): int(offset) for partition, offset in kept.value.items()}
            return Begin(str(evaluation.metadata[TOPIC_ID].value or ""), offsets)
    return NO_BEGIN
