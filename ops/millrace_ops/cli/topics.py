"""`millrace topics`: lists, creates, describes, extends, moves and deletes topics, and deletes records."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.config import MAX_INT, MAX_LONG, parse_assignments
from millrace.errors import InvalidReplicaAssignmentError, MillraceError, OffsetOutOfRangeError, SetupError
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.options import ClusterAccess, DryRun, Json, TopicName, TopicNames, complete_topic
from millrace_ops.cli.output import confirm, for_each, print_json, print_rows, print_tables
from millrace_ops.cli.reassignment import Options, Throttle, Wait, cancel, carry_out_plan, plan_for
from millrace_ops.cli.suggested import suggesting_properties

if TYPE_CHECKING:
    from millrace.client import Cluster, LogOffsets, TopicMetadata
    from millrace.client.metadata import Partition
    from millrace.errors import MillraceError
    from millrace_ops.replicas.cluster_state import ClusterState, PartitionState

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
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Show topics' partitions (leaders, replicas, offsets) and the properties that differ from their defaults.

    With a filter, or several, only the partitions that one of them lets pass.
    """
    from millrace_ops.replicas.cluster_state import PartitionState, read_cluster_state

    filters = {
        PartitionState.UNDER_REPLICATED: under_replicated,
        PartitionState.UNDER_MIN_ISR: under_min_isr,
        PartitionState.AT_MIN_ISR: at_min_isr,
        PartitionState.UNAVAILABLE: unavailable,
    }
    wanted = [state for state, is_wanted in filters.items() if is_wanted]
    if not names and not wanted:
        raise typer.BadParameter("one of the two is needed", param_hint="TOPIC / a filter such as --unavailable")
    with access.open() as cluster:
        if not wanted:
            for_each(names or (), partial(_describe, cluster, as_json))
            return
        state = read_cluster_state(cluster, list(dict.fromkeys(names)) if names else None)
        states = _states(cluster, state)
    rows = [
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
    print_rows(rows, as_json=as_json, columns=COLUMNS, nothing="no partition is " + " or ".join(wanted))


def summary(topic: TopicMetadata) -> Mapping[str, object]:
    """Returns a topic's row in the list of topics."""
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
    from millrace_ops.replicas.cluster_state import partition_states, read_min_isr

    min_isr = read_min_isr(cluster, sorted({topic for topic, _ in state.partitions}))
    return {
        partition: partition_states(one, min_isr[partition[0]], state.reassignments.get(partition))
        for partition, one in state.partitions.items()
    }


def _partition(
    topic: TopicMetadata, index: int, offsets: LogOffsets | MillraceError, states: Sequence[PartitionState]
) -> dict[str, object]:
    """Returns the row of a partition; a partition whose leader does not answer has no offsets."""
    from millrace_ops.replicas.cluster_state import SHOWN

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


MAX_SHORT = 2**15 - 1
ALL_RECORDS = -1
app = Commands(help="List, create, describe, extend, move and delete topics.")


@app.command("list")
def list_topics(*, access: ClusterAccess, as_json: Json = False) -> None:
    """List every topic, with the records and bytes of its logs."""
    from millrace_ops.console.overview import look_at_offsets, look_at_replicas, summaries

    with access.open() as cluster:
        metadata = cluster.metadata()
        sizes = look_at_replicas(cluster, metadata, only_leaders=True).sizes
        found = summaries(metadata, look_at_offsets(cluster, metadata), sizes)
    rows = [
        {**summary(topic), "records": found[name].records, "bytes": found[name].size_bytes}
        for name, topic in sorted(metadata.topics.items())
    ]
    columns: Sequence[str] = ("topic", "partitions", "replicas", "id", "records", "bytes")
    if sys.stdout.isatty() and not as_json:  # ids would fold each row of a narrow terminal; `describe` shows them
        columns = tuple(one for one in columns if one != "id")
        rows = [{name: row[name] for name in columns} for row in rows]
    print_rows(rows, as_json=as_json, columns=columns, empty="there is no topic")


@app.command()
def create(
    names: TopicNames,
    *,
    partitions: Annotated[
        int, typer.Option(min=-1, max=MAX_INT, help="How many partitions; -1 is the broker's default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(min=-1, max=MAX_SHORT, help="Replicas of each partition; -1 is the broker's default.")
    ] = -1,
    config: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A property of the topics; repeatable.")
    ] = None,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Create topics."""
    from millrace.client import Admin

    properties = parse_assignments(config or ())

    def create_one(name: str) -> None:
        with suggesting_properties(properties, partial(_known_properties, cluster)):
            Admin(cluster).create_topic(name, partitions, replication_factor, properties)
        topic = cluster.metadata([name]).topic(name)
        print_json(summary(topic)) if as_json else print(f"created {name} with {len(topic.partitions)} partition(s)")

    with access.open() as cluster:
        for_each(names, create_one)


def _known_properties(cluster: Cluster) -> set[str]:
    """Returns the properties of topics, as the cluster describes them for a topic that there is; none without one."""
    from millrace.client import Admin, Configs, ResourceKind

    some = next(iter(Admin(cluster).topics()), None)
    return set() if some is None else {one.name for one in Configs(cluster).describe(ResourceKind.TOPIC, some)}


app.command()(describe)


@app.command()
def extend(
    name: TopicName,
    *,
    partitions: Annotated[
        int, typer.Option(min=1, max=MAX_INT, help="How many partitions it has afterwards, never fewer than now.")
    ],
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Give a topic more partitions."""
    from millrace.client import Admin

    with access.open() as cluster:
        Admin(cluster).create_partitions(name, partitions)
        topic = cluster.metadata([name]).topic(name)
    print_json(summary(topic)) if as_json else print(f"{name} has {len(topic.partitions)} partition(s)")


@app.command("delete-records")
def delete_records(
    name: TopicName,
    *,
    before: Annotated[
        int | None, typer.Option(min=0, max=MAX_LONG, help="The offset of the first record that stays.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all records; asks first.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --all: do not ask.")] = False,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition; by default all of them.")] = None,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Delete the oldest records of a topic's partitions: those before an offset, or all."""
    from millrace.client import Admin

    if (before is None) != everything:
        raise typer.BadParameter("one of the two is needed", param_hint="--before / --all")
    with access.open() as cluster:
        indexes = list(cluster.metadata([name]).topic(name).partitions) if partition is None else [partition]
        if before is not None:
            _check_ends(cluster, name, indexes, before)
        else:
            subject = f"{name} in {len(indexes)} partition(s)" if partition is None else f"{name}-{partition}"
            if not confirm(f"Delete all records of {subject}?", is_confirmed=yes):
                raise SetupError("nothing was deleted")
        offset = ALL_RECORDS if before is None else before
        starts = [{"partition": one, "earliest": Admin(cluster).delete_records(name, one, offset)} for one in indexes]
    print_rows(starts, as_json=as_json, columns=("partition", "earliest"))


@app.command()
def delete(
    names: TopicNames,
    *,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Delete topics and all their records."""
    from millrace.client import Admin

    def delete_one(name: str) -> None:
        Admin(cluster).delete_topic(name)
        print_json({"deleted": name}) if as_json else print(f"deleted {name}")

    with access.open() as cluster:
        for_each(names, delete_one)


def _check_ends(cluster: Cluster, topic: str, partitions: list[int], before: int) -> None:
    """Raises OffsetOutOfRangeError if a partition ends before the offset; called before anything is deleted."""
    from millrace.client import SimpleConsumer

    consumer = SimpleConsumer(cluster)
    for one in partitions:
        end = consumer.latest(topic, one)
        if before > end:
            raise OffsetOutOfRangeError(f"--before {before}: {topic}-{one} ends at offset {end}; nothing was deleted")


@app.command()
def reassign(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="The topics' names.", autocompletion=complete_topic)
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All topics, the broker's own too.")] = False,
    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="A plan in the JSON of kafka-reassign-partitions.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    brokers: Annotated[
        str | None, typer.Option(metavar="ID[,...]", help="The brokers to spread over; all live ones by default.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, max=MAX_SHORT, help="Replicas of each partition; as many as now by default.")
    ] = None,
    throttle: Throttle = None,
    dry_run: DryRun = False,
    cancelled: Annotated[
        bool, typer.Option("--cancel", help="Cancel the moves under way; replicas stay where they were.")
    ] = False,
    wait: Wait = True,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Move partitions to other brokers, or change how many replicas they have.

    As few replicas as possible move, and brokers end with as many as each other, spread over racks. If the command is
    interrupted, the cluster goes on, and the same command watches it again.
    """
    from millrace_ops.replicas.cluster_state import read_cluster_state

    if [bool(names), everything, plan_file is not None].count(True) != 1:
        raise typer.BadParameter("one of the three is needed", param_hint="TOPIC / --all / --from")
    spread = {"--brokers": brokers, "--replication-factor": replication_factor}
    _check_not_beside("--cancel", cancelled, {**spread, "--throttle": throttle, "--dry-run": dry_run})
    _check_not_beside("--from", plan_file is not None, spread)
    with access.open() as cluster:
        if plan_file is not None:
            targets = _read_plan(plan_file, cluster)
            state = read_cluster_state(cluster, sorted({topic for topic, _ in targets}))
            for topic, index in sorted(targets.keys() - state.partitions.keys()):
                raise InvalidReplicaAssignmentError(f"{plan_file}: topic {topic} has no partition {index}")
        else:
            state = read_cluster_state(cluster, None if everything else list(dict.fromkeys(names or ())))
            targets = {} if cancelled else _spread(state, _broker_ids(brokers), replication_factor)
        if cancelled:
            cancel(cluster, state, targets or state.partitions, as_json=as_json)
        else:
            plan = plan_for(cluster, state, targets)
            carry_out_plan(cluster, plan, Options(dry_run, throttle, wait, as_json))


def _check_not_beside(option: str, is_given: bool, others: Mapping[str, object]) -> None:
    wrong = [name for name, value in others.items() if value]
    if is_given and wrong:
        raise typer.BadParameter(f"it has no meaning beside {option}", param_hint=wrong[0])


def _broker_ids(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r}: ids with commas between are expected", param_hint="--brokers") from None


def _spread(
    state: ClusterState, brokers: Sequence[int] | None, replication_factor: int | None
) -> dict[Partition, tuple[int, ...]]:
    """Returns the replicas that each partition should have, evenly spread over the brokers.

    Raises:
        InvalidReplicaAssignmentError: A broker is not alive, or there are too few.
    """
    from millrace_ops.replicas.placement import place

    current = {partition: state.assigned(partition) for partition in state.partitions}
    racks = state.racks
    if brokers is None:
        if gone := sorted({one for replicas in current.values() for one in replicas} - racks.keys()):
            raise InvalidReplicaAssignmentError(
                f"broker {gone[0]} has replicas and is not alive; start it, or name those to use with --brokers"
            )
    elif unknown := sorted(set(brokers) - racks.keys()):
        raise InvalidReplicaAssignmentError(f"broker {unknown[0]} is not alive")
    chosen = {one: rack for one, rack in racks.items() if brokers is None or one in brokers}
    return place(current, chosen, replication_factor=replication_factor)


def _read_plan(path: Path, cluster: Cluster) -> dict[Partition, tuple[int, ...]]:
    from millrace_ops.replicas.plan import parse_plan

    text = path.read_text(encoding="utf-8")
    try:
        return parse_plan(text, cluster.metadata([]).brokers)
    except InvalidReplicaAssignmentError as error:
        raise InvalidReplicaAssignmentError(f"{path}: {error}") from error
