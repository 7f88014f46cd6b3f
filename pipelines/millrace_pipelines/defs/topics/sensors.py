"""The sensor that keeps the partitions of `topic` equal to the broker's topics, and reports offsets that moved."""

from __future__ import annotations

import json

import dagster as dg

from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.topics.assets import materializations
from millrace_pipelines.defs.topics.offsets import read_topic_offsets
from millrace_pipelines.defs.topics.partitions import TOPICS, partition_changes, topics_partitions


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Adds a partition for each new topic, removes deleted ones, reports the offsets of those that moved.",
)
def topics(context: dg.SensorEvaluationContext, millrace: MillraceResource) -> dg.SensorResult:
    """Compares the broker with the known partitions; the cursor only keeps a report from being repeated."""
    with millrace.cluster() as cluster:
        offsets = read_topic_offsets(cluster)
    changes = partition_changes(offsets, context.instance.get_dynamic_partitions(TOPICS))
    seen = json.loads(context.cursor or "{}")
    moved = [topic for name, topic in offsets.items() if seen.get(name) != topic.version]
    return dg.SensorResult(
        dynamic_partitions_requests=[
            topics_partitions.build_add_request(changes.added),
            topics_partitions.build_delete_request(changes.removed),
        ],
        asset_events=materializations(moved),
        cursor=json.dumps({name: topic.version for name, topic in offsets.items()}),
    )
