"""`millrace groups`: list, describe, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace_ops.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, ZooKeeper
from millrace_ops.cli.output import print_json, print_table

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.client.groups import GroupListing

ZOOKEEPER = "zookeeper"
app = typer.Typer(no_args_is_help=True, help="List, describe and delete consumer groups.")
Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]


@app.command("list")
def list_groups(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, *, zookeeper: ZooKeeper = None, as_json: Json = False
) -> None:
    """List every group."""
    from millrace.client import Cluster, Groups

    with Cluster(bootstrap) as cluster:
        groups = sorted(Groups(cluster).list())
    if zookeeper is not None:
        groups += _in_zookeeper(zookeeper)
    if as_json:
        print_json([{"group": one.group_id, "type": one.protocol_type, "state": one.state} for one in groups])
    else:
        print_table(("group", "type", "state"), groups)


@app.command()
def describe(
    name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, *, zookeeper: ZooKeeper = None, as_json: Json = False
) -> None:
    """Show a group's partitions: how far it has come, how much is left, and who consumes them."""
    from millrace.client import Cluster, Groups

    if zookeeper is not None:
        _describe_in_zookeeper(name, zookeeper, bootstrap, as_json)
        return
    with Cluster(bootstrap) as cluster:
        group = Groups(cluster).describe(name)
        owners = {partition: member.member_id for member in group.members for partition in member.partitions}
        committed = {one: found.offset for one, found in Groups(cluster).offsets(name).items()}
        rows = _partitions(cluster, committed, owners)
    members = [
        {"member": one.member_id, "instance": one.instance_id, "client": one.client_id, "host": one.client_host}
        for one in group.members
    ]
    if as_json:
        summary = {"group": name, "state": group.state, "type": group.protocol_type, "protocol": group.protocol}
        print_json({**summary, "members": members, "partitions": rows})
        return
    print(f"{name}  {group.state}  {group.protocol or group.protocol_type or 'no members'}")
    _print_tables(members, rows)


@app.command()
def delete(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Delete a group that has no members, and its committed offsets."""
    from millrace.client import Cluster, Groups

    with Cluster(bootstrap) as cluster:
        Groups(cluster).delete(name)
    print_json({"deleted": name}) if as_json else print(f"deleted {name}")


def _in_zookeeper(zookeeper: str) -> list[GroupListing]:
    from millrace.client.connector.group_offsets import list_zookeeper_groups, open_session
    from millrace.client.groups import GroupListing

    session = open_session(zookeeper)
    try:
        found = list_zookeeper_groups(session)
    finally:
        session.close()
    return [GroupListing(name, ZOOKEEPER, "Stable" if has_members else "Empty") for name, has_members in found]


def _describe_in_zookeeper(name: str, zookeeper: str, bootstrap: str, as_json: bool) -> None:
    from millrace.client import Cluster
    from millrace.client.connector.group_offsets import describe_zookeeper_group, open_session
    from millrace.errors import GroupIdNotFoundError

    session = open_session(zookeeper)
    try:
        group = describe_zookeeper_group(session, name)
    finally:
        session.close()
    if not (group.members or group.offsets):
        raise GroupIdNotFoundError(f"group {name} is not in ZooKeeper")
    with Cluster(bootstrap) as cluster:
        offsets = {(one.topic, one.number): offset for one, offset in group.offsets.items()}
        owners = {(one.topic, one.number): owner for one, owner in group.owners.items()}
        rows = _partitions(cluster, offsets, owners)
    state = "Stable" if group.members else "Empty"
    members = [{"member": member} for member in group.members]
    if as_json:
        print_json({"group": name, "state": state, "type": ZOOKEEPER, "members": members, "partitions": rows})
        return
    print(f"{name}  {state}  {ZOOKEEPER}")
    _print_tables(members, rows)


def _partitions(
    cluster: Cluster, offsets: Mapping[tuple[str, int], int], owners: Mapping[tuple[str, int], str]
) -> list[dict[str, Any]]:
    """A row for each partition that has an offset or an owner; one whose topic is gone has no end."""
    from millrace.client import SimpleConsumer
    from millrace.errors import UnknownTopicError

    consumer, rows = SimpleConsumer(cluster), []
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


def _print_tables(*tables: list[dict[str, Any]]) -> None:
    for table in tables:
        if table:
            print_table(tuple(table[0]), (tuple(_shown(cell) for cell in row.values()) for row in table))


def _shown(cell: object) -> object:
    return "-" if cell is None else cell
