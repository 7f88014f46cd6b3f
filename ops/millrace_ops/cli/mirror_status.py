"""`millrace mirror status`: how far each mirrored topic is, and whether any instance runs (`mirror.status`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_ops.cli.mirror_options import MirrorAccess, MirroredTopics
from millrace_ops.cli.options import CLOCK, Json
from millrace_ops.cli.output import iso_time, one_line, print_json, print_table

if TYPE_CHECKING:
    from millrace_pipelines.mirror.settings import MirrorSettings
    from millrace_pipelines.mirror.status import MirrorStatus, PartitionStatus, TopicStatus

PATIENCE_MS = 5_000  # with a cluster that does not answer
COLUMNS = ("topic", "target topic", "way", "state", "partitions", "lag", "held back", "newest", "changed", "reason")
OF_PARTITIONS = (
    "topic",
    "partition",
    "source end",
    "mirrored end",
    "target end",
    "lag",
    "held back",
    "newest",
    "reason",
)


def status(
    names: MirroredTopics = None,
    *,
    access: MirrorAccess,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="A line for each partition, too.")] = False,
    as_json: Json = False,
) -> None:
    """Show how far the mirrored topics are; exit status 1 if one has stopped, or a source can't be reached.

    A topic is stopped as a whole, or partitions of it alone. Held back are offsets behind the begin of an open
    transaction of the source: they are copied once it ends. Where the source is away, the lag is that of its last known
    end.
    """
    from millrace_pipelines.mirror.states import State

    settings = access.settings()
    found = list(_statuses(settings, names or []))
    topics = [one for _, each in found for one in each.topics]
    if as_json:
        print_json([_json(one, each) for one, each in found])
    else:
        for source, one in found:
            _tell(source, one)
        print_table(COLUMNS, [_row(one) for one in topics], empty="no topic is mirrored")
        if (verbose or names) and topics:
            print()
            print_table(OF_PARTITIONS, [_partition(one, each) for one in topics for each in one.partitions])
    is_well = all(one.state.state is not State.STOPPED and not one.stopped for one in topics) and not any(
        one.source_error for _, one in found
    )
    raise typer.Exit(0 if is_well else 1)


def _statuses(settings: MirrorSettings, names: list[str]) -> Iterator[tuple[str, MirrorStatus]]:
    from millrace_pipelines.mirror.states import States
    from millrace_pipelines.mirror.status import read_status
    from millrace_pipelines.mirror.steering import chosen

    patience = {"request.timeout.ms": str(PATIENCE_MS)}
    target_side = replace(settings.target, properties=patience | dict(settings.target.properties))
    with target_side.cluster() as target:
        states = chosen(States(target).read(), {one.name for one in settings.sources}, names)
        for side in settings.sources:
            own = [one for one in states if one.source == side.name and (names or side.has_topic(one.topic))]
            with replace(side, properties=patience | dict(side.properties)).cluster() as source:
                yield side.name, read_status(side.name, source, target, own)


def _tell(source: str, status: MirrorStatus) -> None:
    sys.stdout.flush()
    if not status.instances:
        print(f"millrace: no instance of the mirror {source} runs", file=sys.stderr)
    if status.source_error:
        since = f", as it was at {iso_time(status.known_ms)}" if status.known_ms >= 0 else ""
        reason = one_line(status.source_error)
        print(f"millrace: source {source} can't be reached: lag is that of its last known end{since}: {reason}",
              file=sys.stderr)  # fmt: skip


def _row(topic: TopicStatus) -> tuple[object, ...]:
    state = topic.state
    return (
        state.key,
        state.target_topic,
        state.way.value,
        f"{state.state}, {len(topic.stopped)} stopped" if topic.stopped else state.state.value,
        len(topic.partitions),
        topic.lag,
        topic.held_back,
        _ago(topic.newest_ms),
        iso_time(state.changed_ms),
        topic.reason or None,
    )


def _partition(topic: TopicStatus, one: PartitionStatus) -> tuple[object, ...]:
    return (
        topic.state.key,
        one.partition,
        one.source_end,
        one.mirrored_end,
        one.target_end,
        one.lag,
        one.held_back,
        _ago(one.newest_ms),
        one.stop or one.error or None,
    )


def _ago(timestamp_ms: int) -> str | None:
    return None if timestamp_ms < 0 else f"{max(CLOCK.now_ms() - timestamp_ms, 0) / 1000:.1f} s ago"


def _json(source: str, status: MirrorStatus) -> dict[str, object]:
    return {
        "source": source,
        "instances": status.instances,
        "source_error": status.source_error or None,
        "source_known_ms": None if status.known_ms < 0 else status.known_ms,
        "topics": [
            {
                "topic": one.state.topic,
                "target_topic": one.state.target_topic,
                "way": one.state.way,
                "state": one.state.state,
                "reason": one.reason or None,
                "lag": one.lag,
                "held_back": one.held_back,
                "newest_ms": None if one.newest_ms < 0 else one.newest_ms,
                "changed_ms": one.state.changed_ms,
                "partitions": [
                    {
                        "partition": each.partition,
                        "source_end": each.source_end,
                        "mirrored_end": each.mirrored_end,
                        "target_end": each.target_end,
                        "lag": each.lag,
                        "held_back": each.held_back,
                        "newest_ms": None if each.newest_ms < 0 else each.newest_ms,
                        "error": each.error or None,
                        "stopped": each.stop or None,
                    }
                    for each in one.partitions
                ],
            }
            for one in status.topics
        ],
    }
