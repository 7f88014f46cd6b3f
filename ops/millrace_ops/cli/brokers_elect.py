"""`millrace brokers elect`: elects leaders."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_ops.cli.complete import complete_topic
from millrace_ops.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientConfig, Json, open_cluster
from millrace_ops.cli.output import print_json, print_table

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.client.elections import ElectionResult
    from millrace.client.metadata import Partition

POLL_INTERVAL_S = 0.05
COLUMNS = ("topic", "partition", "result", "leader")


def elect(
    *,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="A topic; repeatable.", autocompletion=complete_topic),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All topics; shows those that needed an election.")] = False,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Elect any live replica for partitions without a leader; records that it lacks are lost.",
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    as_json: Json = False,
) -> None:
    """Let the first replica of each partition lead it, if it is in sync."""
    from millrace.client.elections import ElectionType, elect_leaders
    from millrace_ops.replicas.cluster_state import read_cluster_state

    if bool(topics) == everything:
        raise typer.BadParameter("one of the two is needed", param_hint="--topic / --all")
    with open_cluster(bootstrap, client_config) as cluster:
        chosen = None if everything else read_cluster_state(cluster, list(dict.fromkeys(topics or ()))).partitions
        results = elect_leaders(cluster, ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED, chosen)
        leaders = _leaders(cluster, results, unclean=unclean)
    rows = [_row(one, leaders.get(one.partition)) for one in results]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(COLUMNS, (tuple(row.values()) for row in rows))
    else:
        print("no partition needed an election")
    _say_failures(results)


def _leaders(cluster: Cluster, results: Sequence[ElectionResult], *, unclean: bool) -> dict[Partition, int]:
    """Returns the leaders, once the brokers tell of the new ones, which they do a little later than the controller."""
    from millrace_ops.replicas.cluster_state import read_cluster_state
    from millrace_ops.replicas.health import has_leader

    topics = sorted({one.partition[0] for one in results})
    elected = [one.partition for one in results if one.is_elected]
    deadline = time.monotonic() + cluster.timeout_s
    while topics:
        partitions = read_cluster_state(cluster, topics).partitions
        new = [partitions[one] for one in elected]
        is_told = all(has_leader(one) and (unclean or one.leader == one.replicas[0]) for one in new)
        if is_told or time.monotonic() > deadline:
            return {one: partition.leader for one, partition in partitions.items()}
        time.sleep(POLL_INTERVAL_S)
    return {}


def _row(result: ElectionResult, leader: int | None) -> dict[str, object]:
    topic, index = result.partition
    outcome = "elected" if result.is_elected else "not needed" if result.is_unneeded else "failed"
    return {"topic": topic, "partition": index, "result": outcome, "leader": leader}


def _say_failures(results: Sequence[ElectionResult]) -> None:
    failed = [one for one in results if not (one.is_elected or one.is_unneeded)]
    sys.stdout.flush()
    for one in failed:
        print(f"millrace: {one.partition[0]}-{one.partition[1]}: {one.problem}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)
