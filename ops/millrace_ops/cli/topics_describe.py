"""`millrace topics describe`: shows how topics and their partitions stand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_ops.cli.complete import complete_topic
from millrace_ops.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientConfig, Json, open_cluster
from millrace_ops.cli.output import print_json, print_table, print_tables
from millrace_ops.cli.several import for_each
from millrace_ops.replicas.health import PartitionState

if TYPE_CHECKING:
    from millrace.client import Cluster, LogOffsets, TopicMetadata
    from millrace.client.metadata import Partition
    from millrace.errors import MillraceError
    from millrace_ops.replicas.cluster_state import ClusterState

COLUMNS = ("topic", "partition", "leader", "replicas", "isr", "state")


def describe(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="The topics' names; with a filter all.", autocompletion=complete_topic),
    ] = None,
    *,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only partitions with replicas that are not in sync.")
    ] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr", help="Only partitions with fewer replicas in sync than acks=all needs.")
    ] = False,
    at_min_isr: Annotated[
        bool, typer.Option("--at-min-isr", help="Only partitions with just as many replicas in sync as acks=all needs.")
    ] = False,
    unavailable: Annotated[bool, typer.Option("--unavailable", help="Only partitions without a leader.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    as_json: Json = False,
) -> None:
    """Show topics' partitions (leaders, replicas, offsets) and the properties that differ from their defaults.

    With a filter, or several, only the partitions that one of them lets pass.
    """
    from millrace_ops.replicas.cluster_state import read_cluster_state

    filters = {
        PartitionState.UNDER_REPLICATED: under_replicated,
        PartitionState.UNDER_MIN_ISR: under_min_isr,
        PartitionState.AT_MIN_ISR: at_min_isr,
        PartitionState.UNAVAILABLE: unavailable,
    }
    wanted = [state for state, is_wanted in filters.items() if is_wanted]
    if not names and not wanted:
        raise typer.BadParameter("one of the two is needed", param_hint="TOPIC / a filter such as --unavailable")
    with open_cluster(bootstrap, client_config) as cluster:
        if not wanted:
            for_each(names or (), partial(_describe, cluster, as_json))
            return
        state = read_cluster_state(cluster, list(dict.fromkeys(names)) if names else None)
        rows = _filtered(state, _states(cluster, state), wanted)
    if as_json:
        print_json(rows)
    elif rows:
        print_table(COLUMNS, (tuple(row.values()) for row in rows))
    else:
        print("no partition is " + " or ".join(wanted))


def summary(topic: TopicMetadata) -> Mapping[str, object]:
    """Returns the row of a topic in a list."""
    replicas = max((len(partition.replicas) for partition in topic.partitions.values()), default=0)
    topic_id = None if topic.topic_id is None else str(topic.topic_id)
    return {"topic": topic.name, "partitions": len(topic.partitions), "replicas": replicas, "id": topic_id}


def _describe(cluster: Cluster, as_json: bool, name: str) -> None:
    from millrace.client import Configs, ResourceKind
    from millrace.client.fetched import IsolationLevel
    from millrace.client.log_offsets import read_log_offsets
    from millrace_ops.replicas.cluster_state import read_cluster_state

    state = read_cluster_state(cluster, [name])
    topic, states = state.metadata.topic(name), _states(cluster, state)
    offsets = read_log_offsets(cluster, state.partitions, IsolationLevel.READ_UNCOMMITTED)
    partitions = [_partition(topic, one[1], offsets[one], states[one]) for one in state.partitions]
    properties = [
        {"property": one.name, "value": one.value, "from": one.source}
        for one in Configs(cluster).describe(ResourceKind.TOPIC, name)
        if one.source != "default"
    ]
    if as_json:
        print_json({**summary(topic), "partitions": partitions, "properties": properties})
    else:
        print(f"{name}  id {topic.topic_id or 'unknown'}")
        print_tables(partitions, properties)


def _states(cluster: Cluster, state: ClusterState) -> dict[Partition, list[PartitionState]]:
    from millrace_ops.replicas.cluster_state import read_min_isr
    from millrace_ops.replicas.health import partition_states

    min_isr = read_min_isr(cluster, sorted({topic for topic, _ in state.partitions}))
    return {
        partition: partition_states(one, min_isr[partition[0]], state.reassignments.get(partition))
        for partition, one in state.partitions.items()
    }


def _filtered(
    state: ClusterState, states: Mapping[Partition, Sequence[PartitionState]], wanted: Collection[PartitionState]
) -> list[dict[str, object]]:
    return [
        {
            "topic": partition[0],
            "partition": partition[1],
            "leader": _leader(one.leader),
            "replicas": list(one.replicas),
            "isr": list(one.isr),
            "state": states[partition],
        }
        for partition, one in sorted(state.partitions.items())
        if set(states[partition]) & set(wanted)
    ]


def _partition(
    topic: TopicMetadata, index: int, offsets: LogOffsets | MillraceError, states: Sequence[PartitionState]
) -> dict[str, object]:
    """Returns the row of a partition; a partition whose leader does not answer has no offsets."""
    from millrace.errors import MillraceError
    from millrace_ops.replicas.health import SHOWN

    partition = topic.partitions[index]
    start, end = (None, None) if isinstance(offsets, MillraceError) else (offsets.start_offset, offsets.end_offset)
    return {
        "partition": index,
        "leader": _leader(partition.leader),
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "earliest": start,
        "latest": end,
        "state": [one for one in states if one in SHOWN],
    }


def _leader(broker: int) -> int | None:
    from millrace.leader_states import NO_LEADER

    return None if broker == NO_LEADER else broker
