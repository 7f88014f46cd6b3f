"""Compares logs of which one is compacted: what both must have of each key, whenever each was compacted.

Compaction keeps the newest record of a key, removes older ones, and at last the tombstone of a key that was deleted.
Each side does it at its own times. So of all records of a key only this is sure:

    newest at the source   newest at the target
    a value                the same one
    a tombstone            the same one, or nothing of this key
    nothing                a tombstone, or nothing

A side that has written the key again beyond what is mirrored may have removed all that was there before: the source
with records still to come, a target after its switch-over. And what one side has before the other's first record, where
retention has cut that one, has nothing to be compared with.

Records are kept by digests of their keys in a database of SQLite, a file without a name that is only written once its
cache is full, and are sorted there. So memory is bounded, whatever the number of keys.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from enum import StrEnum
from hashlib import blake2b
from itertools import groupby, islice, starmap
from operator import itemgetter
from typing import NamedTuple, Self

from millrace.records.record import Record
from millrace_pipelines.mirror.comparison.by_sequence import Cut
from millrace_pipelines.mirror.comparison.difference import Difference, Kind
from millrace_pipelines.mirror.comparison.log_reader import OnPair

DIGEST_BYTES = 16
CACHE_KIB = 64 << 10
TOMBSTONE = b"\0"  # what the digest of a record without a value begins with
VALUE = b"\1"
CHUNK = 4096  # records


class Side(StrEnum):
    """The two logs that are compared."""

    SOURCE = "source"
    TARGET = "target"


Seen = tuple[bytes, int, int, bytes | None]
_PARTS = {Side.SOURCE: (0, 1), Side.TARGET: (2, 3)}  # within the mirrored range, and beyond


class Found(NamedTuple):
    """The newest records of a key: their offsets and digests, and whether either side has written it again beyond."""

    source: int | None
    source_digest: bytes | None
    source_beyond: int | None
    target: int | None
    target_digest: bytes | None
    target_beyond: int | None


class NewestRecords:
    """The newest record of each key on both sides, and whether a side has one beyond the mirrored range.

    All records are taken before anything is asked for.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("")
        self._db.executescript(
            f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-{CACHE_KIB};"
            "CREATE TABLE seen (key BLOB, part INTEGER, offset INTEGER, digest BLOB);"
            "CREATE TABLE newest (key BLOB PRIMARY KEY, source INTEGER, source_digest BLOB, source_beyond INTEGER, "
            "target INTEGER, target_digest BLOB, target_beyond INTEGER) WITHOUT ROWID"
        )
        self._is_sorted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def take(self, side: Side, records: Iterable[Record], until_offset: int) -> None:
        """Takes a side's records, in order; those from `until_offset` on lie beyond what is mirrored."""
        left = iter(records)
        while chunk := list(islice(left, CHUNK)):
            within = {one.key: one for one in chunk if one.offset < until_offset and one.key is not None}
            beyond = {one.key: one for one in chunk if one.offset >= until_offset and one.key is not None}
            parts = _PARTS[side]
            seen: list[Seen] = [
                (_digest(key), parts[0], one.offset, _content_digest(one)) for key, one in within.items()
            ]
            seen += [(_digest(key), parts[1], one.offset, None) for key, one in beyond.items()]
            self._db.executemany("INSERT INTO seen VALUES (?, ?, ?, ?)", seen)

    def of(self, key: bytes) -> Found:
        """Returns the newest records of a key, nothing for one that no side has."""
        self._sort()
        rows = self._db.execute("SELECT * FROM newest WHERE key = ?", (_digest(key),)).fetchall()
        return Found(*rows[0][1:]) if rows else Found(None, None, None, None, None, None)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yields the offsets of newest records that are the same on both sides, in the source's order."""
        self._sort()
        found: Iterator[tuple[int, int]] = self._db.execute(
            "SELECT source, target FROM newest WHERE source_digest = target_digest ORDER BY source"
        )
        return found

    def others(self) -> Iterator[Found]:
        """Yields the newest records of all keys of which they are not the same on both sides."""
        self._sort()
        rows = self._db.execute(
            "SELECT * FROM newest WHERE source_digest IS NOT target_digest ORDER BY coalesce(source, target)"
        )
        return (Found(*row[1:]) for row in rows)

    def _sort(self) -> None:
        """Keeps the newest ones of what was seen, once; sorted by key, for a table that grows in places is slow."""
        if not self._is_sorted:
            seen = self._db.execute("SELECT key, part, offset, digest FROM seen ORDER BY key, part, offset")
            self._db.executemany("INSERT INTO newest VALUES (?, ?, ?, ?, ?, ?, ?)", starmap(_row, groupby(seen, _key)))
            self._is_sorted = True


_key = itemgetter(0)


def _row(key: bytes, seen: Iterable[Seen]) -> tuple[bytes | int | None, ...]:
    """Returns the row of a key: of each part of what was seen, in order, the last one counts."""
    last = {part: (offset, digest) for _, part, offset, digest in seen}
    source, target, nothing = last.get(0, (None, None)), last.get(2, (None, None)), (None, None)
    return (key, *source, last.get(1, nothing)[0], *target, last.get(3, nothing)[0])


def compare_by_key(newest: NewestRecords, on_pair: OnPair, cut: Cut) -> Iterator[Difference]:
    """Yields the differences of the newest records of each key, and newest records in another order."""
    first: tuple[int, int] | None = None
    last = -1
    for source, target in newest.pairs():
        first = (source, target if first is None else min(first[1], target)) if first is None else first
        on_pair(source, target, 1)
        if target < last:
            yield Difference(kind=Kind.MOVED, source_offset=source, target_offset=target)
        last = max(last, target)
    for one in newest.others():
        if (difference := _difference(one)) is not None and not _is_cut_off(one, first, cut):
            yield difference


def _difference(one: Found) -> Difference | None:
    """Returns what the rule of a key's newest records says of two that are not the same; None if they may differ."""
    if one.source is None and one.target is None:
        return None
    if one.source is None:
        may_lack = _is_tombstone(one.target_digest) or one.source_beyond is not None
        return None if may_lack else Difference(kind=Kind.EXTRA, target_offset=one.target)
    if one.target is None:
        may_lack = _is_tombstone(one.source_digest) or one.target_beyond is not None
        return None if may_lack else Difference(kind=Kind.MISSING, source_offset=one.source)
    if one.source_beyond is not None or one.target_beyond is not None:
        return None
    if _is_tombstone(one.source_digest) and not _is_tombstone(one.target_digest):
        return Difference(kind=Kind.MISSING, source_offset=one.source, detail="a tombstone")
    detail = "newest of its key"
    return Difference(kind=Kind.ALTERED, source_offset=one.source, target_offset=one.target, detail=detail)


def _is_cut_off(one: Found, first: tuple[int, int] | None, cut: Cut) -> bool:
    """Returns whether a record lies before the other side's first one, where retention has cut that side."""
    if one.source is None:
        return cut.source and one.target is not None and (first is None or one.target < first[1])
    return cut.target and one.target is None and (first is None or one.source < first[0])


def may_lack(newest: NewestRecords, lone: Difference, compacted: frozenset[Side]) -> bool:
    """Returns whether compaction explains that one side of a followed log lacks a record that the other one has.

    The side has a later record of its key; or it has none, and the newest one of the other side is a tombstone.
    """
    record, lacking = lone.source or lone.target, Side.TARGET if lone.kind is Kind.MISSING else Side.SOURCE
    if record is None or lone.kind not in (Kind.MISSING, Kind.EXTRA) or lacking not in compacted:
        return False
    if record.key is None:
        return True  # compaction keeps no record without a key
    found = newest.of(record.key)
    there, here = (found.target, found.source_digest), (found.source, found.target_digest)
    latest, digest = there if lone.kind is Kind.MISSING else here
    return _is_tombstone(digest) if latest is None else latest > record.offset


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


def _content_digest(record: Record) -> bytes:
    """Returns a digest of what a record has but for its offset, which begins with whether it has a value."""
    value = record.value
    bounds = (record.timestamp_ms, len(record.key or b""), None if value is None else len(value), record.headers)
    digest = blake2b(repr(bounds).encode(), digest_size=DIGEST_BYTES)
    digest.update(record.key or b"")
    digest.update(value or b"")
    return (TOMBSTONE if value is None else VALUE) + digest.digest()


def _is_tombstone(digest: bytes | None) -> bool:
    return digest is not None and digest.startswith(TOMBSTONE)
