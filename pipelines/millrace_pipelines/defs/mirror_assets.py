"""The assets of mirrored topics, and the step that mirrors them where no service does.

    SOURCE/topic/NAME (external) ──> CLUSTER/mirror/TOPIC ──> CLUSTER/topic/TOPIC (external) ──> CLUSTER/table/TOPIC

SOURCE is the name of the source: where a cluster of that name is declared in the same instance, the lineage goes on
there. CLUSTER/mirrored_topics stands for the mirror as a whole, also as long as it has found no topic.

A run mirrors what the sources of its topics have when it begins, in a process of its own. Other topics of these sources
come along: a mirror that were told to leave them out would stop them. A topic that has stopped fails the step after all
others have been reported.
"""

# Without `from __future__ import annotations`: Dagster reads the annotations of steps and checks.

import sys
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime

import dagster as dg
from pydantic import Field

from millrace.errors import MillraceError
from millrace_pipelines.declaration.attributes import MirrorRuns
from millrace_pipelines.declaration.cluster import (
    DeclaredCluster,
    DeclaredMirror,
    asset_keys,
    default_group,
    named,
    step_key,
    under_own_keys,
)
from millrace_pipelines.defs.load_process import ChildProcess, Event, raise_failures
from millrace_pipelines.defs.maintenance import Metadata, failures_in_words, report_table
from millrace_pipelines.defs.resources import MillraceResource, resource_of
from millrace_pipelines.mirror.lags import TopicLag, mirrored_topics, read_lags
from millrace_pipelines.mirror.own_target import settings_into
from millrace_pipelines.mirror.settings import Accept, MirrorSettings
from millrace_pipelines.mirror.states import State
from millrace_pipelines.runs.jobs import Failed, ending
from millrace_pipelines.runs.mirror import REPORT, WORK, MirroredHere, MirrorReport, MirrorWork

COMMAND = (sys.executable, "-m", "millrace_pipelines.runs.mirror")
POOL_PREFIX = "mirror/"
NOTHING = MirroredHere()


class MirrorConfig(dg.Config):
    """The options of one run of a mirror; they hold for every topic of its sources."""

    max_seconds: float = Field(default=600.0, gt=0, description="When the run ends although there is more.")
    accept_lost_offsets: bool = Field(
        default=False, description="Go on behind offsets that were deleted before they were mirrored."
    )
    accept_recreated_topic: bool = Field(
        default=False, description="Go on with a topic that was deleted and created again."
    )
    accept_truncated_log: bool = Field(
        default=False, description="Go on where the source's log was cut below what is mirrored."
    )

    def accepted(self) -> dict[str, bool]:
        """Returns the options that are set, by their names in the mirror's settings."""
        return {one.value: True for one in Accept if getattr(self, one.value)}


def settings_of(mirror: DeclaredMirror, millrace: MillraceResource) -> MirrorSettings:
    """Returns a mirror's settings, whose target is the cluster unless they name another; raises InvalidConfigError."""
    return settings_into(mirror.config, millrace.bootstrap, millrace.client_config or None)


def topics_of_mirror(mirror: DeclaredMirror | None, millrace: MillraceResource) -> dict[str, str]:
    """Returns where a mirror has each of its topics from, `NAME/TOPIC`; what is known where that can't be asked for."""
    if mirror is None:
        return {}
    try:
        return {topic: state.key for topic, state in mirrored_topics(settings_of(mirror, millrace)).items()}
    except MillraceError:
        return dict(mirror.topics)


def mirror_key(cluster: str) -> dg.AssetKey:
    """Returns the key of the asset that stands for a cluster's mirror as a whole."""
    return dg.AssetKey([cluster, "mirrored_topics"])


def topic_key(cluster: DeclaredCluster, topic: str) -> dg.AssetKey:
    """Returns the key of the asset of a mirrored topic."""
    own = next((table.keys.mirror for table in cluster.tables if table.topic == topic), None)
    return own or asset_keys(cluster.name, topic).mirror


def mirror_assets(cluster: DeclaredCluster) -> list[dg.AssetSpec | dg.AssetsDefinition]:
    """Returns the assets of a cluster's mirror; none where no mirror is declared."""
    mirror = cluster.mirror
    if mirror is None:
        return []
    is_run = mirror.declared.runs is MirrorRuns.DAGSTER
    keys = {topic: topic_key(cluster, topic) for topic in sorted(mirror.topics)}
    specs = [_topic_spec(mirror, topic, step_key(key) if is_run else key) for topic, key in keys.items()]
    whole = dg.AssetSpec(
        mirror_key(cluster.name),
        group_name=named("mirror", cluster.name),
        kinds={"kafka", "mirror"},
        skippable=is_run,
        description="All topics that the mirror brings into the cluster.",
    )
    if not is_run:
        return [whole, *specs]
    return [under_own_keys(_step(cluster, mirror, [whole, *specs]), keys.values())]


def _topic_spec(mirror: DeclaredMirror, topic: str, key: dg.AssetKey) -> dg.AssetSpec:
    source, _, name = mirror.topics[topic].partition("/")
    is_run = mirror.declared.runs is MirrorRuns.DAGSTER
    who = "A run mirrors what the source has when it begins." if is_run else "A service mirrors it, and a sensor looks."
    return dg.AssetSpec(
        key,
        deps=[asset_keys(source, name).topic],
        group_name=default_group(topic),
        kinds={"kafka", "mirror"},
        skippable=is_run,
        description=f"The topic {name} of {source}, as {topic}. {who}",
    )


def _step(cluster: DeclaredCluster, mirror: DeclaredMirror, specs: list[dg.AssetSpec]) -> dg.AssetsDefinition:
    @dg.multi_asset(
        name=f"{cluster.name}_mirror_topics",
        specs=specs,
        can_subset=True,
        pool=POOL_PREFIX + cluster.name,
        required_resource_keys={cluster.name},
    )
    def mirror_topics(context: dg.AssetExecutionContext, config: MirrorConfig) -> Iterator[Event]:
        """Mirrors what the sources of the selected topics have when the run begins."""
        millrace = resource_of(context, cluster.name)
        selected = context.selected_asset_keys
        topics = {topic: topic_key(cluster, topic) for topic in mirror.topics}
        chosen = {topic: key for topic, key in topics.items() if key in selected}
        with failures_in_words():
            settings = settings_of(mirror, millrace)
            names = {one.name for one in settings.sources}
            if mirror_key(cluster.name) not in selected:
                names &= {mirror.topics[topic].partition("/")[0] for topic in chosen}
            work = MirrorWork(
                config=mirror.config,
                bootstrap=millrace.bootstrap,
                client_config=millrace.client_config or None,
                sources=tuple(sorted(names)),
                accepted=config.accepted(),
                max_seconds=config.max_seconds,
            )
            report = run_mirror(context, work)
            states = {topic: one for topic, one in mirrored_topics(settings).items() if one.source in names}
            lags = read_lags(settings, states.values())
        yield from mirror_events(context, report, lags, chosen, mirror_key(cluster.name))

    return mirror_topics


def run_mirror(context: dg.AssetExecutionContext, work: MirrorWork) -> MirrorReport:
    """Mirrors in a child process, and returns its report; raises dg.Failure where it ends without one."""
    child = ChildProcess(context, COMMAND, WORK.dump_python(work, mode="json"))
    reports = [REPORT.validate_python(one) for one in child.messages()]
    if not reports:
        sentence = f"the process of the mirror {ending(child.status)} without a report; another run goes on from there"
        raise dg.Failure(sentence, allow_retries=child.status < 0)
    if (error := reports[-1].error) is not None:
        raise dg.Failure(error, allow_retries=False)
    return reports[-1]


def mirror_events(
    context: dg.AssetExecutionContext,
    report: MirrorReport,
    lags: Mapping[str, TopicLag],
    chosen: Mapping[str, dg.AssetKey],
    whole: dg.AssetKey,
) -> Iterator[Event]:
    """Yields an event for each chosen topic that has not stopped, and for the mirror; then fails for the others.

    A topic of which nothing was mirrored is observed, so that nothing downstream runs for it.

    Args:
        context: The step that runs.
        report: What the run has mirrored.
        lags: By topic, its state, and how far behind it is.
        chosen: By topic, the assets that the run is to report.
        whole: The asset of the mirror as a whole.
    """
    here = {topic: report.topics.get(one.state.key, NOTHING) for topic, one in lags.items()}
    failed = {
        topic: one
        for topic, one in _failures(lags, here).items()
        if topic in chosen or whole in context.selected_asset_keys
    }
    for topic, key in chosen.items():
        if topic in lags and topic not in failed:
            yield _event(key, here[topic].records, topic_metadata(lags[topic], here[topic], report.seconds))
    missing = {
        topic: Failed(sentence=f"{topic} is mirrored no more", error="NotMirrored", may_pass=False)
        for topic in chosen.keys() - lags.keys()
    }
    if whole in context.selected_asset_keys:
        records = sum(one.records for one in report.topics.values())
        yield _event(whole, records, {"records": records, "topics": _table(lags, here)})
    if failed or missing:
        for topic, one in (failed | missing).items():
            context.log.error("%s: %s", topic, one.sentence)
        raise_failures(failed | missing, len(chosen.keys() | failed.keys()), context.retry_number)


def _event(key: dg.AssetKey, records: int, metadata: Metadata) -> Event:
    if records:
        return dg.MaterializeResult(asset_key=key, metadata=metadata)
    return dg.AssetObservation(key, metadata={"mirrored": "nothing new", **metadata})


def _failures(lags: Mapping[str, TopicLag], here: Mapping[str, MirroredHere]) -> dict[str, Failed]:
    found: dict[str, Failed] = {}
    for topic, one in lags.items():
        if sentence := "; ".join(stop_reasons(one, here[topic].stopped)):
            found[topic] = Failed(sentence=sentence, error="TopicStopped", may_pass=False)
        elif one.lag is None:
            found[topic] = Failed(sentence=one.trouble, error="SourceAway", may_pass=True)
    return found


def stop_reasons(one: TopicLag, stopped: Collection[str] = ()) -> list[str]:
    """Returns why a topic, or some partitions of it, are not mirrored, with options as a configuration spells them."""
    reasons = [*([one.state.reason] if one.state.state is State.STOPPED else []), *stopped]
    for option in Accept:
        reasons = [reason.replace(option.flag, f"`{option.value}: true`") for reason in reasons]
    return list(dict.fromkeys(reasons))


def topic_metadata(one: TopicLag, here: MirroredHere, seconds: float) -> Metadata:
    """Returns what is shown of a topic after a run."""
    newest = {} if here.newest_ms < 0 else {"newest record": _time(here.newest_ms)}
    return {
        "records": here.records,
        "bytes": here.size_bytes,
        "seconds": round(seconds, 3),
        "records per second": round(here.records / seconds, 1) if seconds else 0.0,
        **newest,
        **lag_metadata(one),
    }


def lag_metadata(one: TopicLag) -> Metadata:
    """Returns what is shown of a topic at any time."""
    lag: Metadata = {"lag": one.lag} if one.lag is not None else {"lag unknown": one.trouble}
    held_back = {"held back": one.held_back} if one.held_back else {}
    reason = {"reason": one.state.reason} if one.state.reason else {}
    return {
        **lag,
        **held_back,
        "way": one.state.way.value,
        "state": one.state.state.value,
        "source": one.state.key,
        **reason,
    }


def _table(lags: Mapping[str, TopicLag], here: Mapping[str, MirroredHere]) -> dg.TableMetadataValue | str:
    rows = [
        {
            "topic": topic, "source": one.state.key, "state": one.state.state.value, "way": one.state.way.value,
            "records": here[topic].records, "lag": one.lag, "reason": "; ".join(stop_reasons(one, here[topic].stopped)),
        }
        for topic, one in sorted(lags.items())
    ]  # fmt: skip
    return report_table(rows) if rows else "none"


def _time(time_ms: int) -> dg.MetadataValue:
    return dg.MetadataValue.timestamp(datetime.fromtimestamp(time_ms / 1000, UTC))
