"""`millrace groups`: list, describe, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace_ops.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from millrace_ops.cli.output import print_json, print_table

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.client.groups import GroupDescription

app = typer.Typer(no_args_is_help=True, help="List, describe and delete consumer groups.")
Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]


@app.command("list")
def list_groups(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List every group."""
    from millrace.client import Cluster, Groups

    with Cluster(bootstrap) as cluster:
        groups = sorted(Groups(cluster).list())
    if as_json:
        print_json([{"group": one.group_id, "type": one.protocol_type, "state": one.state} for one in groups])
    else:
        print_table(("group", "type", "state"), groups)


@app.command()
def describe(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show a group's partitions: how far it has come, how much is left, and who consumes them."""
    from millrace.client import Cluster, Groups

    with Cluster(bootstrap) as cluster:
        group = Groups(cluster).describe(name)
        rows = _partitions(cluster, group)
    members = [
        {"member": one.member_id, "instance": one.instance_id, "client": one.client_id, "host": one.client_host}
        for one in group.members
    ]
    if as_json:
        summary = {"group": name, "state": group.state, "type": group.protocol_type, "protocol": group.protocol}
        print_json({**summary, "members": members, "partitions": rows})
        return
    print(f"{name}  {group.state}  {group.protocol or group.protocol_type or 'no members'}")
    for table in (members, rows):
        if table:
            print_table(tuple(table[0]), (tuple(_shown(cell) for cell in row.values()) for row in table))


@app.command()
def delete(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Delete a group that has no members, and its committed offsets."""
    from millrace.client import Cluster, Groups

    with Cluster(bootstrap) as cluster:
        Groups(cluster).delete(name)
    print_json({"deleted": name}) if as_json else print(f"deleted {name}")


def _partitions(cluster: Cluster, group: GroupDescription) -> list[dict[str, Any]]:
    """A row for each partition that has an offset or a member."""
    from millrace.client import Groups, SimpleConsumer

    offsets, consumer = Groups(cluster).offsets(group.group_id), SimpleConsumer(cluster)
    owners = {partition: member.member_id for member in group.members for partition in member.partitions}
    rows = []
    for topic, index in sorted({*offsets, *owners}):
        committed = offsets[topic, index].offset if (topic, index) in offsets else None
        end = consumer.latest(topic, index)
        rows.append(
            {
                "topic": topic,
                "partition": index,
                "committed": committed,
                "latest": end,
                "lag": None if committed is None else max(end - committed, 0),
                "member": owners.get((topic, index)),
            }
        )
    return rows


def _shown(cell: object) -> object:
    return "-" if cell is None else cell
