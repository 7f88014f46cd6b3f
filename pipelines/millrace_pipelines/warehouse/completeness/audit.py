"""The audit: does a table have each offset that its ledger claims, once?

It compares the table's history with its files:

    files       each file that the table names is there, as long and with as many rows as the log says
    chain       the ranges of all loads follow one another from the ledger's start to its next offset
    sums        each load accounts for all offsets of its ranges
    offsets     each offset is there as often as the history tells (`completeness.expected`), as a row or a dead letter:
                none is missing, none that gave no record or was erased is there, and none is of no load
    counts      where loads of older versions told no more than numbers, rows and dead letters are as many: for each
                range or, where records were removed since (erasure, reload), for each partition
    keys        in a table of newest records (upsert) no key is there twice, and there are as many rows as keys were
                inserted less those deleted and erased. Which offsets are missing is not known there: a row stays only
                until a newer record has its key, and which of the offsets are rows is known to the topic alone

With the address of a cluster it also compares the ledger with the topic. Files are read in tasks (`warehouse.tasks`),
and memory is bounded, whatever the table's size: the driver has a byte for each of WINDOW_OFFSETS offsets. Of keys a
task has 64-bit hashes, about KEYS_PER_PASS in each pass, and only keys whose hash is there twice are compared
themselves.

What the newest load added is audited at a cost that does not grow with the table:

    sums      the load accounts for each offset of its ranges
    chain     its ranges begin where the load before ended, follow one another, and end where the ledger does
    strays    its files have no row outside of its ranges
    offsets   each offset of its ranges is there as often as it tells (`completeness.expected`), as a row or a dead
              letter; where it tells a number alone, as many are there: of all files, those row groups are read whose
              bounds say that they may have these offsets
    topic     with the address of a cluster: the topic is the table's, and its logs reach as far as the table

Offsets are left out for a table with a row for each key, for one with rows of former ledgers, whose offsets may be the
same numbers, and where records were removed since (erasure, reload). The audit of the whole table
counts those too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from millrace.fs import FileSystem
from millrace_pipelines.arrow import values_of
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.completeness.contents import (
    Contents,
    DeadLetterContents,
    Reader,
    RowGroup,
    UnreadableError,
    shown,
    way_on,
)
from millrace_pipelines.warehouse.completeness.expected import Expected
from millrace_pipelines.warehouse.completeness.tally import (
    SHOWN,
    WINDOW_OFFSETS,
    ClaimedInterval,
    Coverage,
    Stray,
    absent_since,
    chain_findings,
    coverage_findings,
    intervals_of_claims,
    miscount,
    not_there,
    rows_by_key,
    stray_findings,
    strays,
    sum_findings,
    tally,
    topic_findings,
)
from millrace_pipelines.warehouse.formats import load_if_there, load_table
from millrace_pipelines.warehouse.keys.removal import may_have
from millrace_pipelines.warehouse.ledger.ledger import (
    Ledger,
    LedgerEntry,
    entries_of,
    former_ledgers,
    ledger_of,
    next_app_id,
)
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.load.history import (
    LOOKED_BACK,
    Claim,
    TableCommit,
    claims_of,
    commits_since,
    newest_load,
)
from millrace_pipelines.warehouse.rewrite import current_files
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.table import Table
from millrace_pipelines.warehouse.tables.open import mode_of
from millrace_pipelines.warehouse.tasks import THREADS, Tasks

KEYS_PER_PASS = 8 << 20
KEY = "key"


class RepeatedKeys(NamedTuple):
    """How many keys more than one row has, and the first few of them."""

    number: int
    first: Sequence[bytes]


def repeated_keys(contents: Contents, keys_per_pass: int = KEYS_PER_PASS) -> RepeatedKeys:
    """Returns the keys that more than one row of the table has; rows that can't be read are left out."""
    passes = max(1, -(-contents.rows // keys_per_pass))
    found = list(contents.passes(_KeyPass(contents.reader, contents.row_groups, passes), range(passes)))
    for path, what in (unreadable for one in found for unreadable in one.unreadable):
        contents.find(path, what)
    first = sorted(key for one in found for key in one.repeated.first)
    return RepeatedKeys(sum(one.repeated.number for one in found), first[: SHOWN + 1])


class _FoundKeys(NamedTuple):
    """What one pass over the keys found: those that are repeated, and files that can't be read, with the reason."""

    repeated: RepeatedKeys
    unreadable: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _KeyPass:
    """Finds repeated keys among those whose hash belongs to one of several passes, each of which reads all keys."""

    reader: Reader
    row_groups: Sequence[RowGroup]
    passes: int

    def __call__(self, number: int) -> _FoundKeys:
        unreadable: dict[str, str] = {}
        suspects = self._repeated_hashes(number, unreadable)
        counts: Counter[bytes] = Counter()
        for keys, hashes in self._keys(unreadable) if len(suspects) else ():
            counts.update(keys[number] for number in np.flatnonzero(np.isin(hashes, suspects)))
        repeated = sorted(key for key, count in counts.items() if count > 1)
        return _FoundKeys(RepeatedKeys(len(repeated), repeated[: SHOWN + 1]), list(unreadable.items()))

    def _repeated_hashes(self, number: int, unreadable: dict[str, str]) -> npt.NDArray[np.uint64]:
        parts = [np.zeros(0, np.uint64)]
        for _, hashes in self._keys(unreadable):
            parts.append(hashes[hashes % np.uint64(self.passes) == number])
        hashes = np.concatenate(parts)
        hashes.sort()
        return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])

    def _keys(self, unreadable: dict[str, str]) -> Iterator[tuple[list[bytes], npt.NDArray[np.uint64]]]:
        """Yields the keys of each row group, and their hashes; notes those that can't be read."""
        for group in self.row_groups:
            try:
                rows = self.reader.columns_of(group, [KEY])
            except UnreadableError as error:
                unreadable[error.path] = error.what
                continue
            keys = values_of(rows.column(KEY).drop_null())
            yield keys, np.fromiter(map(xxh3_64_intdigest, keys), np.uint64, len(keys))


def audit(
    location: str,
    *,
    bootstrap: str | None = None,
    client_config: str | None = None,
    window_offsets: int = WINDOW_OFFSETS,
    fs: FileSystem = DISK,
    tasks: Tasks = THREADS,
) -> list[str]:
    """Returns what is wrong with the table, a line for each finding; none where it is complete.

    Args:
        location: The table's location.
        bootstrap: HOST:PORT of a broker, where the ledger is to be compared with the topic too.
        client_config: The file that secures the connection.
        window_offsets: The number of offsets that are counted in one pass, a byte for each.
        fs: The disk; by default this machine's.
        tasks: Where the files are read.

    Raises:
        TableNotFoundError: There is no table of Millrace at the location.
        ClientError: The cluster can't be asked.
    """
    audited = _Audit(location, fs, tasks)
    of_table = list(audited.findings(window_offsets))
    return of_table if bootstrap is None else of_table + list(topic_findings(audited.ledger, bootstrap, client_config))


class _Audit:
    """The audit of one version of a table and of its dead letters."""

    def __init__(self, location: str, fs: FileSystem, tasks: Tasks) -> None:
        self._fs = fs
        self._tasks = tasks
        self._table = load_table(location, fs)
        self.ledger = ledger_of(self._table)
        self._ledgers = (*former_ledgers(self._table), self.ledger.name)
        self._lineage = self._table.lineage()
        self._dead_letters = load_if_there(dead_letters_dir(self._table.address), fs)
        self._is_upsert = mode_of(self._table) is Mode.UPSERT

    def findings(self, window_offsets: int) -> Iterator[str]:
        claims: list[Claim] = []
        for ledger in self._ledgers:
            mine = claims_of(self._lineage, ledger)
            claims += mine
            yield from sum_findings(self._lineage, ledger)
            yield from chain_findings(self._entries(ledger), mine)
        intervals = intervals_of_claims(claims)
        rows = Contents(self._table, self._fs, tasks=self._tasks)
        dead_letters = None
        if self._dead_letters is not None:
            dead_letters = DeadLetterContents(self._table, self._dead_letters, self._fs, tasks=self._tasks)
        tables: list[Contents] = [rows] if dead_letters is None else [rows, dead_letters]
        strayed = list(stray_findings(intervals, rows, self.ledger))
        expected = self._expected()
        coverages = tally(intervals, tables, expected, window_offsets)
        repeated = repeated_keys(rows) if self._is_upsert else RepeatedKeys(0, ())
        for contents in tables:  # only now have all their row groups been read
            yield from contents.findings
        yield from strayed
        for coverage in coverages:
            yield from coverage_findings(coverage, tables, self._table, expected.damages)
        if self._is_upsert:
            yield from self._key_findings(intervals, rows, dead_letters)
            yield from _repeated_findings(repeated)
        else:
            yield from self._count_findings(coverages)

    def _expected(self) -> Expected:
        dead_letters = self._dead_letters
        of_dead_letters = (
            None if dead_letters is None else (store_at(dead_letters.location, self._fs), dead_letters.lineage())
        )
        return Expected(store_at(self._table.location, self._fs), self._lineage, self._ledgers, of_dead_letters)

    def _entries(self, ledger: str) -> Mapping[int, LedgerEntry]:
        return self.ledger.partitions if ledger == self.ledger.name else former_ledgers(self._table)[ledger]

    def _count_findings(self, coverages: Sequence[Coverage]) -> Iterator[str]:
        """Yields a line where a partition's records and its loads' counts differ, if the history has only counts."""
        absent = absent_since(self._lineage, self._dead_letters.lineage() if self._dead_letters else [])
        for coverage in coverages:
            if coverage.interval.partition not in absent:
                yield from miscount(coverage, self._table)
        for partition, offsets in sorted(absent.items()):
            mine = [coverage for coverage in coverages if coverage.interval.partition == partition]
            if not all(coverage.is_known for coverage in mine):
                yield from self._partition_finding(partition, mine, offsets)

    def _partition_finding(self, partition: int, coverages: Sequence[Coverage], absent: int) -> Iterator[str]:
        records = sum(coverage.records for coverage in coverages)
        said = sum(coverage.interval.records for coverage in coverages) - absent
        if records != said:
            first, last = coverages[0].interval.from_offset, coverages[-1].interval.until_offset - 1
            yield (
                f"partition {partition}: {records} rows and dead letters, the loads less what was removed since say "
                f"{said}{not_there(coverages)}"
                f"{way_on(self._table, partition, first, last)}"
            )

    def _key_findings(
        self, intervals: Sequence[ClaimedInterval], rows: Contents, dead_letters: Contents | None
    ) -> Iterator[str]:
        if rows.rows != (said := rows_by_key(self._lineage)):
            yield f"{rows.rows} rows, the keys that were inserted less those deleted and erased say {said}"
        if dead_letters is not None and self._dead_letters is not None:
            ahead = sum(stray.rows for stray in strays(intervals, dead_letters, self.ledger))
            said = sum(claim.dead_letters for interval in intervals for claim in interval.claims)
            said -= sum(absent_since(self._dead_letters.lineage()).values())
            if dead_letters.rows - ahead != said:
                yield f"{dead_letters.rows - ahead} dead letters, the loads say {said}"


def _repeated_findings(keys: RepeatedKeys) -> Iterator[str]:
    if keys.number:
        yield f"{keys.number} keys have more than one row, though the table has the newest record of each: " + (
            shown([repr(key) for key in keys.first])
        )


class LoadAudit(NamedTuple):
    """The result of an audit of the newest load.

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
    fs: FileSystem = DISK,
    tasks: Tasks = THREADS,
) -> LoadAudit:
    """Audits the rows and dead letters that the newest load added; its arguments are those of `audit`.

    Raises:
        TableNotFoundError: There is no table of Millrace at the location.
        WarehouseError: The table's log can't be read.
        ClientError: The cluster can't be asked.
    """
    table = load_table(location, fs)
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
        *(_count_findings(table, load, ledger, fs, tasks) if is_counted else ()),
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
    """Returns whether the load's rows can be counted by offset: each record has one, and nothing changed since."""
    if mode_of(table) is Mode.UPSERT or former_ledgers(table):
        return False
    later = commits_since(table, load.version, table.version - load.version)
    return not any(commit.removed or "replaced" in commit.lineage for commit in later)


def _gap_findings(table: Table, load: TableCommit, ledger: str, claims: Sequence[Claim]) -> Iterator[str]:
    """Yields a line for each partition where the load did not begin at the offset at which an earlier commit ended.

    Only the LOOKED_BACK commits before the load are read.
    """
    first = _first_offsets(claims)
    for version in range(load.version - 1, max(-1, load.version - 1 - LOOKED_BACK), -1):
        commit = table.commit_of(version) if first else None
        if commit is None:
            return
        for partition in sorted(first):
            ended = commit.transactions.get(next_app_id(ledger, partition))
            if ended is not None and (began := first.pop(partition)) != ended:
                yield f"partition {partition}: a load began at {began}, the one before ended at {ended}"


def _first_offsets(claims: Sequence[Claim]) -> dict[int, int]:
    """Returns the first claimed offset of each partition; `claims` are in the order of partitions and offsets."""
    first: dict[int, int] = {}
    for claim in claims:
        first.setdefault(claim.partition, claim.from_offset)
    return first


def _reached(claims: Sequence[Claim], entries: Mapping[int, LedgerEntry]) -> dict[int, LedgerEntry]:
    """Returns the ledger's entries of the load's partitions, each with the load's first offset as its start."""
    return {
        partition: replace(entries[partition], start_offset=from_offset)
        for partition, from_offset in _first_offsets(claims).items()
        if partition in entries
    }


def _count_findings(table: Table, load: TableCommit, ledger: Ledger, fs: FileSystem, tasks: Tasks) -> Iterator[str]:
    intervals = intervals_of_claims(claims_of([load.lineage], ledger.name))
    own = Contents(table, fs, set(load.file_names), tasks=tasks)
    rows = Contents(table, fs, _names_with(table, intervals), tasks=tasks)
    dead_letters = load_if_there(dead_letters_dir(table.address), fs)
    tables: list[Contents] = [rows]
    if dead_letters is not None:
        named = _names_with(dead_letters, intervals)
        tables.append(DeadLetterContents(table, dead_letters, fs, named, tasks=tasks))
    expected = Expected(store_at(table.location, fs), [load.lineage], [ledger.name])
    coverages = tally(intervals, tables, expected)
    strayed = list(_stray_lines(strays(intervals, own, ledger)))
    for contents in tables:  # only now have all their row groups been read
        yield from contents.findings
    yield from strayed
    for coverage in coverages:
        yield from coverage_findings(coverage, tables, table, expected.damages)
        yield from miscount(coverage, table)


def _stray_lines(found: Iterable[Stray]) -> Iterator[str]:
    """Yields a line for each partition with rows outside of the load's ranges."""
    by_partition: dict[int, list[Stray]] = {}
    for stray in found:
        by_partition.setdefault(stray.partition, []).append(stray)
    for partition, some in by_partition.items():
        count, first = sum(stray.rows for stray in some), sorted(offset for stray in some for offset in stray.first)
        yield f"partition {partition}: {count} rows in the load's files are outside of its ranges: {shown(first)}"


def _names_with(table: Table, intervals: Sequence[ClaimedInterval]) -> set[str]:
    """Returns the names of files that, by the bounds in the log, may have offsets in the intervals."""
    ranges = [OffsetRange(one.partition, one.from_offset, one.until_offset) for one in intervals]
    return {file.name for file in current_files(table) if may_have(file, ranges)}
