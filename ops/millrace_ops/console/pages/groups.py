"""Consumer groups: the list with lag, one group, and the reset of its offsets, done exactly as it was shown.

    GET    plan: topic and target ──► (partition, now, new), in a table and in the form
    POST   the plan as the form has it ──► compared with the group as it is by then ──► committed

A reset is refused while the group has members, who would go on from their own positions, and where an offset has
changed since the plan was shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from millrace.client import Cluster, Groups, SimpleConsumer
from millrace.client.fetched import IsolationLevel
from millrace.client.groups import CONSUMER_PROTOCOL_TYPE, GroupListing, GroupOffset
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.client.metadata import Partition
from millrace.config import MAX_INT, MAX_LONG, whole_number
from millrace.errors import InvalidRequestError, MillraceError
from millrace_ops.console.console import Console
from millrace_ops.console.overview import total_lag
from millrace_ops.console.pages.changes import check_may_change
from millrace_ops.console.request import Asked, Page, Redirect, listed, time_ms

EARLIEST, LATEST, OFFSET, TIME = "earliest", "latest", "offset", "time"
TARGETS = (EARLIEST, LATEST, OFFSET, TIME)
MAX_PARTITIONS = 2_000


class Move(NamedTuple):
    """The change of one committed offset: `now` is the present one, None for none, and `new` the one to commit."""

    topic: str
    partition: int
    now: int | None
    new: int


def plan_reset(cluster: Cluster, group: str, topic: str, target: str, value: str) -> list[Move]:
    """Returns the changes that set a group to an end, offset or time, by `target`; raises InvalidRequestError."""
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
    """Commits the new offsets of a reset; raises InvalidRequestError where the group has members or has moved since."""
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
    """Returns a planned reset as JSON for a hidden field of a form."""
    return json.dumps([list(one) for one in moves])


def from_form(text: str) -> list[Move]:
    """Returns the planned reset in a form's field; raises InvalidRequestError for any other text."""
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
    """Returns the offset that `target` and `value` of a reset mean; raises `log` where that is the leader's error."""
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


class GroupRow(NamedTuple):
    """A group in the list; `lag` is None where the group has committed nothing or a log's end is not known."""

    group: GroupListing
    lag: int | None
    partitions: int


class PartitionRow(NamedTuple):
    """A group in one partition: offset, lag and consumer; None stands for unknown."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member: str


def show_groups(console: Console, asked: Asked) -> Page:
    """Returns the page of all groups."""
    ends = console.watch.overview().ends
    with console.clusters.lent() as cluster:
        listing = listed(
            Groups(cluster).list(),
            asked.query,
            {
                "group": lambda one: one.group_id,
                "type": lambda one: one.protocol_type,
                "state": lambda one: one.state,
            },
            lambda one: f"{one.group_id} {one.state}",
        )
        rows = [_group_row(cluster, one, ends) for one in listing.rows]
    return Page("groups.html", {"listing": listing, "rows": rows})


def show_group(console: Console, asked: Asked) -> Page:
    """Returns the page of one group."""
    group_id = asked.need("id")
    with console.clusters.lent() as cluster:
        group = Groups(cluster).describe(group_id)
        members = {one: member.member_id for member in group.members for one in member.partitions}
        committed = {one: found.offset for one, found in Groups(cluster).offsets(group_id).items() if found.offset >= 0}
        logs = read_log_offsets(cluster, sorted({*members, *committed}), IsolationLevel.READ_UNCOMMITTED)
    rows = [_partition_row(one, committed.get(one), log, members.get(one, "")) for one, log in logs.items()]
    listing = listed(
        rows,
        asked.query,
        {
            "topic": lambda one: (one.topic, one.partition),
            "committed": lambda one: -1 if one.committed is None else one.committed,
            "lag": lambda one: -1 if one.lag is None else one.lag,
            "member": lambda one: one.member,
        },
        lambda one: f"{one.topic} {one.member}",
    )
    values = {
        "group": group,
        "listing": listing,
        "lag": total_lag(one.lag for one in rows if one.committed is not None),
        "topics": sorted({one.topic for one in rows}),
        "targets": TARGETS,
        "is_done": bool(asked.query.get("done")),
    }
    return Page("group.html", values)


def preview_reset(console: Console, asked: Asked) -> Page:
    """Returns the page that shows what a reset would change; nothing is changed."""
    group_id, topic, target = asked.need("id"), asked.need("topic"), asked.need("target")
    if target not in TARGETS:
        raise InvalidRequestError(f"target={target}: expected one of {', '.join(TARGETS)}")
    with console.clusters.lent() as cluster:
        group = Groups(cluster).describe(group_id)
        moves = plan_reset(cluster, group_id, topic, target, asked.query.get("value", ""))
    values = {"group": group, "topic": topic, "query": asked.query, "moves": moves, "plan": to_form(moves)}
    return Page("reset.html", values)


def reset(console: Console, asked: Asked) -> Redirect:
    """Commits the reset that a preview has shown, and sends the browser to the group's page."""
    check_may_change(console)
    group_id = asked.form.get("id", "")
    with console.clusters.lent() as cluster:
        carry_out(cluster, group_id, from_form(asked.form.get("plan", "")))
    return Redirect("group?" + urlencode({"id": group_id, "done": "1"}))


def _group_row(cluster: Cluster, group: GroupListing, ends: Mapping[Partition, int]) -> GroupRow:
    if group.protocol_type not in ("", CONSUMER_PROTOCOL_TYPE):
        return GroupRow(group, None, 0)
    try:
        offsets = {one: found.offset for one, found in Groups(cluster).offsets(group.group_id).items()}
    except MillraceError:  # it was deleted meanwhile, or may not be asked for
        return GroupRow(group, None, 0)
    lags = (max(0, ends[one] - at) if one in ends else None for one, at in offsets.items() if at >= 0)
    return GroupRow(group, total_lag(lags), len(offsets))


def _partition_row(key: Partition, committed: int | None, log: LogOffsets | MillraceError, member: str) -> PartitionRow:
    end = log.log_end if isinstance(log, LogOffsets) else None
    lag = None if end is None or committed is None else max(0, end - committed)
    return PartitionRow(*key, committed, end, lag, member)
