"""What is shown of a cluster whose brokers have no admin endpoint of Millrace, such as Apache Kafka.

Such brokers look after their logs by their own timers. They are asked in the client protocol alone:

    retention, compaction    what the cluster's settings are, and what its logs hold: observations, every night
    recovery_check           the batches of the tables' topics as the brokers serve them to consumers, every night a
                             seventh of the offsets of each partition

A topic that the brokers say nothing of is shown with their sentence.
"""

# Without `from __future__ import annotations`: Dagster reads the annotations of steps and checks.

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TypeAlias

import dagster as dg
from pydantic import Field

from millrace.client import Cluster, Configs, LogOffsets, read_log_offsets
from millrace.client.fetched import IsolationLevel
from millrace.client.log_check import ALL, PartitionReport, Share, check_topics
from millrace.client.log_offsets import read_first_times
from millrace.client.metadata import Partition
from millrace.errors import MillraceError
from millrace.internal_topics import INTERNAL_TOPICS
from millrace_pipelines.declaration.cluster import DeclaredCluster
from millrace_pipelines.defs.maintenance import (
    NO_FINDINGS,
    Metadata,
    Upkeep,
    failures_in_words,
    findings_result,
    largest,
    maintenance_group,
)
from millrace_pipelines.defs.resources import resource_of
from millrace_pipelines.defs.table_checks import DAY_MS
from millrace_pipelines.machine import CLOCK

SETTINGS: Mapping[str, Sequence[str]] = {
    "retention": ("cleanup.policy", "retention.ms", "retention.bytes", "segment.ms", "segment.bytes"),
    "compaction": (
        *("cleanup.policy", "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "max.compaction.lag.ms"),
        "delete.retention.ms",
    ),
}
"""The settings of topics that each asset shows."""

OF_THE_TOPIC = "topic"
NIGHTS = 7
OF_FOREIGN_LOGS = (
    Upkeep("nightly_log_settings", tuple(SETTINGS), "0 3 * * *", "Shows retention and compaction as the cluster does."),
    Upkeep("nightly_recovery_check", ("recovery_check",), "15 3 * * *", "Reads a seventh of each table's topic."),
)

Row: TypeAlias = dict[str, object]


def settings_assets(cluster: DeclaredCluster) -> dg.AssetsDefinition:
    """Returns the assets that show retention and compaction of a cluster's topics as the cluster has them.

    A run observes them and materializes nothing, since the brokers do the work.
    """
    keys = {name: dg.AssetKey([cluster.name, name]) for name in SETTINGS}

    @dg.multi_asset(
        name=f"{cluster.name}__log_settings",
        can_subset=True,
        required_resource_keys={cluster.name},
        specs=[
            dg.AssetSpec(
                key,
                group_name=maintenance_group(cluster.name),
                kinds={"kafka"},
                skippable=True,
                description=f"The settings by which the brokers do {name}, and what their logs hold now. The brokers "
                "do it by their own timers; a run observes what the cluster says.",
            )
            for name, key in keys.items()
        ],
    )
    def log_settings(context: dg.AssetExecutionContext) -> Iterator[dg.AssetObservation]:
        """Asks the brokers for the settings of the topics that have assets, and for the offsets of their logs."""
        topics = [table.topic for table in cluster.tables]
        with failures_in_words(), resource_of(context, cluster.name).cluster() as client:
            rows = {name: settings_of(client, topics, SETTINGS[name]) for name in keys}
        for name, key in keys.items():
            if key in context.selected_asset_keys:
                yield dg.AssetObservation(key, metadata=largest("topics", rows[name], "records"))

    return log_settings


def settings_of(cluster: Cluster, topics: Sequence[str], names: Sequence[str]) -> list[Row]:
    """Returns a row for each of the topics that is there: what its logs hold, and its settings of these names."""
    metadata = cluster.metadata(None)
    there = [topic for topic in topics if topic in metadata.topics]
    logs = [(topic, partition) for topic in there for partition in metadata.topics[topic].partitions]
    offsets = read_log_offsets(cluster, logs, IsolationLevel.READ_UNCOMMITTED, metadata=metadata)
    times = read_first_times(cluster, logs, metadata=metadata)
    return [{"topic": topic, **_held(topic, offsets, times), **_set(cluster, topic, names)} for topic in there]


def _held(
    topic: str,
    offsets: Mapping[Partition, LogOffsets | MillraceError],
    times: Mapping[Partition, int | MillraceError | None],
) -> Row:
    ends = [one for log, one in offsets.items() if log[0] == topic and isinstance(one, LogOffsets)]
    oldest = [time_ms for log, time_ms in times.items() if log[0] == topic and isinstance(time_ms, int)]
    return {
        "records": sum(one.end_offset - one.start_offset for one in ends),
        "oldest record": datetime.fromtimestamp(min(oldest) / 1000, UTC).isoformat(" ", "seconds") if oldest else "",
    }


def _set(cluster: Cluster, topic: str, names: Sequence[str]) -> Row:
    try:
        described = Configs(cluster).describe_topics([topic], names)[topic]
    except MillraceError as error:
        return {**dict.fromkeys(names, ""), "set for the topic": str(error)}
    own = sorted(name for name in names if name in described and described[name].source == OF_THE_TOPIC)
    values = {name: (described[name].value or "") if name in described else "" for name in names}
    return {**values, "set for the topic": ", ".join(own) or "none"}


class LogCheckConfig(dg.Config):
    """The configuration of one check of logs through the brokers.

    Attributes:
        topics: Names of topics, and patterns as in a shell, such as `logs-*`; none for the topics of the tables.
        whole: Whether all offsets are read, in place of the day's seventh.
    """

    topics: list[str] = Field(
        default=[], description="Names of topics, or patterns such as logs-*; none: the topics of the tables."
    )
    whole: bool = Field(default=False, description="Read all offsets, in place of the day's seventh.")

    def chosen(self, cluster: DeclaredCluster, there: Sequence[str]) -> list[str]:
        """Returns those of the cluster's topics that are to be read."""
        patterns = self.topics or [table.topic for table in cluster.loaded]
        return [name for name in sorted(there) if any(fnmatchcase(name, pattern) for pattern in patterns)]


def log_check_asset(cluster: DeclaredCluster) -> dg.AssetsDefinition:
    """Returns the asset whose runs read and check the batches of topics, and the check of what they find."""
    key = dg.AssetKey([cluster.name, "recovery_check"])

    @dg.multi_asset(
        name=f"{cluster.name}__recovery_check",
        required_resource_keys={cluster.name},
        specs=[
            dg.AssetSpec(
                key,
                group_name=maintenance_group(cluster.name),
                kinds={"kafka"},
                description="Reads the topics of the tables as a consumer does, a seventh of the offsets of each "
                "partition by day, and checks every batch: its CRC-32C, its header, its offsets.",
            )
        ],
        check_specs=[
            dg.AssetCheckSpec(NO_FINDINGS, asset=key, description="Every batch is whole and its CRC-32C is right.")
        ],
    )
    def recovery_check(
        context: dg.AssetExecutionContext, config: LogCheckConfig
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        """Reads the chosen topics' batches, and reports each one that is damaged or missing."""
        share = ALL if config.whole else Share(CLOCK.now_ms() // DAY_MS % NIGHTS, NIGHTS)
        with failures_in_words(), resource_of(context, cluster.name).cluster() as client:
            topics = config.chosen(cluster, [*(client.metadata(None).topics.keys() - INTERNAL_TOPICS)])
            reports = list(check_topics(client, topics, share)) if topics else []
        yield dg.MaterializeResult(asset_key=key, metadata=_figures(reports, share))
        yield findings_result(_lines(reports), key)

    return recovery_check


def _figures(reports: Sequence[PartitionReport], share: Share) -> Metadata:
    rows: list[Row] = [{**asdict(report), "findings": len(report.findings)} for report in reports]
    return {
        "part of the offsets": "all" if share == ALL else f"{share.number + 1} of {share.parts}",
        "batches": sum(report.batches for report in reports),
        "bytes": sum(report.size_bytes for report in reports),
        "findings": sum(len(report.findings) for report in reports),
        **largest("partitions", rows, "size_bytes"),
    }


def _lines(reports: Sequence[PartitionReport]) -> list[str]:
    return [
        f"- `{report.topic}-{report.partition}` at offset {finding.offset}: {finding.reason}"
        for report in reports
        for finding in report.findings
    ]
