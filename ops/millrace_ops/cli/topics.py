"""`millrace topics`: lists, creates, describes, extends, moves and deletes topics, and deletes records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millrace.config import MAX_INT, MAX_LONG
from millrace.errors import OffsetOutOfRangeError, SetupError
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.complete import TopicName, TopicNames
from millrace_ops.cli.confirm import confirm
from millrace_ops.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientConfig, Json, open_cluster
from millrace_ops.cli.output import print_json, print_table
from millrace_ops.cli.several import for_each
from millrace_ops.cli.topics_describe import describe, summary

if TYPE_CHECKING:
    from millrace.client import Cluster

MAX_SHORT = 2**15 - 1
ALL_RECORDS = -1
app = Commands(help="List, create, describe, extend, move and delete topics.")


@app.command("list")
def list_topics(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, client_config: ClientConfig = None, as_json: Json = False
) -> None:
    """List every topic."""
    from millrace.client import Admin

    with open_cluster(bootstrap, client_config) as cluster:
        topics = sorted(Admin(cluster).topics().values(), key=lambda topic: topic.name)
    if as_json:
        print_json([summary(topic) for topic in topics])
    else:
        print_table(("topic", "partitions", "replicas", "id"), (tuple(summary(topic).values()) for topic in topics))


@app.command()
def create(
    names: TopicNames,
    *,
    partitions: Annotated[
        int, typer.Option(min=-1, max=MAX_INT, help="How many partitions; -1 is the broker's default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(min=-1, max=MAX_SHORT, help="Replicas of each partition; -1 is the broker's default.")
    ] = -1,
    config: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A property of the topics; repeatable.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    as_json: Json = False,
) -> None:
    """Create topics."""
    from millrace.client import Admin
    from millrace.config import parse_assignments

    properties = parse_assignments(config or ())

    def create_one(name: str) -> None:
        Admin(cluster).create_topic(name, partitions, replication_factor, properties)
        topic = cluster.metadata([name]).topic(name)
        print_json(summary(topic)) if as_json else print(f"created {name} with {len(topic.partitions)} partition(s)")

    with open_cluster(bootstrap, client_config) as cluster:
        for_each(names, create_one)


app.command()(describe)


@app.command()
def extend(
    name: TopicName,
    *,
    partitions: Annotated[
        int, typer.Option(min=1, max=MAX_INT, help="How many partitions it has afterwards, never fewer than now.")
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    as_json: Json = False,
) -> None:
    """Give a topic more partitions."""
    from millrace.client import Admin

    with open_cluster(bootstrap, client_config) as cluster:
        Admin(cluster).create_partitions(name, partitions)
        topic = cluster.metadata([name]).topic(name)
    print_json(summary(topic)) if as_json else print(f"{name} has {len(topic.partitions)} partition(s)")


@app.command("delete-records")
def delete_records(
    name: TopicName,
    *,
    before: Annotated[
        int | None, typer.Option(min=0, max=MAX_LONG, help="The offset of the first record that stays.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all records; asks first.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --all: do not ask.")] = False,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition; by default all of them.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    as_json: Json = False,
) -> None:
    """Delete the oldest records of a topic's partitions: those before an offset, or all."""
    from millrace.client import Admin

    if (before is None) != everything:
        raise typer.BadParameter("one of the two is needed", param_hint="--before / --all")
    with open_cluster(bootstrap, client_config) as cluster:
        indexes = list(cluster.metadata([name]).topic(name).partitions) if partition is None else [partition]
        if before is not None:
            _check_ends(cluster, name, indexes, before)
        elif not confirm(f"Delete all records of {_subject(name, indexes, partition)}?", is_confirmed=yes):
            raise SetupError("nothing was deleted")
        offset = ALL_RECORDS if before is None else before
        starts = [{"partition": one, "earliest": Admin(cluster).delete_records(name, one, offset)} for one in indexes]
    if as_json:
        print_json(starts)
    else:
        print_table(("partition", "earliest"), (tuple(start.values()) for start in starts))


@app.command()
def delete(
    names: TopicNames,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    as_json: Json = False,
) -> None:
    """Delete topics and all their records."""
    from millrace.client import Admin

    def delete_one(name: str) -> None:
        Admin(cluster).delete_topic(name)
        print_json({"deleted": name}) if as_json else print(f"deleted {name}")

    with open_cluster(bootstrap, client_config) as cluster:
        for_each(names, delete_one)


def _check_ends(cluster: Cluster, topic: str, partitions: list[int], before: int) -> None:
    """Raises OffsetOutOfRangeError, before anything is deleted, if a partition ends before the offset."""
    from millrace.client import SimpleConsumer

    consumer = SimpleConsumer(cluster)
    for one in partitions:
        end = consumer.latest(topic, one)
        if before > end:
            raise OffsetOutOfRangeError(f"--before {before}: {topic}-{one} ends at offset {end}; nothing was deleted")


def _subject(topic: str, partitions: list[int], chosen: int | None) -> str:
    return f"{topic} in {len(partitions)} partition(s)" if chosen is None else f"{topic}-{chosen}"
