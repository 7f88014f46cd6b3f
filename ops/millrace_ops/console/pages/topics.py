"""Topics: the list of all, and one with its partitions and its configuration."""

from __future__ import annotations

from typing import NamedTuple

from millrace.client import Configs, ResourceKind
from millrace.client.fetched import IsolationLevel
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.client.metadata import PartitionMetadata
from millrace.errors import MillraceError
from millrace_ops.console.console import Console
from millrace_ops.console.listing import listed
from millrace_ops.console.overview import look_at_replicas
from millrace_ops.console.request import Asked, Page


class PartitionRow(NamedTuple):
    """One partition; `trouble` says why the offsets of its log are not known."""

    number: int
    metadata: PartitionMetadata
    log: LogOffsets | None
    size_bytes: int | None
    trouble: str


def show_topics(console: Console, asked: Asked) -> Page:
    """Returns the page of all topics."""
    overview, rates = console.watch.overview(), console.watch.rates

    columns = {
        "name": lambda one: one.name,
        "partitions": lambda one: one.partitions,
        "replicas": lambda one: one.replicas,
        "records": lambda one: one.records or 0,
        "size": lambda one: one.size_bytes or 0,
        "rate": lambda one: rates.newest_rate(one.name),
        "trouble": lambda one: (one.offline, one.under_replicated),
    }
    listing = listed(list(overview.topics.values()), asked.query, columns, lambda one: one.name)
    plots = {one.name: rates.rates(one.name) for one in listing.rows}
    return Page("topics.html", {"listing": listing, "overview": overview, "plots": plots})


def show_topic(console: Console, asked: Asked) -> Page:
    """Returns the page of one topic."""
    name = asked.need("name")
    with console.clusters.lent() as cluster:
        metadata = cluster.metadata([name])
        topic = metadata.topic(name)
        keys = [(name, index) for index in topic.partitions]
        logs = read_log_offsets(cluster, keys, IsolationLevel.READ_COMMITTED, metadata=metadata)
        sizes = look_at_replicas(cluster, metadata, only_leaders=True).sizes
        try:
            configs, trouble = Configs(cluster).describe(ResourceKind.TOPIC, name), ""
        except MillraceError as error:
            configs, trouble = [], str(error)
    rows = []
    for index, partition in topic.partitions.items():
        log = logs[name, index]
        offsets = log if isinstance(log, LogOffsets) else None
        why = "" if isinstance(log, LogOffsets) else str(log)
        rows.append(PartitionRow(index, partition, offsets, sizes.get((name, index)), why))
    listing = listed(
        rows,
        asked.query,
        {
            "partition": lambda one: one.number,
            "leader": lambda one: one.metadata.leader,
            "records": lambda one: 0 if one.log is None else one.log.log_end - one.log.start_offset,
            "size": lambda one: one.size_bytes or 0,
        },
        lambda one: str(one.number),
    )
    values = {
        "topic": topic,
        "listing": listing,
        "configs": configs,
        "configs_trouble": trouble,
        "rates": console.watch.rates.rates(name),
    }
    return Page("topic.html", values)
