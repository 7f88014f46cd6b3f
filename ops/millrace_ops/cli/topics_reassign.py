"""`millrace topics reassign`: moves partitions to other brokers, and changes how many replicas they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.errors import InvalidReplicaAssignmentError
from millrace_ops.cli.options import ClusterAccess, DryRun, Json, complete_topic
from millrace_ops.cli.reassignment import Options, Throttle, Wait, cancel, carry_out_plan, plan_for

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.client.metadata import Partition
    from millrace_ops.replicas.cluster_state import ClusterState

MAX_SHORT = 2**15 - 1


def reassign(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="The topics' names.", autocompletion=complete_topic)
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All topics, the broker's own too.")] = False,
    plan_file: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="A plan in the JSON of kafka-reassign-partitions.", dir_okay=False),
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
