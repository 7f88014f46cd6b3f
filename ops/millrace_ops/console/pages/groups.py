"""Consumer groups: the list with lag, one group, and the reset of its offsets with a preview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from millrace.client import Cluster, Groups
from millrace.client.fetched import IsolationLevel
from millrace.client.groups import CONSUMER_PROTOCOL_TYPE, GroupListing
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.client.metadata import Partition
from millrace.errors import InvalidRequestError, MillraceError
from millrace_ops.console.console import Console
from millrace_ops.console.listing import listed
from millrace_ops.console.overview import total_lag
from millrace_ops.console.request import Asked, Page, Redirect
from millrace_ops.console.resets import TARGETS, carry_out, from_form, plan_reset, to_form


class GroupRow(NamedTuple):
    """A group in the list; `lag` is None where it has committed nothing, or the end of a log is not known."""

    group: GroupListing
    lag: int | None
    partitions: int


class PartitionRow(NamedTuple):
    """How far a group is in one partition, and who consumes it; what is None is not known."""

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
    """Returns what a reset would do; nothing is changed."""
    group_id, topic, target = asked.need("id"), asked.need("topic"), asked.need("target")
    if target not in TARGETS:
        raise InvalidRequestError(f"target={target}: expected one of {', '.join(TARGETS)}")
    with console.clusters.lent() as cluster:
        group = Groups(cluster).describe(group_id)
        moves = plan_reset(cluster, group_id, topic, target, asked.query.get("value", ""))
    values = {"group": group, "topic": topic, "query": asked.query, "moves": moves, "plan": to_form(moves)}
    return Page("reset.html", values)


def reset(console: Console, asked: Asked) -> Redirect:
    """Does what a preview has shown, and shows the group then."""
    if not console.settings.may_change:
        raise InvalidRequestError("the console is read-only")
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
