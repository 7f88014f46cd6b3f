"""What a table's history claims: the rows and dead letters of each range that was loaded, and of a part of them.

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
from typing import NamedTuple, TypeAlias

from millrace.fs import FileSystem
from millrace_pipelines.spark.choices import Isolation
from millrace_pipelines.warehouse.dead_letters import pending_replay, replay_number
from millrace_pipelines.warehouse.delta.lineage import Lineage, LineageRange
from millrace_pipelines.warehouse.delta.store import dead_letters_dir
from millrace_pipelines.warehouse.delta.table import Table, load_if_there
from millrace_pipelines.warehouse.keys.removal import count_rows, every_row
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.load.history import loads_of

History: TypeAlias = Sequence[Lineage]


class Claim(NamedTuple):
    """Offsets of one partition; `records` of them gave a row or a dead letter, lost ones gave none."""

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
    """Returns what the loads of one ledger claim, in the order of partitions and offsets."""
    claims = [claim for load in loads_of(lineage, ledger) for claim in _claims(load)]
    return sorted(claims, key=lambda claim: (claim.partition, claim.from_offset))


def claimed_records(rows: History, dead_letters: History, ledger: str, part: OffsetRange, found: int) -> int:
    """Returns how many rows and dead letters of a part of the offsets the history claims.

    Args:
        rows: The history of the table of rows.
        dead_letters: That of its dead letters.
        ledger: The ledger that loaded the part.
        part: Offsets that the ledger has.
        found: How many there are; where the history allows other numbers too, this one is taken.
    """
    loaded = [_loaded(claim, part) for claim in claims_of(rows, ledger) if claim.partition == part.partition]
    absent = [_absent(commit, part) for commit in (*rows, *dead_letters)]
    least = sum(bounds.least for bounds in loaded) - sum(bounds.most for bounds in absent)
    most = sum(bounds.most for bounds in loaded) - sum(bounds.least for bounds in absent)
    return max(least, min(found, most))


def _claims(load: Lineage) -> Iterator[Claim]:
    for span in (*load.get("ranges", ()), *load.get("lost", ())):
        dead_letters = span.get("dead_letters", 0)
        records = span.get("rows", 0) + dead_letters
        yield Claim(span["partition"], span["from_offset"], span["until_offset"], records, dead_letters)


def _loaded(claim: Claim, part: OffsetRange) -> CountBounds:
    """Returns how many of a claim's records lie in the part."""
    inside = _common_offsets(claim.from_offset, claim.until_offset, part)
    outside = claim.until_offset - claim.from_offset - inside
    return CountBounds(max(0, claim.records - outside), min(claim.records, inside))


def _absent(commit: Lineage, part: OffsetRange) -> CountBounds:
    """Returns how many of the offsets that a commit says to be absent lie in the part; less than none for a gain."""
    offsets = sum(change["offsets"] for change in commit.get("absent", ()) if change["partition"] == part.partition)
    reloaded = [span for span in _reloaded(commit) if span["partition"] == part.partition]
    inside = [_common_offsets(span["from_offset"], span["until_offset"], part) for span in reloaded]
    if reloaded and not any(inside):
        return CountBounds(0, 0)
    if reloaded and inside == [span["until_offset"] - span["from_offset"] for span in reloaded]:
        return CountBounds(offsets, offsets)
    if reloaded and commit.get("isolation") == Isolation.READ_UNCOMMITTED:  # gains and losses may have cancelled out
        return CountBounds(-part.offsets, part.offsets)
    return CountBounds(min(0, offsets), max(0, offsets))


def _reloaded(commit: Lineage) -> Sequence[LineageRange]:
    return (*commit.get("ranges", ()), *commit["replaced"]) if "replaced" in commit else ()


def _common_offsets(from_offset: int, until_offset: int, part: OffsetRange) -> int:
    return max(0, min(until_offset, part.until_offset) - max(from_offset, part.from_offset))


def claimed_rows(table: Table, ranges: Sequence[OffsetRange], found: Mapping[int, int], fs: FileSystem) -> Counter[int]:
    """Returns, by partition, how many rows the history claims.

    Args:
        table: One version of the table of rows.
        ranges: At most one range of each partition, of the table's ledger.
        found: By partition, how many rows of the ranges this version has.
        fs: The disk, which has the dead letters.
    """
    dead_letters = load_if_there(dead_letters_dir(table.location), fs)
    waiting = Counter[int]() if dead_letters is None else _waiting_dead_letters(table, dead_letters, ranges)
    history, of_dead_letters = table.lineage(), [] if dead_letters is None else dead_letters.lineage()
    ledger = ledger_of(table).name
    claimed: Counter[int] = Counter()
    for part in ranges:
        records = found.get(part.partition, 0) + waiting[part.partition]
        claimed[part.partition] = (
            claimed_records(history, of_dead_letters, ledger, part, records) - waiting[part.partition]
        )
    return claimed


def _waiting_dead_letters(rows: Table, dead_letters: Table, ranges: Sequence[OffsetRange]) -> Counter[int]:
    """Returns, by partition, how many dead letters no replay has made rows of."""
    is_behind = replay_number(dead_letters) < replay_number(rows)
    pending = pending_replay(rows, dead_letters) if is_behind else None
    return count_rows(dead_letters, ranges, every_row if pending is None else lambda some: ~pending.mask(some))
