"""Jobs: moves of partitions, what writes into tables, loads that fail, and audits that a page has begun."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from millrace.client import Cluster
from millrace.client.log_dirs import describe_log_dirs, replica_bytes
from millrace.client.metadata import Partition
from millrace.client.reassignments import Reassignment, Reassignments
from millrace.errors import MillraceError
from millrace.fs import OsFileSystem
from millrace_ops.console.console import Console
from millrace_ops.console.pages.tables import table_locations_by_name
from millrace_ops.console.request import Asked, Page

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.delta.leases import Running
    from millrace_pipelines.warehouse.tables.failed_loads import FailedLoads

MAX_ROWS = 200
MAX_TABLES = 1_000


class MoveRow(NamedTuple):
    """A partition that moves; `done` is the part of the leader's bytes that the slowest new replica has."""

    topic: str
    partition: int
    reassignment: Reassignment
    done: float | None


class TableJobs(NamedTuple):
    """By the names of tables, what writes into them, and the failures of those whose newest load failed."""

    writers: list[tuple[str, Running]]
    failing: list[tuple[str, FailedLoads]]


def show_jobs(console: Console, _: Asked) -> Page:
    """Returns the page of all jobs."""
    trouble = ""
    moves: list[MoveRow] = []
    under_way: Mapping[Partition, Reassignment] = {}
    with console.clusters.lent() as cluster:
        try:
            under_way = Reassignments(cluster).list()
            moves = _moves(cluster, dict(sorted(under_way.items())[:MAX_ROWS]))
        except MillraceError as error:
            trouble = str(error)
    topics = console.watch.overview().topics.values()
    tables = _of_tables(console)
    values = {
        "moves": moves,
        "moves_total": len(under_way),
        "moves_trouble": trouble,
        "under_replicated": sum(one.under_replicated for one in topics),
        "writers": tables.writers,
        "failing": tables.failing[:MAX_ROWS],
        "failing_total": len(tables.failing),
        "audits": console.audits.under_way(),
    }
    return Page("jobs.html", values)


def _moves(cluster: Cluster, under_way: Mapping[Partition, Reassignment]) -> list[MoveRow]:
    if not under_way:
        return []
    metadata = cluster.metadata(sorted({topic for topic, _ in under_way}))
    sizes = {number: _sizes(cluster, number, under_way) for number in metadata.brokers}
    rows = []
    for one, reassignment in under_way.items():
        leader = metadata.topic(one[0]).partitions[one[1]].leader
        whole = sizes.get(leader, {}).get(one)
        copied = [sizes.get(number, {}).get(one, 0) for number in reassignment.adding]
        rows.append(MoveRow(*one, reassignment, part_done(copied, whole)))
    return rows


def _sizes(cluster: Cluster, broker_id: int, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
    """Returns the bytes of a broker's replicas; none where it does not tell."""
    try:
        return replica_bytes(describe_log_dirs(cluster, broker_id, partitions))
    except MillraceError:
        return {}


def part_done(copied: list[int], whole: int | None) -> float | None:
    """Returns the part of a replica that the slowest copy has, 0 to 1; None where that is not known."""
    if whole is None or not copied:
        return None
    return 1.0 if whole == 0 else min(1.0, min(copied) / whole)


def _of_tables(console: Console) -> TableJobs:
    """Returns what is to be said of MAX_TABLES tables at most; what reads them is loaded where there is a warehouse."""
    if not console.settings.warehouse:
        return TableJobs([], [])
    tables = sorted(table_locations_by_name(console.settings.warehouse).items())[:MAX_TABLES]
    from millrace_pipelines.warehouse.delta.leases import running  # noqa: PLC0415
    from millrace_pipelines.warehouse.tables.failed_loads import read_failed_loads  # noqa: PLC0415

    fs = OsFileSystem()
    writers = [(name, one) for name, location in tables for one in running(location, fs)]
    failed = [(name, read_failed_loads(location, fs)) for name, location in tables]
    return TableJobs(writers, [(name, one) for name, one in failed if one is not None])
