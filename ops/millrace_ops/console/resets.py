"""Where a reset moves the committed offsets of a group: planned, shown, and done exactly as it was shown.

    GET    plan: topic and target ──► (partition, now, new), in a table and in the form
    POST   the plan as the form has it ──► compared with the group as it is by then ──► committed

It is refused while the group has members, who would go on from their own positions, and where an offset has changed
since the plan was shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from millrace.client import Cluster, Groups, SimpleConsumer
from millrace.client.fetched import IsolationLevel
from millrace.client.groups import GroupOffset
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.client.metadata import Partition
from millrace.config import MAX_INT, MAX_LONG, whole_number
from millrace.errors import InvalidRequestError, MillraceError
from millrace_ops.console.request import time_ms

EARLIEST, LATEST, OFFSET, TIME = "earliest", "latest", "offset", "time"
TARGETS = (EARLIEST, LATEST, OFFSET, TIME)
MAX_PARTITIONS = 2_000


class Move(NamedTuple):
    """One partition: the committed offset, None for none, and the one that it gets."""

    topic: str
    partition: int
    now: int | None
    new: int


def plan_reset(cluster: Cluster, group: str, topic: str, target: str, value: str) -> list[Move]:
    """Returns the moves of a topic's partitions; raises InvalidRequestError for a target that makes no sense."""
    partitions = [(topic, one) for one in cluster.metadata([topic]).topic(topic).partitions]
    if len(partitions) > MAX_PARTITIONS:
        raise InvalidRequestError(f"{topic} has more than {MAX_PARTITIONS} partitions: use `millrace offsets reset`")
    logs = read_log_offsets(cluster, partitions, IsolationLevel.READ_UNCOMMITTED)
    times = _at_time(cluster, partitions, value) if target == TIME else {}
    committed = Groups(cluster).offsets(group)
    return [
        Move(*one, _offset(committed.get(one)), _new(log, target, value, times.get(one))) for one, log in logs.items()
    ]


def carry_out(cluster: Cluster, group: str, moves: Sequence[Move]) -> None:
    """Commits what was planned; raises InvalidRequestError where the group has members, or has changed since."""
    groups = Groups(cluster)
    if groups.describe(group).members:
        raise InvalidRequestError(
            f"group {group} has members, who would go on from their own positions: stop them first"
        )
    committed = groups.offsets(group)
    for one in moves:
        now = _offset(committed.get((one.topic, one.partition)))
        if now != one.now:
            raise InvalidRequestError(
                f"{one.topic}-{one.partition}: the committed offset is {now} by now, not {one.now} as it was shown; "
                "look at the preview again"
            )
    groups.commit(group, {(one.topic, one.partition): GroupOffset(one.new, "") for one in moves})


def to_form(moves: Sequence[Move]) -> str:
    """Returns the plan as a form carries it."""
    return json.dumps([list(one) for one in moves])


def from_form(text: str) -> list[Move]:
    """Returns the plan that a form carries. Raises InvalidRequestError for anything else."""
    try:
        rows = json.loads(text)
        moves = [Move(*row) for row in rows]
    except (ValueError, TypeError, RecursionError):
        raise InvalidRequestError("the form does not carry a preview") from None
    for one in moves:
        has_place = isinstance(one.topic, str) and _is_number(one.partition, MAX_INT)
        has_offsets = _is_number(one.new, MAX_LONG) and (one.now is None or _is_number(one.now, MAX_LONG))
        if not has_place or not has_offsets:
            raise InvalidRequestError("the form does not carry a preview")
    if not 0 < len(moves) <= MAX_PARTITIONS:
        raise InvalidRequestError(f"a reset is of 1 to {MAX_PARTITIONS} partitions")
    return moves


def _is_number(value: object, largest: int) -> bool:
    return type(value) is int and 0 <= value <= largest


def _at_time(cluster: Cluster, partitions: Sequence[Partition], value: str) -> Mapping[Partition, int | None]:
    consumer, at_ms = SimpleConsumer(cluster), time_ms(value)
    return {one: consumer.offset_for_time(*one, at_ms) for one in partitions}


def _new(log: LogOffsets | MillraceError, target: str, value: str, at_time: int | None) -> int:
    """Returns the new offset, inside the log."""
    if isinstance(log, MillraceError):
        raise log
    if target == EARLIEST:
        return log.start_offset
    if target == LATEST:
        return log.log_end
    if target == TIME:
        return log.log_end if at_time is None else at_time
    offset = whole_number(value.strip(), MAX_LONG)
    if target != OFFSET or offset is None:
        raise InvalidRequestError(f"{value!r} is no offset")
    return max(log.start_offset, min(offset, log.log_end))


def _offset(committed: GroupOffset | None) -> int | None:
    return None if committed is None or committed.offset < 0 else committed.offset
