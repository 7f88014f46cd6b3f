"""`millrace offsets from-legacy`: takes the offsets of a Kafka 0.7 group along, by the map that an import has left.

/consumers/GROUP/offsets/TOPIC/BROKER-PARTITION    a position in the 0.7 log of that broker
│ the map, and the log itself
▼
an offset of the topic that was imported           committed for the group
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.errors import GroupIdNotFoundError, SetupError
from millrace_ops.cli.dump import ReadOnlyFileSystem
from millrace_ops.cli.offsets import Group, InStore, OffsetStore, open_offsets
from millrace_ops.cli.options import ClusterAccess, Json, ZooKeeperAccess, open_zookeeper
from millrace_ops.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from millrace_ops.migration.import_map import Subject

COLUMNS = ("topic", "partition", "position", "now", "new")


def from_legacy(
    group: Group,
    *,
    map_file: Annotated[str, typer.Option("--map", metavar="FILE", help="The map that `import-legacy` has left.")],
    legacy_zookeeper: Annotated[
        str,
        typer.Option(metavar="HOST:PORT[,...][/chroot]", help="The ZooKeeper in which the 0.7 group has its offsets."),
    ],
    legacy_broker: Annotated[
        int | None,
        typer.Option(min=0, metavar="ID", help="The 0.7 broker whose logs were imported, where there are several."),
    ] = None,
    store: InStore = OffsetStore.KAFKA,
    zookeeper: ZooKeeperAccess,
    access: ClusterAccess,
    execute: Annotated[
        bool, typer.Option("--execute", help="Set the offsets; without it they are only shown.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Take the offsets of a Kafka 0.7 group along into a topic that `import-legacy` has made.

    Shows where each partition would go, until --execute says that it is to be done. The 0.7 logs have to be where they
    were imported from.
    """
    from millrace.client.consumer import Partition
    from millrace_ops.migration.import_map import offset_of, read_map
    from millrace_ops.migration.legacy_log import find_partitions

    fs = ReadOnlyFileSystem()
    subject, batches = read_map(fs, map_file)
    positions = _positions(group, subject, legacy_zookeeper, legacy_broker)
    logs = {one.partition: one for one in find_partitions(fs, subject.directory, subject.source_topic)}
    for number in sorted(positions.keys() - logs.keys()):
        typer.echo(f"partition {number} was not imported: its position {positions[number]} is left out", err=True)
    wanted = {
        Partition(subject.topic, number): offset_of(fs, logs[number], batches, position)
        for number, position in sorted(positions.items())
        if number in logs
    }
    with open_offsets(group, zookeeper, access) as offsets:
        offsets.refuse_members()
        now = offsets.read_sound(store, wanted)
        if execute:
            offsets.write(store, wanted)
    rows = [
        dict(zip(COLUMNS, (one.topic, one.number, positions[one.number], now.get(one), offset), strict=True))
        for one, offset in wanted.items()
    ]
    if as_json:
        print_json({"group": group, "store": store, "is_executed": execute, "partitions": rows})
    else:
        print_rows(rows, as_json=False, columns=COLUMNS)
    if not execute:
        typer.echo("nothing is changed yet: --execute sets these offsets", err=True)


def _positions(group: str, subject: Subject, address: str, broker: int | None) -> Mapping[int, int]:
    """Returns the group's positions in the logs of one 0.7 broker, by partition.

    Raises GroupIdNotFoundError without any, SetupError where there are several brokers' and none is chosen.
    """
    from millrace.client.consumer.group_offsets import read_legacy_positions
    from millrace.zk.security import UNSECURED

    with open_zookeeper(address, UNSECURED) as session:
        found = read_legacy_positions(session, group, subject.source_topic)
    if not found:
        raise GroupIdNotFoundError(f"ZooKeeper at {address} has no offsets of group {group} in {subject.source_topic}")
    brokers = sorted(found)
    if broker is None and len(brokers) > 1:
        listed = ", ".join(map(str, brokers))
        raise SetupError(f"group {group} has offsets in the logs of the brokers {listed}: name one by --legacy-broker")
    return found.get(brokers[0] if broker is None else broker, {})
