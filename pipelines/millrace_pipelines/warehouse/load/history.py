"""What each commit of a table did: what a load's and a reload's say of themselves, and what is read of all commits.

Every lineage has a `kind`. That of a load has its ranges, with the offsets of each accounted for, and the offsets that
it goes on without (`lost`, and within the ranges `missing`). Where not all offsets of the ranges gave a row or a dead
letter, `recorded` keeps those that did (`delta.offset_sets`). `ledger` names the ledger that it moved. A reload is a
load of the earlier offsets that it added; those that it replaced move no ledger. A commit without a kind, of an older
version, is a load. Where a scheduler's run loaded, `run_id` names it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from millrace_pipelines.warehouse.delta.commits import Commit, commits_after, read_commit
from millrace_pipelines.warehouse.delta.lineage import Lineage, of_run
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import Ledger
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import LoadReport, ReloadReport

LOAD = "load"
UNTOLD = ("table", "version", "group", "group_error", "upserted")
RELOAD = "reload"
COMMITS_AT_ONCE = 100
LOOKED_BACK = 100


def lineage_of_load(options: LoadOptions, ledger: Ledger, report: LoadReport, time_ms: int) -> dict[str, object]:
    """Returns all that a load's report says, where it comes from, and when."""
    facts = {name: fact for name, fact in asdict(report).items() if name not in UNTOLD}
    return (
        facts
        | of_run(options.run_id)
        | {
            "kind": LOAD,
            "time_ms": time_ms,
            "topic_id": ledger.topic_id,
            "ledger": ledger.name,
            "isolation": options.isolation,
            "reader": options.reader,
            "lost": [span._asdict() for span in report.lost],
            "missing": [span._asdict() for span in report.missing],
        }
    )


def lineage_of_reload(options: LoadOptions, load_id: str, report: ReloadReport, time_ms: int) -> dict[str, object]:
    """Returns which earlier offsets a reload added, as a load would say it, and what it replaced or left as it is."""
    return of_run(options.run_id) | {
        "kind": LOAD,
        "load_id": load_id,
        "time_ms": time_ms,
        "topic": options.topic,
        "isolation": options.isolation,
        "reader": options.reader,
        "ranges": [asdict(span) for span in report.backfilled],
        "lost": [],
        "replaced": [asdict(span) for span in report.replaced],
        "not_reloaded": [span._asdict() for span in report.lost],
    }


def loads_of(lineage: Iterable[Lineage], ledger: str) -> list[Lineage]:
    """Returns the loads that moved a ledger, oldest first."""
    return [one for one in lineage if one.get("kind", LOAD) == LOAD and one.get("ledger", ledger) == ledger]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """What one commit did.

    Attributes:
        version: The version of the table that it made.
        time_ms: When it was made.
        kind: `load`, `reload`, `replay`, `erase`, `compact`, …; Delta's word for it where another program made it.
        rows: How many rows it made of records.
        dead_letters: How many dead letters it made of records.
        removed: How many records have no row any more since this commit, which an erasure says.
        bytes: The size of the files that it added.
        file_names: Those files, whether the table still names them or not.
        seconds: How long the tasks and the commit took, None where it does not say so.
        load_id: The load, reload or replay that made it, None for others.
        run_id: The Dagster run that made it, None for other processes.
        lineage: All that it says of itself.
    """

    version: int
    time_ms: int
    kind: str
    rows: int
    dead_letters: int
    removed: int
    bytes: int
    file_names: tuple[str, ...]
    seconds: float | None
    load_id: str | None
    run_id: str | None
    lineage: Lineage

    @property
    def records_per_second(self) -> int | None:
        """How many records it turned into rows and dead letters in a second; None where the time is unknown."""
        return round((self.rows + self.dead_letters) / self.seconds) if self.seconds else None


def commits_since(table: Table, version: int, limit: int = COMMITS_AT_ONCE) -> list[TableCommit]:
    """Returns what the commits after a version did, oldest first, at most `limit` of them; -1 is before the first.

    Raises:
        WarehouseError: A commit can't be read.
    """
    return [described(commit) for commit in commits_after(table, version, limit)]


def newest_load(table: Table) -> TableCommit | None:
    """Returns what the newest load did, reloads aside; None where the newest LOOKED_BACK commits have none.

    Raises:
        WarehouseError: A commit can't be read.
    """
    for version in range(table.version, max(-1, table.version - LOOKED_BACK), -1):
        commit = read_commit(table, version)
        if commit is None:
            return None
        if kind_of(commit) == LOAD:
            return described(commit)
    return None


def described(commit: Commit) -> TableCommit:
    """Returns what a commit did."""
    lineage = commit.lineage
    spans = [*lineage.get("ranges", ()), *lineage.get("replaced", ())]
    return TableCommit(
        version=commit.version,
        time_ms=lineage.get("time_ms", commit.time_ms),
        kind=kind_of(commit),
        rows=lineage.get("rows", sum(span.get("rows", 0) for span in spans)),
        dead_letters=lineage.get("dead_letters", sum(span.get("dead_letters", 0) for span in spans)),
        removed=max(0, sum(change["offsets"] for change in lineage.get("absent", ()))),
        bytes=commit.bytes,
        file_names=commit.file_names,
        seconds=lineage.get("seconds"),
        load_id=lineage.get("load_id"),
        run_id=lineage.get("run_id"),
        lineage=lineage,
    )


def kind_of(commit: Commit) -> str:
    """Returns the kind of a commit; a reload's lineage is that of a load that also replaced ranges."""
    if not commit.lineage:
        return commit.operation.lower() or "unknown"
    if "replaced" in commit.lineage:
        return RELOAD
    return commit.lineage.get("kind", LOAD)
