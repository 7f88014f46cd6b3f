"""What `topics reassign` and `brokers drain` share: a plan is shown, begun, watched to its end, or cancelled."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from millrace.errors import ClientError, UnsupportedVersionError
from millrace_ops.cli.output import bars_of_bytes, print_json, print_table

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from millrace.client import Cluster
    from millrace.client.metadata import Partition
    from millrace_ops.replicas.carry_out import Progress
    from millrace_ops.replicas.cluster_state import ClusterState
    from millrace_ops.replicas.plan import Move, Plan

Throttle = Annotated[
    int | None,
    typer.Option(metavar="BYTES", min=1, help="Copy at most so many bytes a second from each broker, and to each."),
]
Wait = Annotated[bool, typer.Option(help="Wait until the partitions have moved.")]
GOES_ON = "the cluster goes on moving; the same command watches it again"


class Options(NamedTuple):
    """The choices of how a reassignment is carried out and printed."""

    dry_run: bool
    throttle: int | None
    wait: bool
    as_json: bool

    @property
    def is_awaited(self) -> bool:
        """Returns whether the command ends only when the partitions have moved."""
        return self.wait and not self.dry_run


def plan_for(cluster: Cluster, state: ClusterState, targets: Mapping[Partition, Sequence[int]]) -> Plan:
    """Returns the plan that gives partitions the replicas in `targets`, with the sizes that the leaders report."""
    from millrace_ops.replicas.cluster_state import by_broker, has_leader, read_replica_bytes
    from millrace_ops.replicas.plan import make_plan

    led = [(state.partitions[one].leader, one) for one in targets if has_leader(state.partitions[one])]
    sizes = read_replica_bytes(cluster, by_broker(led))
    return make_plan(state, targets, {partition: size for (_, partition), size in sizes.items()})


def carry_out_plan(cluster: Cluster, plan: Plan, options: Options) -> None:
    """Prints a plan and, unless it is a dry run, carries it out and waits, as the options say.

    Raises:
        ClientError: A move was refused, or did not come to its end.
    """
    if options.dry_run:
        _print_plan(plan, options)
        return
    if plan.moves and not options.as_json:
        print(_summary(plan, options.throttle), flush=True)
    _begin(cluster, plan, options.throttle)
    if options.wait:
        _await_end(cluster, plan)
        _end_throttles(cluster)
    if options.as_json:
        _print_plan(plan, options)
    elif not plan.moves:
        print("nothing to move")
    elif options.wait:
        print(f"moved {len(plan.moves)} partition(s)")
    else:
        print("the cluster moves them; the same command with --wait sees them to the end, and removes a throttle")


def cancel(cluster: Cluster, state: ClusterState, partitions: Iterable[Partition], *, as_json: bool) -> None:
    """Cancels all reassignments of the partitions, which then have the replicas that they had before.

    Raises:
        ClientError: A cancellation was refused.
    """
    from millrace.client.replicas import Reassignments

    moving = sorted(state.reassignments.keys() & set(partitions))
    refused = Reassignments(cluster).cancel(moving) if moving else {}
    _end_throttles(cluster)
    rows: list[dict[str, object]] = [
        {"topic": one[0], "partition": one[1], "replicas": list(state.origin(one))}
        for one in moving
        if one not in refused
    ]
    if as_json:
        print_json({"cancelled": rows})
    elif moving:
        print_table(("topic", "partition", "replicas"), (tuple(row.values()) for row in rows))
        print(f"cancelled {len(rows)} move(s)")
    else:
        print("nothing is being moved")
    _check_none_refused(refused, len(moving))


def _begin(cluster: Cluster, plan: Plan, throttle: int | None) -> None:
    from millrace_ops.replicas.carry_out import begin

    refused = begin(cluster, plan, throttle) if plan.moves else {}
    if refused:
        _end_throttles(cluster)
    _check_none_refused(refused, len(plan.to_begin))


def _await_end(cluster: Cluster, plan: Plan) -> None:
    from millrace_ops.replicas.carry_out import await_end, elect_preferred, not_arrived

    if not plan.moves:
        return
    try:
        with bars_of_bytes() as bars:
            tell = BarListener(bars).progressed if bars.console.is_terminal else LineListener().progressed
            await_end(cluster, plan.moves, tell)
            lost = not_arrived(cluster, plan.moves)
    except KeyboardInterrupt:
        print(f"millrace: {GOES_ON}", file=sys.stderr)
        raise
    _say_each({move.partition: "the move was cancelled or replaced by another one" for move in lost})
    arrived = [move for move in plan.moves if move not in lost]
    _say_each({one.partition: one.problem for one in elect_preferred(cluster, arrived)})
    if lost:
        raise ClientError(f"{len(lost)} of {len(plan.moves)} partition(s) were not moved")


def _end_throttles(cluster: Cluster) -> None:
    from millrace_ops.replicas.carry_out import end_finished_throttles

    try:
        topics = end_finished_throttles(cluster)
    except UnsupportedVersionError as error:
        print(f"millrace: throttles are left as they are: {error}", file=sys.stderr)
        return
    if topics:
        print(f"removed the throttle of {', '.join(topics)}", file=sys.stderr)


def _check_none_refused(refused: Mapping[Partition, str], count: int) -> None:
    _say_each(refused)
    if refused:
        raise ClientError(f"{len(refused)} of {count} partition(s) were refused")


def _say_each(problems: Mapping[Partition, str]) -> None:
    sys.stdout.flush()
    for (topic, index), problem in sorted(problems.items()):
        subject = f"{topic}-{index}"
        print(f"millrace: {problem if problem.startswith(subject) else f'{subject}: {problem}'}", file=sys.stderr)


def _print_plan(plan: Plan, options: Options) -> None:
    if options.as_json:
        duration_s = None if options.throttle is None else plan.duration_s(options.throttle)
        moves = [_row(move) for move in plan.moves]
        print_json({"version": 1, "partitions": moves, "bytes": plan.copied_bytes, "duration_s": duration_s})
        return
    if plan.moves:
        rows = [_row(move) for move in plan.moves]
        columns = ("topic", "partition", "from", "replicas", "bytes")
        print_table(columns, ([row[name] for name in columns] for row in rows))
    print(_summary(plan, options.throttle))


def _row(move: Move) -> dict[str, object]:
    """Returns a move as a row with the names of Kafka's plan files; `bytes` are what all new replicas copy together."""
    topic, index = move.partition
    return {
        "topic": topic,
        "partition": index,
        "replicas": list(move.target),
        "from": list(move.origin),
        "bytes": move.copied_bytes,
    }


def _summary(plan: Plan, throttle: int | None) -> str:
    if not plan.moves:
        return "nothing to move"
    text = f"{len(plan.moves)} partition(s), {plan.copied_bytes:,} bytes to copy"
    if throttle is None:
        return text
    duration = timedelta(seconds=round(plan.duration_s(throttle)))
    return f"{text}, about {duration} at {throttle:,} bytes a second"


class BarListener:
    """A bar of the bytes copied, after the count of partitions that are done."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._bar = bars.add_task("starting", total=None)

    def progressed(self, progress: Progress) -> None:
        """Moves the progress bar to the bytes copied; moves without bytes are counted by partitions."""
        counts_bytes = progress.total_bytes > 0
        self._bars.update(
            self._bar,
            completed=progress.copied_bytes if counts_bytes else progress.partitions_done,
            total=progress.total_bytes if counts_bytes else progress.partitions,
            description=f"{progress.partitions_done} of {progress.partitions} partition(s)",
        )


class LineListener:
    """Writes a line to stderr whenever a partition has moved."""

    def __init__(self) -> None:
        self._done = -1

    def progressed(self, progress: Progress) -> None:
        """Writes how many partitions are done, if that is another number than before."""
        if progress.partitions_done != self._done:
            self._done = progress.partitions_done
            done = f"{progress.partitions_done} of {progress.partitions} partition(s)"
            copied = f"{progress.copied_bytes:,} of {progress.total_bytes:,} bytes"
            print(f"{done}, {copied}", file=sys.stderr, flush=True)
