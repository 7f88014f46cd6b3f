"""The sensor that keeps the partitions of `topic` equal to the cluster's topics, and reports offsets that moved."""

from __future__ import annotations

import dagster as dg

from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.ticks import counted, failing_in_words
from millrace_pipelines.defs.topics.assets import materializations
from millrace_pipelines.defs.topics.changes import TopicChanges, cursor_of, seen_by, topic_changes
from millrace_pipelines.defs.topics.offsets import Look, read_topic_offsets
from millrace_pipelines.defs.topics.partitions import TOPICS, topics_partitions


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Adds a partition for each new topic, removes those that two looks in a row lack, and reports the "
    "offsets of topics that moved.",
)
def topics(context: dg.SensorEvaluationContext, millrace: MillraceResource) -> dg.SensorResult:
    """Compares the cluster with the known partitions and with the last look."""
    with failing_in_words(), millrace.cluster() as cluster:
        look = read_topic_offsets(cluster)
    log_failed(context, look)
    changes = topic_changes(seen_by(context.cursor), look, context.instance.get_dynamic_partitions(TOPICS))
    return dg.SensorResult(
        dynamic_partitions_requests=[
            topics_partitions.build_add_request(changes.added),
            topics_partitions.build_delete_request(changes.gone),
        ],
        asset_events=materializations(changes.moved),
        skip_reason=summary(look, changes),
        cursor=cursor_of(changes.seen),
    )


def log_failed(context: dg.SensorEvaluationContext, look: Look) -> None:
    """Writes each topic that a look leaves out to the log of the tick, with the reason."""
    for name, reason in look.failed.items():
        context.log.warning("topic %s is left out: %s", name, reason)


def left_out(look: Look) -> str:
    """Returns how many topics a look leaves out, as the end of a tick's summary; nothing where it has all."""
    return f", {len(look.failed)} left out, as the log of this tick says" if look.failed else ""


def summary(look: Look, changes: TopicChanges) -> str:
    """Returns what a tick found, in one line: "12 topics, none moved"."""
    missing = len(changes.seen.missing)
    parts = [
        counted(len(look.topics) + len(look.failed), "topic"),
        f"{len(changes.moved) or 'none'} moved",
        f"{len(changes.gone)} gone" if changes.gone else "",
        f"{missing} missing, and gone if the next look lacks them too" if missing else "",
    ]
    return ", ".join(filter(None, parts)) + left_out(look)
