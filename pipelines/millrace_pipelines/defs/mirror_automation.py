"""What mirrors, looks and compares by itself: a schedule of runs, a sensor of lags, and a schedule of checks."""

from __future__ import annotations

import dagster as dg

from millrace_pipelines.declaration.attributes import MirrorRuns
from millrace_pipelines.declaration.cluster import DeclaredCluster, DeclaredMirror, named
from millrace_pipelines.defs.load_due import lag_report, lags_of
from millrace_pipelines.defs.mirror_assets import lag_metadata, mirror_key, settings_of, topic_key
from millrace_pipelines.defs.mirror_checks import NEWEST, mirror_selection
from millrace_pipelines.defs.resources import resource_of
from millrace_pipelines.defs.ticks import counted, failing_in_words, pack_cursor
from millrace_pipelines.mirror.lags import mirrored_topics, read_lags
from millrace_pipelines.mirror.states import State

EVERY_FIVE_MINUTES = "*/5 * * * *"
HOURLY = "45 * * * *"


def mirror_schedules(cluster: DeclaredCluster) -> list[dg.ScheduleDefinition]:
    """Returns the schedules of a cluster's mirror: of runs, unless a service runs, and of checks."""
    mirror = cluster.mirror
    if mirror is None:
        return []
    checks = _schedule("hourly_mirror_checks", cluster, HOURLY, mirror_selection(cluster, mirror, NEWEST),
                       "Compares what was mirrored since the last check with its source.")  # fmt: skip
    own = [checks] if mirror.topics else []
    if mirror.declared.runs is MirrorRuns.SERVICE:
        return own
    topics = dg.AssetSelection.assets(mirror_key(cluster.name), *(topic_key(cluster, one) for one in mirror.topics))
    cron = mirror.declared.schedule or EVERY_FIVE_MINUTES
    runs = _schedule("mirror", cluster, cron, topics.without_checks(), "Mirrors what the sources have.")
    return [runs, *own]


def _schedule(
    what: str, cluster: DeclaredCluster, cron: str, target: dg.AssetSelection, description: str
) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=named(what, cluster.name),
        target=target,
        cron_schedule=cron,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=description,
    )


def mirror_sensors(cluster: DeclaredCluster) -> list[dg.SensorDefinition]:
    """Returns the sensor that observes the lag of mirrored topics; none where no mirror is declared."""
    return [] if cluster.mirror is None else [_lag_sensor(cluster, cluster.mirror)]


def _lag_sensor(cluster: DeclaredCluster, mirror: DeclaredMirror) -> dg.SensorDefinition:
    @dg.sensor(
        name=named("mirror_lag", cluster.name),
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={cluster.name},
        description="Observes how many records of each mirrored topic are still to come, as long as there are any.",
    )
    def mirror_lag(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Reports the lag of each mirrored topic that lags, or has just caught up."""
        with failing_in_words():
            settings = settings_of(mirror, resource_of(context, cluster.name))
            states = {topic: one for topic, one in mirrored_topics(settings).items() if topic in mirror.topics}
            lags = read_lags(settings, states.values())
        for topic, one in lags.items():
            if one.lag is None:
                context.log.warning("topic %s is left out: %s", topic, one.trouble)
        report = lag_report(lags_of(context.cursor), {topic: one.lag for topic, one in lags.items()})
        stopped = sum(one.state.state is State.STOPPED for one in lags.values())
        said = f"{counted(len(lags), 'topic')}, {len(report.seen) or 'none'} behind"
        return dg.SensorResult(
            asset_events=[
                dg.AssetObservation(asset_key=topic_key(cluster, topic), metadata=lag_metadata(lags[topic]))
                for topic in report.observed
            ],
            skip_reason=f"{said}, {stopped} stopped" if stopped else said,
            cursor=pack_cursor({**report.seen}),
        )

    return mirror_lag
