"""`millrace groups`: lists, describes and deletes groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from millrace.errors import BrokerError, ErrorCode, GroupIdNotFoundError, UnknownTopicError
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.options import (
    ClusterAccess,
    Json,
    ZooKeeperAccess,
    complete_group,
)
from millrace_ops.cli.output import for_each, print_json, print_rows, print_tables

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.client.groups import GroupListing

Row = Mapping[str, str | int | None]


class GroupRows(TypedDict):
    """The rows that are printed of a group in Kafka's or ZooKeeper's store."""

    group: str
    state: str
    type: str
    protocol: str | None
    members: Sequence[Row]
    partitions: Sequence[Row]


ZOOKEEPER = "zookeeper"
app = Commands(help="List, describe and delete consumer groups.")
Names = Annotated[list[str], typer.Argument(metavar="GROUP", help="The groups' ids.", autocompletion=complete_group)]


@app.command("list")
def list_groups(
    access: ClusterAccess,
    zookeeper: ZooKeeperAccess,
    *,
    as_json: Json = False,
) -> None:
    """List every group."""
    from millrace.client import Groups

    with access.open() as cluster:
        groups = sorted(Groups(cluster).list())
    if zookeeper.zookeeper is not None:
        groups += _in_zookeeper(zookeeper)
    rows = [{"group": one.group_id, "type": one.protocol_type, "state": one.state} for one in groups]
    print_rows(rows, as_json=as_json, columns=("group", "type", "state"), empty="there is no group")


@app.command()
def describe(
    names: Names,
    access: ClusterAccess,
    zookeeper: ZooKeeperAccess,
    *,
    as_json: Json = False,
) -> None:
    """Show groups' partitions: how far each has come, how much is left, and who consumes them.

    With --zookeeper also what ZooKeeper has of a group: a group that moves its offsets is in both places.
    """
    with access.open() as cluster:
        for_each(names, partial(_describe, cluster, zookeeper, as_json))


@app.command()
def delete(names: Names, *, access: ClusterAccess, as_json: Json = False) -> None:
    """Delete groups that have no members, and their committed offsets."""
    from millrace.client import Groups

    def delete_one(name: str) -> None:
        Groups(cluster).delete(name)
        print_json({"deleted": name}) if as_json else print(f"deleted {name}")

    with access.open() as cluster:
        for_each(names, delete_one)


def _describe(cluster: Cluster, zookeeper: ZooKeeperAccess, as_json: bool, name: str) -> None:
    """Prints what the coordinator and ZooKeeper have of a group; raises GroupIdNotFoundError if neither knows it."""
    found = []
    try:
        found.append(_in_coordinator(cluster, name))
    except BrokerError as error:
        if zookeeper.zookeeper is None or error.broker_code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    if zookeeper.zookeeper is not None and (coordinated := _of_zookeeper(cluster, zookeeper, name)):
        found.append(coordinated)
    if not found:
        raise GroupIdNotFoundError(f"there is no group {name}, neither at the broker nor in ZooKeeper")
    for group in found:
        if as_json:
            print_json(group)
        else:
            print(f"{name}  {group['state']}  {group['protocol'] or group['type'] or 'no members'}")
            print_tables(group["members"], group["partitions"])


def _in_coordinator(cluster: Cluster, name: str) -> GroupRows:
    from millrace.client import Groups

    group = Groups(cluster).describe(name)
    owners = {partition: member.member_id for member in group.members for partition in member.partitions}
    committed = {one: found.offset for one, found in Groups(cluster).offsets(name).items()}
    members: list[Row] = [
        {"member": one.member_id, "instance": one.instance_id, "client": one.client_id, "host": one.client_host}
        for one in group.members
    ]
    return {
        "group": name,
        "state": group.state,
        "type": group.protocol_type,
        "protocol": group.protocol,
        "members": members,
        "partitions": _partitions(cluster, committed, owners),
    }


def _in_zookeeper(zookeeper: ZooKeeperAccess) -> list[GroupListing]:
    from millrace.client.consumer.group_offsets import list_zookeeper_groups
    from millrace.client.groups import GroupListing

    with zookeeper.session() as session:
        found = list_zookeeper_groups(session)
    return [GroupListing(name, ZOOKEEPER, "Stable" if has_members else "Empty") for name, has_members in found]


def _of_zookeeper(cluster: Cluster, zookeeper: ZooKeeperAccess, name: str) -> GroupRows | None:
    from millrace.client.consumer.group_offsets import describe_zookeeper_group

    with zookeeper.session() as session:
        group = describe_zookeeper_group(session, name)
    if not (group.members or group.offsets):
        return None
    offsets = {(one.topic, one.number): offset for one, offset in group.offsets.items()}
    owners = {(one.topic, one.number): owner for one, owner in group.owners.items()}
    return {
        "group": name,
        "state": "Stable" if group.members else "Empty",
        "type": ZOOKEEPER,
        "protocol": None,
        "members": [{"member": member} for member in group.members],
        "partitions": _partitions(cluster, offsets, owners),
    }


def _partitions(
    cluster: Cluster, offsets: Mapping[tuple[str, int], int], owners: Mapping[tuple[str, int], str]
) -> list[Row]:
    """Returns a row for each partition that has an offset or an owner; one whose topic was deleted has no end."""
    from millrace.client import SimpleConsumer

    consumer = SimpleConsumer(cluster)
    rows: list[Row] = []
    for topic, index in sorted({*offsets, *owners}):
        committed = offsets.get((topic, index))
        try:
            end = consumer.latest(topic, index)
        except UnknownTopicError:
            end = None
        rows.append(
            {
                "topic": topic,
                "partition": index,
                "committed": committed,
                "latest": end,
                "lag": None if committed is None or end is None else max(end - committed, 0),
                "member": owners.get((topic, index)),
            }
        )
    return rows
