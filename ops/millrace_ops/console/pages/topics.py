"""Topics: the list, and one with its partitions, its configuration, and the groups and tables that it feeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from millrace.client import Cluster, Configs, ResourceKind
from millrace.client.fetched import IsolationLevel
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.client.metadata import Partition, PartitionMetadata, TopicMetadata
from millrace.errors import MillraceError
from millrace.internal_topics import INTERNAL_TOPICS
from millrace_ops.console.console import Console
from millrace_ops.console.overview import TopicSummary, look_at_replicas, total_lag
from millrace_ops.console.pages.tables import table_locations_by_name
from millrace_ops.console.request import Asked, Listing, Page, listed

MAX_ROWS = 50
DONE: Mapping[str, str] = {"created": "The topic is created.", "set": "The property is changed."}
Log: TypeAlias = "LogOffsets | MillraceError"


class PartitionRow(NamedTuple):
    """One partition; `trouble` says why the offsets of its log are not known."""

    number: int
    metadata: PartitionMetadata
    log: LogOffsets | None
    size_bytes: int | None
    trouble: str


class GroupOfTopic(NamedTuple):
    """A group that has committed offsets in a topic, and its lag there; None where the end of a log is not known."""

    group_id: str
    lag: int | None


YOURS, INTERNAL = "", "internal"
EMPTY: Mapping[str, str] = {
    YOURS: "There are no topics yet: the first record that is produced makes one, or `millrace topics create`.",
    INTERNAL: "There are none yet: brokers create them for the first group that commits, or the first transaction.",
}


class TopicKind(NamedTuple):
    """A tab of the page of topics: those of users, or those in which brokers keep their own state."""

    kind: str
    label: str
    topics: int
    troubled: int


def show_topics(console: Console, asked: Asked) -> Page:
    """Returns the page of all topics of a kind."""
    overview, rates = console.watch.overview(), console.watch.rates
    by_kind: Mapping[str, list[TopicSummary]] = {YOURS: [], INTERNAL: []}
    for one in overview.topics.values():
        by_kind[INTERNAL if one.name in INTERNAL_TOPICS else YOURS].append(one)
    kind = INTERNAL if asked.query.get("kind") == INTERNAL else YOURS
    columns = {
        "name": lambda one: one.name,
        "partitions": lambda one: one.partitions,
        "replicas": lambda one: one.replicas,
        "records": lambda one: one.records or 0,
        "size": lambda one: one.size_bytes or 0,
        "rate": lambda one: rates.newest_rate(one.name),
        "trouble": lambda one: (one.offline, one.under_replicated),
    }
    listing = listed(by_kind[kind], asked.query, columns, lambda one: one.name)
    plots = {one.name: rates.rates(one.name) for one in listing.rows}
    kinds = [
        TopicKind(
            name, label, len(by_kind[name]), sum(bool(one.offline or one.under_replicated) for one in by_kind[name])
        )
        for name, label in ((YOURS, "Yours"), (INTERNAL, "Internal"))
    ]
    values = {"listing": listing, "overview": overview, "plots": plots, "kinds": kinds, "kind": kind}
    return Page("topics.html", {**values, "empty": EMPTY[kind]})


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
        groups, groups_trouble = _groups(console, cluster, name, logs)
    tables, tables_trouble = _tables(console, name)
    values = {
        "topic": topic,
        "listing": _partitions(topic, logs, sizes, asked),
        "configs": configs,
        "configs_trouble": trouble,
        "rates": console.watch.rates.rates(name),
        "groups": groups[:MAX_ROWS],
        "groups_unseen": console.groups_of_topics.unseen + len(groups[MAX_ROWS:]),
        "tables": tables[:MAX_ROWS],
        "troubles": [one for one in (groups_trouble, tables_trouble) if one],
        "dagster": console.dagster.links(name),
        "is_internal": name in INTERNAL_TOPICS,
        "done": DONE.get(asked.query.get("done", ""), ""),
    }
    return Page("topic.html", values)


def _partitions(
    topic: TopicMetadata, logs: Mapping[Partition, Log], sizes: Mapping[Partition, int], asked: Asked
) -> Listing[PartitionRow]:
    rows = []
    for index, partition in topic.partitions.items():
        log = logs[topic.name, index]
        offsets = log if isinstance(log, LogOffsets) else None
        why = "" if isinstance(log, LogOffsets) else str(log)
        rows.append(PartitionRow(index, partition, offsets, sizes.get((topic.name, index)), why))
    return listed(
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


def _groups(
    console: Console, cluster: Cluster, topic: str, logs: Mapping[Partition, Log]
) -> tuple[list[GroupOfTopic], str]:
    """Returns the groups of a topic with their lag in it, and why they are not known, "" where they are."""
    try:
        found = console.groups_of_topics.of(cluster, topic)
    except MillraceError as error:
        return [], f"Its groups are not known: {error}"
    ends = {index: log.log_end for (_, index), log in logs.items() if isinstance(log, LogOffsets)}
    return [
        GroupOfTopic(
            one.group_id,
            total_lag(max(0, ends[index] - at) if index in ends else None for index, at in one.offsets.items()),
        )
        for one in found
    ], ""


def _tables(console: Console, topic: str) -> tuple[list[str], str]:
    """Returns the names of a topic's tables, and why they are not known, "" where they are or there is no warehouse."""
    if not console.settings.warehouse:
        return [], ""
    try:
        return console.tables_of_topics.of(table_locations_by_name(console.settings.warehouse), topic), ""
    except MillraceError as error:
        return [], f"Its tables are not known: {error}"
