"""`millrace offsets`: exports, imports, sets and migrates a group's committed offsets.

A group keeps its offsets in the coordinator (`--store kafka`) or in ZooKeeper (`--store zookeeper --zookeeper …`).
A command that sets offsets is refused while the group has live members: they would go on from their own positions.
`import` and `reset` refuse a group that is not there, so that a mistyped name makes none, unless --create is given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.config import MAX_INT, MAX_LONG
from millrace.errors import GroupIdNotFoundError, InvalidConfigError
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.options import (
    ClusterAccess,
    Json,
    ZooKeeperAccess,
    complete_group,
    complete_topic,
)
from millrace_ops.cli.output import print_json, print_rows, print_table

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.client.consumer import Partition
    from millrace.client.consumer.group_offsets import GroupOffsets

app = Commands(help="Export, import, reset and migrate a group's committed offsets.")


class OffsetStore(StrEnum):
    """The store in which a group keeps its offsets."""

    KAFKA = "kafka"
    ZOOKEEPER = "zookeeper"


Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.", autocompletion=complete_group)]
InStore = Annotated[OffsetStore, typer.Option(help="Where the group keeps its offsets.")]
Create = Annotated[bool, typer.Option("--create", help="Create the group if it does not exist.")]


@app.command("export")
def export(
    group: Group,
    *,
    store: InStore = OffsetStore.KAFKA,
    zookeeper: ZooKeeperAccess,
    access: ClusterAccess,
) -> None:
    """Print the offsets, one JSON object a line, as `import` reads them."""
    with open_offsets(group, zookeeper, access) as offsets:
        for line in _rows(offsets.read(store)):
            print_json(line)


@app.command("import")
def import_(
    group: Group,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` has printed.")],
    *,
    store: InStore = OffsetStore.KAFKA,
    zookeeper: ZooKeeperAccess,
    access: ClusterAccess,
    create: Create = False,
    as_json: Json = False,
) -> None:
    """Set the offsets that a file names; the others stay."""
    wanted = _parsed(path)
    with open_offsets(group, zookeeper, access) as offsets:
        _check_exists(group, offsets, store, create=create)
        offsets.write(store, wanted)
    print_rows(_rows(wanted), as_json=as_json, columns=("topic", "partition", "offset"))


@app.command("reset")
def reset(
    group: Group,
    topic: Annotated[
        list[str],
        typer.Option(help="The topic whose offsets are set; repeatable.", autocompletion=complete_topic),
    ],
    *,
    to: Annotated[str, typer.Option(metavar="earliest|latest|OFFSET|TIME", help="Where they go; TIME is ISO 8601.")],
    store: InStore = OffsetStore.KAFKA,
    zookeeper: ZooKeeperAccess,
    access: ClusterAccess,
    execute: Annotated[
        bool, typer.Option("--execute", help="Set the offsets; without it they are only shown.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be set, as without --execute.")
    ] = False,
    create: Create = False,
    as_json: Json = False,
) -> None:
    """Set the offsets of all partitions of topics: to the ends of their logs, a number, or a time.

    Shows where each partition is now and where it would go, until --execute says that it is to be done.
    """
    if execute and dry_run:
        raise typer.BadParameter("not together with --dry-run", param_hint="--execute")
    with access.open() as cluster:
        wanted = _targets(cluster, topic, to)
    with open_offsets(group, zookeeper, access) as offsets:
        _check_exists(group, offsets, store, create=create)
        offsets.refuse_members()
        now = offsets.read_sound(store, wanted)
        if execute:
            offsets.write(store, wanted)
    rows = [
        {"topic": one.topic, "partition": one.number, "now": now.get(one), "new": offset}
        for one, offset in sorted(wanted.items())
    ]
    if as_json:
        print_json({"group": group, "store": store, "is_executed": execute, "partitions": rows})
    else:
        print_table(tuple(rows[0]), [tuple(row.values()) for row in rows])
    if not execute:
        typer.echo("nothing is changed yet: --execute sets these offsets", err=True)


@app.command("migrate")
def migrate(
    group: Group,
    *,
    to: Annotated[OffsetStore, typer.Option(help="Where the group keeps its offsets from now on.")],
    zookeeper: ZooKeeperAccess,
    access: ClusterAccess,
    verify_only: Annotated[
        bool, typer.Option("--verify", help="Only compare the two; exit status 1 where they differ.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Copy the offsets of a group without live members to the other store, and read them back.

    A group that runs on is migrated by its members: offsets.storage and dual.commit.enabled (docs/consumer-groups.md);
    `--verify` shows how far both stores are.
    """
    source = OffsetStore.ZOOKEEPER if to is OffsetStore.KAFKA else OffsetStore.KAFKA
    with open_offsets(group, zookeeper, access) as offsets:
        if not verify_only:
            offsets.write(to, offsets.read(source), only_forward=True)
        found = {store: offsets.read(store) for store in OffsetStore}
    behind = [one for one, offset in found[source].items() if found[to].get(one, -1) < offset]
    rows = [
        {
            "topic": one.topic,
            "partition": one.number,
            **{store.value: found[store].get(one) for store in OffsetStore},
        }
        for one in sorted({*found[source], *found[to]})
    ]
    if as_json:
        print_json({"group": group, "to": to, "is_complete": not behind, "partitions": rows})
    else:
        print_table(
            ("topic", "partition", *OffsetStore),
            [["-" if cell is None else cell for cell in row.values()] for row in rows],
        )
        print(f"{to} is behind in {len(behind)} partitions" if behind else f"{to} has all that {source} has")
    raise typer.Exit(int(bool(behind)))


def open_offsets(group: str, zookeeper: ZooKeeperAccess, access: ClusterAccess) -> GroupOffsets:
    """Returns the offsets of a group as a context manager, with ZooKeeper where the options name one."""
    from millrace.client.consumer.group_offsets import GroupOffsets
    from millrace.security.client_config import read_client_security

    return GroupOffsets(
        group,
        zookeeper=zookeeper.zookeeper,
        bootstrap=access.bootstrap,
        security=read_client_security(access.client_config),
        zookeeper_security=zookeeper.security,
        waiting=access.waiting(),
    )


def _check_exists(group: str, offsets: GroupOffsets, store: OffsetStore, *, create: bool) -> None:
    """Raises GroupIdNotFoundError for a group that the store lacks (a mistyped name?), unless `create` is set."""
    if not create and not offsets.exists(store):
        raise GroupIdNotFoundError(f"group {group} does not exist; --create makes one")


def _rows(offsets: Mapping[Partition, int]) -> list[dict[str, str | int]]:
    return [{"topic": one.topic, "partition": one.number, "offset": offset} for one, offset in sorted(offsets.items())]


def _parsed(path: Path) -> dict[Partition, int]:
    from millrace.client.consumer import Partition

    offsets: dict[Partition, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidConfigError(f"{path}, line {number}: no offset of a partition: {error}") from None
        match fields:
            case {"topic": str(topic), "partition": index, "offset": offset} if type(index) is type(offset) is int:
                partition = Partition(topic, index)
            case _:
                raise InvalidConfigError(f"{path}, line {number}: no offset of a partition: {fields!r}")
        if not 0 <= partition.number <= MAX_INT or not 0 <= offset <= MAX_LONG:
            raise InvalidConfigError(f"{path}, line {number}: there is no such partition, or no such offset")
        offsets[partition] = offset
    return offsets


def _targets(cluster: Cluster, topics: list[str], to: str) -> dict[Partition, int]:
    """Returns the new offset of each partition; one beyond the ends of its log becomes the nearer end."""
    from millrace.client import SimpleConsumer
    from millrace.client.consumer import Partition
    from millrace.client.fetched import IsolationLevel
    from millrace_ops.cli.consume_read import TopicReader, parse_start

    consumer, start = SimpleConsumer(cluster), parse_start(to, "--to")
    targets: dict[Partition, int] = {}
    for topic in topics:
        reader = TopicReader(cluster, topic, IsolationLevel.READ_UNCOMMITTED)
        for number in reader.partitions():
            offset = reader.first_offset(number, start)
            bounds = consumer.earliest(topic, number), consumer.latest(topic, number)
            targets[Partition(topic, number)] = min(max(offset, bounds[0]), bounds[1])
    return targets
