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

With the address of a cluster it also compares the ledger with the topic. Memory is bounded, whatever the table's
size: keys are held as 64-bit hashes, at most about KEYS_PER_PASS in each pass, and only keys whose hash is there twice
are compared themselves.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from millrace.fs import FileSystem
from millrace_pipelines.arrow import values_of
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.completeness.contents import Contents, DeadLetterContents, shown, way_on
from millrace_pipelines.warehouse.completeness.expected import Expected
from millrace_pipelines.warehouse.completeness.tally import (
    WINDOW_OFFSETS,
    ClaimedInterval,
    Coverage,
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
from millrace_pipelines.warehouse.delta.commits import read_commit
from millrace_pipelines.warehouse.delta.rewrite import current_files
from millrace_pipelines.warehouse.delta.table import Table, load_if_there
from millrace_pipelines.warehouse.keys.removal import may_have
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, entries_of, former_ledgers, ledger_of, next_app_id
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.load.history import (
    LOOKED_BACK,
    Claim,
    TableCommit,
    claims_of,
    commits_since,
    newest_load,
)
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.tables.open import mode_of

KEYS_PER_PASS = 8 << 20
KEY = "key"


def repeated_keys(contents: Contents, keys_per_pass: int = KEYS_PER_PASS) -> list[bytes]:
    """Returns the keys that more than one row of the table has; rows that can't be read are left out."""
    passes = max(1, -(-contents.rows // keys_per_pass))
    repeated: list[bytes] = []
    for number in range(passes):
        suspects = _repeated_hashes(contents, number, passes)
        if len(suspects):
            wanted = set(suspects.tolist())
            counts = Counter(key for keys in _keys(contents) for key in keys if xxh3_64_intdigest(key) in wanted)
            repeated += [key for key, count in counts.items() if count > 1]
    return sorted(repeated)


def _repeated_hashes(contents: Contents, number: int, passes: int) -> npt.NDArray[np.uint64]:
    parts = [np.zeros(0, np.uint64)]
    for keys in _keys(contents):
        hashes = np.fromiter(map(xxh3_64_intdigest, keys), np.uint64, len(keys))
        parts.append(hashes[hashes % np.uint64(passes) == number])
    hashes = np.sort(np.concatenate(parts))
    return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


def _keys(contents: Contents) -> Iterator[list[bytes]]:
    for group in contents.row_groups:
        rows = contents.columns_of(group, [KEY])
        if rows is not None:
            yield values_of(rows.column(KEY).drop_null())


def audit(
    location: str,
    *,
    bootstrap: str | None = None,
    client_config: str | None = None,
    window_offsets: int = WINDOW_OFFSETS,
    fs: FileSystem = DISK,
) -> list[str]:
    """Returns what is wrong with the table, a line for each finding; none where it is complete.

    Args:
        location: The table's location.
        bootstrap: HOST:PORT of a broker, where the ledger is to be compared with the topic too.
        client_config: The file that secures the connection.
        window_offsets: The number of offsets that are counted in one pass, a byte for each.
        fs: The disk; by default this machine's.

    Raises:
        TableNotFoundError: There is no table of Millrace at the location.
        ClientError: The cluster can't be asked.
    """
    audited = _Audit(location, fs)
    of_table = list(audited.findings(window_offsets))
    return of_table if bootstrap is None else of_table + list(topic_findings(audited.ledger, bootstrap, client_config))


class _Audit:
    """The audit of one version of a table and of its dead letters."""

    def __init__(self, location: str, fs: FileSystem) -> None:
        self._fs = fs
        self._table = Table.load(location, fs)
        self.ledger = ledger_of(self._table)
        self._ledgers = (*former_ledgers(self._table), self.ledger.name)
        self._lineage = self._table.lineage()
        self._dead_letters = load_if_there(dead_letters_dir(self._table.location), fs)
        self._is_upsert = mode_of(self._table) is Mode.UPSERT

    def findings(self, window_offsets: int) -> Iterator[str]:
        claims: list[Claim] = []
        for ledger in self._ledgers:
            mine = claims_of(self._lineage, ledger)
            claims += mine
            yield from sum_findings(self._lineage, ledger)
            yield from chain_findings(self._entries(ledger), mine)
        intervals = intervals_of_claims(claims)
        rows = Contents(self._table, self._fs)
        dead_letters = DeadLetterContents(self._table, self._dead_letters, self._fs) if self._dead_letters else None
        tables: list[Contents] = [rows] if dead_letters is None else [rows, dead_letters]
        strayed = list(stray_findings(intervals, rows, self.ledger))
        expected = self._expected()
        coverages = tally(intervals, tables, expected, window_offsets)
        repeated = repeated_keys(rows) if self._is_upsert else []
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
            ahead = sum(len(offsets) for _, offsets in strays(intervals, dead_letters))
            said = sum(claim.dead_letters for interval in intervals for claim in interval.claims)
            said -= sum(absent_since(self._dead_letters.lineage()).values())
            if dead_letters.rows - ahead != said:
                yield f"{dead_letters.rows - ahead} dead letters, the loads say {said}"


def _repeated_findings(keys: Sequence[bytes]) -> Iterator[str]:
    if keys:
        yield f"{len(keys)} keys have more than one row, though the table has the newest record of each: " + (
            shown([repr(key) for key in keys])
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
) -> LoadAudit:
    """Audits the rows and dead letters that the newest load added; its arguments are those of `audit`.

    Raises:
        TableNotFoundError: There is no table of Millrace at the location.
        WarehouseError: The table's log can't be read.
        ClientError: The cluster can't be asked.
    """
    table = Table.load(location, fs)
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
        *(_count_findings(table, load, name, fs) if is_counted else ()),
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
        commit = read_commit(table, version) if first else None
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
    """Returns the names of files that, by the bounds in the log, may have offsets in the intervals."""
    ranges = [OffsetRange(one.partition, one.from_offset, one.until_offset) for one in intervals]
    return {file.name for file in current_files(table) if may_have(file, ranges)}
