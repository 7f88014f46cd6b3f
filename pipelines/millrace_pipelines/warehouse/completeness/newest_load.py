"""The audit of what the newest load added, at a cost that does not grow with the table.

    sums      the load accounts for each offset of its ranges
    chain     its ranges begin where the load before ended, follow one another, and end where the ledger does
    strays    its files have no row outside of its ranges
    offsets   each offset of its ranges is there as often as it tells (`completeness.expected`), as a row or a dead
              letter; where it tells a number alone, as many are there: of all files, those row groups are read whose
              bounds say that they may have these offsets
    topic     with the address of a cluster: the topic is the table's, and its logs reach as far as the table

Offsets are left out for a table with a row for each key, for one with rows of former ledgers, whose offsets may be the
same numbers, and where records were removed since (erasure, reload). The audit of the whole table
(`completeness.audit`) counts those too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import unquote

from millrace.fs import FileSystem, OsFileSystem
from millrace_pipelines.warehouse.completeness.claims import (
    ClaimedInterval,
    chain_findings,
    intervals_of_claims,
    sum_findings,
)
from millrace_pipelines.warehouse.completeness.contents import OFFSET, PARTITION, Contents, DeadLetterContents, shown
from millrace_pipelines.warehouse.completeness.expected import Expected
from millrace_pipelines.warehouse.completeness.findings import coverage_findings, miscount, topic_findings
from millrace_pipelines.warehouse.completeness.tally import strays, tally
from millrace_pipelines.warehouse.delta.commits import read_commit
from millrace_pipelines.warehouse.delta.snapshot import AddedFile
from millrace_pipelines.warehouse.delta.store import dead_letters_dir, store_at
from millrace_pipelines.warehouse.delta.table import Table, load_if_there
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, entries_of, former_ledgers, ledger_of, next_app_id
from millrace_pipelines.warehouse.load.claims import Claim, claims_of
from millrace_pipelines.warehouse.load.history import LOOKED_BACK, TableCommit, commits_since, newest_load
from millrace_pipelines.warehouse.tables.choices import Mode
from millrace_pipelines.warehouse.tables.mode import mode_of

BOUNDS = (
    "path",
    f"partition.{PARTITION}",
    *(f"{end}.{name}" for end in ("min", "max") for name in (PARTITION, OFFSET)),
)


class LoadAudit(NamedTuple):
    """What was audited of the newest load, and what is wrong with it.

    Attributes:
        version: The version of the table that the load made; None where the newest commits have no load.
        offsets: How many offsets its ranges have.
        rows: How many rows it made.
        dead_letters: How many dead letters it made.
        is_counted: Whether rows and dead letters were counted.
        findings: A line for each finding; none where the load is complete.
    """

    version: int | None = None
    offsets: int = 0
    rows: int = 0
    dead_letters: int = 0
    is_counted: bool = False
    findings: tuple[str, ...] = ()


def audit_newest_load(
    location: str,
    *,
    bootstrap: str | None = None,
    client_config: str | None = None,
    fs: FileSystem | None = None,
) -> LoadAudit:
    """Audits what the newest load added to a table.

    Args:
        location: The table's location.
        bootstrap: HOST:PORT of a broker, where the ledger is to be compared with the topic too.
        client_config: The file that secures the connection.
        fs: The disk; by default this machine's.

    Raises:
        TableNotFoundError: There is no table of Millrace at the location.
        WarehouseError: The table's log can't be read.
        ClientError: The cluster can't be asked.
    """
    disk = fs or OsFileSystem()
    table = Table.load(location, disk)
    ledger = ledger_of(table)
    of_topic = [] if bootstrap is None else list(topic_findings(ledger, bootstrap, client_config))
    load = newest_load(table)
    if load is None:
        return LoadAudit(findings=tuple(of_topic))
    name = load.lineage.get("ledger", ledger.name)
    claims = claims_of([load.lineage], name)
    is_counted = _is_countable(table, load)
    findings = [
        *sum_findings([load.lineage], name),
        *_gap_findings(table, load, name, claims),
        *chain_findings(_reached(claims, entries_of(table, name)), claims),
        *(_count_findings(table, load, name, disk) if is_counted else ()),
    ]
    return LoadAudit(
        version=load.version,
        offsets=sum(claim.until_offset - claim.from_offset for claim in claims),
        rows=load.rows,
        dead_letters=load.dead_letters,
        is_counted=is_counted,
        findings=(*findings, *of_topic),
    )


def _is_countable(table: Table, load: TableCommit) -> bool:
    """Returns whether each record of the load is a row or a dead letter, and no other has the same offset."""
    if mode_of(table) is Mode.UPSERT or former_ledgers(table):
        return False
    later = commits_since(table, load.version, table.version - load.version)
    return not any(commit.removed or "replaced" in commit.lineage for commit in later)


def _gap_findings(table: Table, load: TableCommit, ledger: str, claims: Sequence[Claim]) -> Iterator[str]:
    """Yields where the load began elsewhere than an earlier commit ended, among the LOOKED_BACK commits before it."""
    first = _first_offsets(claims)
    for version in range(load.version - 1, max(-1, load.version - 1 - LOOKED_BACK), -1):
        commit = read_commit(table, version) if first else None
        if commit is None:
            return
        for partition in sorted(first):
            ended = commit.transactions.get(next_app_id(ledger, partition))
            if ended is not None and (began := first.pop(partition)) != ended:
                yield f"partition {partition}: a load began at {began}, the one before ended at {ended}"


def _first_offsets(claims: Sequence[Claim]) -> dict[int, int]:
    """Returns the first offset of each partition; the claims are in the order of partitions and offsets."""
    first: dict[int, int] = {}
    for claim in claims:
        first.setdefault(claim.partition, claim.from_offset)
    return first


def _reached(claims: Sequence[Claim], entries: Mapping[int, LedgerEntry]) -> dict[int, LedgerEntry]:
    """Returns what the ledger says of the load's partitions, as if the load had begun each."""
    return {
        partition: replace(entries[partition], start_offset=from_offset)
        for partition, from_offset in _first_offsets(claims).items()
        if partition in entries
    }


def _count_findings(table: Table, load: TableCommit, ledger: str, fs: FileSystem) -> Iterator[str]:
    intervals = intervals_of_claims(claims_of([load.lineage], ledger))
    own = Contents(table, fs, set(load.file_names))
    rows = Contents(table, fs, _names_with(table, intervals))
    dead_letters = load_if_there(dead_letters_dir(table.location), fs)
    tables: list[Contents] = [rows]
    if dead_letters is not None:
        tables.append(DeadLetterContents(table, dead_letters, fs, _names_with(dead_letters, intervals)))
    expected = Expected(store_at(table.location, fs), [load.lineage], [ledger])
    coverages = tally(intervals, tables, expected)
    strayed = [
        f"partition {partition}: {len(offsets)} rows in the load's files are outside of its ranges: {shown(offsets)}"
        for partition, offsets in strays(intervals, own)
    ]
    for contents in tables:  # only now have all their row groups been read
        yield from contents.findings
    yield from strayed
    for coverage in coverages:
        yield from coverage_findings(coverage, tables, table, expected.damages)
        yield from miscount(coverage, table)


def _names_with(table: Table, intervals: Sequence[ClaimedInterval]) -> set[str]:
    """Returns the names of the files whose bounds in the log say that they may have offsets of the intervals."""
    actions = table.add_actions()
    columns = [name for name in BOUNDS if name in actions.column_names]
    files: Sequence[AddedFile] = actions.select(columns).to_pylist()
    return {unquote(str(file["path"])) for file in files if any(_may_have(file, interval) for interval in intervals)}


def _may_have(file: AddedFile, interval: ClaimedInterval) -> bool:
    folder = file.get(f"partition.{PARTITION}")
    least, greatest = (folder, folder) if folder is not None else (file.get("min.partition"), file.get("max.partition"))
    first, last = file.get("min.offset"), file.get("max.offset")
    return (
        (least is None or int(least) <= interval.partition)
        and (greatest is None or int(greatest) >= interval.partition)
        and (first is None or first < interval.until_offset)
        and (last is None or last >= interval.from_offset)
    )
