"""Jobs: moves and copies of replicas, what writes into tables, loads that fail, and audits that a page has begun."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from millrace.client.metadata import Partition
from millrace.client.reassignments import Reassignment, Reassignments
from millrace.errors import InvalidRequestError, MillraceError
from millrace.fs import OsFileSystem
from millrace_ops.console.console import Console
from millrace_ops.console.moves import MoveRow, copies_of, moves_of
from millrace_ops.console.pages.tables import table_locations_by_name
from millrace_ops.console.request import Asked, Page

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.delta.leases import Running
    from millrace_pipelines.warehouse.tables.failed_loads import FailedLoads

MAX_ROWS = 200
MAX_TABLES = 1_000


class TableJobs(NamedTuple):
    """What writes into tables, and the failures of tables whose newest load failed, each with the table's name.

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
    values = {
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


def _table_jobs(console: Console) -> TableJobs:
    """Returns the jobs of at most MAX_TABLES tables; imports what reads tables only if there is a warehouse."""
    if not console.settings.warehouse:
        return TableJobs([], [], [])
    try:
        tables = sorted(table_locations_by_name(console.settings.warehouse).items())[:MAX_TABLES]
    except InvalidRequestError as error:
        return TableJobs([], [], [], str(error))
    from millrace_pipelines.warehouse.delta.leases import running  # noqa: PLC0415
    from millrace_pipelines.warehouse.tables.failed_loads import read_failed_loads  # noqa: PLC0415

    found, fs = TableJobs([], [], []), OsFileSystem()
    for name, location in tables:
        try:
            found.writers.extend((name, one) for one in running(location, fs))
        except OSError as error:
            found.unread.append(f"What writes into {name} can't be read: {error}")
        if (failed := read_failed_loads(location, fs)) is not None:
            found.failing.append((name, failed))
    return found
