"""Jobs: Dagster's runs, moves and copies of replicas, what writes into tables, loads that fail, and own audits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millrace.client import Cluster
from millrace.client.metadata import Partition
from millrace.client.replicas import LogDir, Reassignment, Reassignments, describe_log_dirs, replica_bytes
from millrace.errors import InvalidRequestError, MillraceError
from millrace_ops.console.console import Console
from millrace_ops.console.dagster import Run
from millrace_ops.console.pages.tables import table_locations_by_name
from millrace_ops.console.request import Asked, Page

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.stores.leases import Running
    from millrace_pipelines.warehouse.tables.find import FailedLoads


class MoveRow(NamedTuple):
    """A partition that moves; `done` is the part of the leader's bytes that the slowest new replica has."""

    topic: str
    partition: int
    reassignment: Reassignment
    done: float | None


class CopyRow(NamedTuple):
    """A replica that its broker copies from one data directory to another.

    `done` is the part of the replica's bytes that the copy has; `lag` is how many offsets it lacks.
    """

    topic: str
    partition: int
    broker: int
    origin: str
    target: str
    done: float | None
    lag: int


def moves_of(cluster: Cluster, under_way: Mapping[Partition, Reassignment]) -> list[MoveRow]:
    """Returns the progress of the reassignments that are under way."""
    if not under_way:
        return []
    metadata = cluster.metadata(sorted({topic for topic, _ in under_way}))
    sizes = {number: replica_bytes(_log_dirs(cluster, number, under_way)) for number in metadata.brokers}
    rows = []
    for one, reassignment in under_way.items():
        leader = metadata.topic(one[0]).partitions[one[1]].leader
        whole = sizes.get(leader, {}).get(one)
        copied = [sizes.get(number, {}).get(one, 0) for number in reassignment.adding]
        rows.append(MoveRow(*one, reassignment, part_done(copied, whole)))
    return rows


def copies_of(cluster: Cluster, copied: Iterable[tuple[int, Partition]]) -> list[CopyRow]:
    """Returns the progress of copies between data directories, by broker and partition, without ended ones."""
    by_broker: defaultdict[int, list[Partition]] = defaultdict(list)
    for broker, partition in copied:
        by_broker[broker].append(partition)
    return [row for broker, some in by_broker.items() for row in _copies(broker, _log_dirs(cluster, broker, some))]


def _copies(broker: int, log_dirs: Sequence[LogDir]) -> Iterator[CopyRow]:
    sizes = replica_bytes(log_dirs)
    origins = {partition: one.path for one in log_dirs for partition in one.replicas}
    for log_dir in log_dirs:
        for partition, copy in log_dir.copies.items():
            done = part_done([copy.size_bytes], sizes.get(partition))
            yield CopyRow(*partition, broker, origins.get(partition, ""), log_dir.path, done, copy.lag)


def _log_dirs(cluster: Cluster, broker_id: int, partitions: Iterable[Partition]) -> list[LogDir]:
    """Returns a broker's data directories; none if the request fails."""
    try:
        return describe_log_dirs(cluster, broker_id, partitions)
    except MillraceError:
        return []


def part_done(copied: list[int], whole: int | None) -> float | None:
    """Returns the least of the sizes `copied` as a part of the size `whole`, 0 to 1; None where either is unknown."""
    if whole is None or not copied:
        return None
    return 1.0 if whole == 0 else min(1.0, min(copied) / whole)


MAX_ROWS = 200
MAX_TABLES = 1_000


class TableJobs(NamedTuple):
    """The operations that write to tables, and failed newest loads, each with the table's name.

    `unread` has a sentence for each table whose writers can't be read, `trouble` one where tables can't be listed.
    """

    writers: list[tuple[str, Running]]
    failing: list[tuple[str, FailedLoads]]
    unread: list[str]
    trouble: str = ""


def show_jobs(console: Console, _: Asked) -> Page:
    """Returns the page of all jobs."""
    trouble = ""
    moves: list[MoveRow] = []
    under_way: Mapping[Partition, Reassignment] = {}
    overview = console.watch.overview()
    copied = [(broker, one) for broker, some in sorted(overview.copied.items()) for one in some]
    with console.clusters.lent() as cluster:
        try:
            under_way = Reassignments(cluster).list()
            moves = moves_of(cluster, dict(sorted(under_way.items())[:MAX_ROWS]))
        except MillraceError as error:
            trouble = str(error)
        copies = copies_of(cluster, copied[:MAX_ROWS])
    tables = _table_jobs(console)
    runs, runs_trouble = _runs(console)
    values = {
        "dagster_url": console.dagster.url,
        "runs": runs,
        "runs_trouble": runs_trouble,
        "moves": moves,
        "moves_total": len(under_way),
        "moves_trouble": trouble,
        "copies": copies,
        "copies_unseen": len(copied[MAX_ROWS:]),
        "under_replicated": sum(one.under_replicated for one in overview.topics.values()),
        "tables_trouble": tables.trouble,
        "writers_unread": tables.unread[:MAX_ROWS],
        "writers": tables.writers,
        "failing": tables.failing[:MAX_ROWS],
        "failing_total": len(tables.failing),
        "audits": console.audits.under_way(),
    }
    return Page("jobs.html", values)


def _runs(console: Console) -> tuple[list[Run], str]:
    """Returns Dagster's newest runs, and why they are not known, "" where they are or there is no Dagster."""
    if not console.dagster.url:
        return [], ""
    try:
        return console.dagster.runs(), ""
    except MillraceError as error:
        return [], str(error)


def _table_jobs(console: Console) -> TableJobs:
    """Returns the jobs of at most MAX_TABLES tables; imports the tables' code only if there is a warehouse."""
    if not console.settings.warehouse:
        return TableJobs([], [], [])
    try:
        tables = sorted(table_locations_by_name(console.settings.warehouse).items())[:MAX_TABLES]
    except InvalidRequestError as error:
        return TableJobs([], [], [], str(error))
    from millrace_pipelines.warehouse.stores.leases import running  # noqa: PLC0415
    from millrace_pipelines.warehouse.tables.find import read_failed_loads  # noqa: PLC0415

    found, fs = TableJobs([], [], []), console.fs
    for name, location in tables:
        try:
            found.writers.extend((name, one) for one in running(location, fs))
        except OSError as error:
            found.unread.append(f"What writes into {name} can't be read: {error}")
        if (failed := read_failed_loads(location, fs)) is not None:
            found.failing.append((name, failed))
    return found
