"""What each commit of a table did: what a load's and a reload's say of themselves, and what is read of all commits.

Every lineage has a `kind`. That of a load has its ranges, with the offsets of each accounted for, and the offsets that
it goes on without (`lost`, and within the ranges `missing`). Where not all offsets of the ranges gave a row or a dead
letter, `recorded` keeps those that did (`table.lineage`). `ledger` names the ledger that it moved. A reload is a
load of the earlier offsets that it added; those that it replaced move no ledger. A commit without a kind, of an older
version, is a load. Where a scheduler's run loaded, `run_id` names it.

A table's history claims the rows and dead letters of each range that was loaded, and of a part of them.

The history has the number of a range's records, not their offsets. So it says of a part of the offsets only how many
records it has at least and at most:

    a load of offsets inside the part       all of its records
    a load of other offsets, too            at least its records less its offsets outside of the part,
                                            at most as many as it has offsets inside
    a reload of offsets inside the part     less the offsets that it says are absent
    a reload of other offsets, too          less none to all of them; any number if it read uncommitted records
    an erasure                              less none to all of the offsets that it says are absent

The number of records that are there lies between the two, unless something other than Millrace removed or added some.

The commit that replaces the rows of some ranges is prepared with the number that the history claims of them. If a
replay, or another rewrite, commits rows after the version that is replaced and before the dead letters are read, that
commit fails, and is prepared again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple, TypeAlias

from millrace.fs import FileSystem
from millrace_pipelines.spark.choices import Isolation
from millrace_pipelines.warehouse.dead_letters import pending_replay, replay_number
from millrace_pipelines.warehouse.formats import load_if_there
from millrace_pipelines.warehouse.keys.removal import count_rows, every_row
from millrace_pipelines.warehouse.ledger.ledger import Ledger, ledger_of
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import LoadReport, ReloadReport
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.lineage import Lineage, LineageRange, of_run
from millrace_pipelines.warehouse.table.table import Commit, Table

LOAD = "load"
UNTOLD = ("table", "version", "group", "group_error", "register_error", "upserted")
RELOAD = "reload"
COMMITS_AT_ONCE = 100
LOOKED_BACK = 100
History: TypeAlias = Sequence[Lineage]


def lineage_of_load(options: LoadOptions, ledger: Ledger, report: LoadReport, time_ms: int) -> dict[str, object]:
    """Returns the lineage of a load's commit: its report, the topic and ledger that it loaded, and the time."""
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
            "lost": [offset_range._asdict() for offset_range in report.lost],
            "missing": [offset_range._asdict() for offset_range in report.missing],
        }
    )


def lineage_of_reload(options: LoadOptions, load_id: str, report: ReloadReport, time_ms: int) -> dict[str, object]:
    """Returns the lineage of a reload's commit: earlier offsets as a load has them, and the ranges that it replaced."""
    return of_run(options.run_id) | {
        "kind": LOAD,
        "load_id": load_id,
        "time_ms": time_ms,
        "topic": options.topic,
        "isolation": options.isolation,
        "reader": options.reader,
        "ranges": [asdict(offset_range) for offset_range in report.backfilled],
        "lost": [],
        "replaced": [asdict(offset_range) for offset_range in report.replaced],
        "not_reloaded": [offset_range._asdict() for offset_range in report.lost],
    }


def loads_of(lineage: Iterable[Lineage], ledger: str) -> list[Lineage]:
    """Returns the lineage of the loads that advanced a ledger, oldest first."""
    return [one for one in lineage if one.get("kind", LOAD) == LOAD and one.get("ledger", ledger) == ledger]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """The effects of one commit on a table.

    Attributes:
        version: The version of the table that it made.
        time_ms: When it was made.
        kind: `load`, `reload`, `replay`, `erase`, `compact`, …; Delta's word for it where another program made it.
        rows: How many records it turned into rows.
        dead_letters: How many records it turned into dead letters.
        removed: How many records it took the rows of, as an erasure says.
        bytes: The size of the files that it added.
        file_names: Those files, whether the table still names them or not.
        seconds: How long the tasks and the commit took, None where it does not say so.
        load_id: The load, reload or replay that made it, None for others.
        run_id: The Dagster run that made it, None for other processes.
        lineage: The commit's whole lineage.
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
        """Returns the rows and dead letters that the commit made per second; None where its time is unknown."""
        return round((self.rows + self.dead_letters) / self.seconds) if self.seconds else None


def commits_since(table: Table, version: int, limit: int = COMMITS_AT_ONCE) -> list[TableCommit]:
    """Returns what the commits after a version did, oldest first, at most `limit` of them; -1 is before the first.

    Raises:
        WarehouseError: A commit can't be read.
    """
    return [described(commit) for commit in table.commits_after(version, limit)]


def newest_load(table: Table) -> TableCommit | None:
    """Returns the newest load, reloads aside; None where the newest LOOKED_BACK commits have none.

    Raises:
        WarehouseError: A commit can't be read.
    """
    for version in range(table.version, max(-1, table.version - LOOKED_BACK), -1):
        commit = table.commit_of(version)
        if commit is None:
            return None
        if kind_of(commit) == LOAD:
            return described(commit)
    return None


def described(commit: Commit) -> TableCommit:
    """Returns what a commit did, from its lineage."""
    lineage = commit.lineage
    ranges = [*lineage.get("ranges", ()), *lineage.get("replaced", ())]
    return TableCommit(
        version=commit.version,
        time_ms=lineage.get("time_ms", commit.time_ms),
        kind=kind_of(commit),
        rows=lineage.get("rows", sum(offset_range.get("rows", 0) for offset_range in ranges)),
        dead_letters=lineage.get("dead_letters", sum(offset_range.get("dead_letters", 0) for offset_range in ranges)),
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


class Claim(NamedTuple):
    """A range of offsets that a load claims to have read; `records` of them gave a row or a dead letter."""

    partition: int
    from_offset: int
    until_offset: int
    records: int
    dead_letters: int


class CountBounds(NamedTuple):
    """The least and the most that a number can be."""

    least: int
    most: int


def claims_of(lineage: Iterable[Lineage], ledger: str) -> list[Claim]:
    """Returns the ranges that the loads of one ledger claim, in the order of partitions and offsets."""
    claims = [claim for load in loads_of(lineage, ledger) for claim in _claims(load)]
    return sorted(claims, key=lambda claim: (claim.partition, claim.from_offset))


def claimed_records(rows: History, dead_letters: History, ledger: str, part: OffsetRange, found: int) -> int:
    """Returns how many rows and dead letters there should be in a part of the offsets, according to the history.

    Args:
        rows: The history of the table of rows.
        dead_letters: The history of the table of dead letters.
        ledger: The ledger that loaded the part.
        part: Offsets that the ledger has.
        found: How many there are, which is returned if the history allows this number among others.
    """
    loaded = [_loaded(claim, part) for claim in claims_of(rows, ledger) if claim.partition == part.partition]
    absent = [_absent(commit, part) for commit in (*rows, *dead_letters)]
    least = sum(bounds.least for bounds in loaded) - sum(bounds.most for bounds in absent)
    most = sum(bounds.most for bounds in loaded) - sum(bounds.least for bounds in absent)
    return max(least, min(found, most))


def _claims(load: Lineage) -> Iterator[Claim]:
    for offset_range in (*load.get("ranges", ()), *load.get("lost", ())):
        dead_letters = offset_range.get("dead_letters", 0)
        records = offset_range.get("rows", 0) + dead_letters
        yield Claim(
            offset_range["partition"], offset_range["from_offset"], offset_range["until_offset"], records, dead_letters
        )


def _loaded(claim: Claim, part: OffsetRange) -> CountBounds:
    """Returns how many of a claim's records, at least and at most, lie in the part."""
    inside = _common_offsets(claim.from_offset, claim.until_offset, part)
    outside = claim.until_offset - claim.from_offset - inside
    return CountBounds(max(0, claim.records - outside), min(claim.records, inside))


def _absent(commit: Lineage, part: OffsetRange) -> CountBounds:
    """Returns how many of a commit's absent offsets, at least and at most, lie in the part; negative for added ones."""
    offsets = sum(change["offsets"] for change in commit.get("absent", ()) if change["partition"] == part.partition)
    reloaded = [offset_range for offset_range in _reloaded(commit) if offset_range["partition"] == part.partition]
    inside = [
        _common_offsets(offset_range["from_offset"], offset_range["until_offset"], part) for offset_range in reloaded
    ]
    if reloaded and not any(inside):
        return CountBounds(0, 0)
    if reloaded and inside == [offset_range["until_offset"] - offset_range["from_offset"] for offset_range in reloaded]:
        return CountBounds(offsets, offsets)
    if reloaded and commit.get("isolation") == Isolation.READ_UNCOMMITTED:  # gains and losses may have cancelled out
        return CountBounds(-part.offsets, part.offsets)
    return CountBounds(min(0, offsets), max(0, offsets))


def _reloaded(commit: Lineage) -> Sequence[LineageRange]:
    return (*commit.get("ranges", ()), *commit["replaced"]) if "replaced" in commit else ()


def _common_offsets(from_offset: int, until_offset: int, part: OffsetRange) -> int:
    return max(0, min(until_offset, part.until_offset) - max(from_offset, part.from_offset))


def claimed_rows(table: Table, ranges: Sequence[OffsetRange], found: Mapping[int, int], fs: FileSystem) -> Counter[int]:
    """Returns, by partition, how many rows of the ranges there should be, according to the history.

    Args:
        table: One version of the table of rows.
        ranges: At most one range of each partition, of the table's ledger.
        found: By partition, how many rows of the ranges this version has.
        fs: The disk, which has the dead letters.
    """
    dead_letters = load_if_there(dead_letters_dir(table.address), fs)
    waiting = Counter[int]() if dead_letters is None else _waiting_dead_letters(table, dead_letters, ranges, fs)
    history, of_dead_letters = table.lineage(), [] if dead_letters is None else dead_letters.lineage()
    ledger = ledger_of(table).name
    claimed: Counter[int] = Counter()
    for part in ranges:
        records = found.get(part.partition, 0) + waiting[part.partition]
        claimed[part.partition] = (
            claimed_records(history, of_dead_letters, ledger, part, records) - waiting[part.partition]
        )
    return claimed


def _waiting_dead_letters(
    rows: Table, dead_letters: Table, ranges: Sequence[OffsetRange], fs: FileSystem
) -> Counter[int]:
    """Returns, by partition, how many dead letters of the ranges no replay has made rows of."""
    is_behind = replay_number(dead_letters) < replay_number(rows)
    pending = pending_replay(rows, dead_letters) if is_behind else None
    is_waiting = every_row if pending is None else lambda some: ~pending.mask(some)
    return count_rows(dead_letters, ranges, fs, is_waiting)
