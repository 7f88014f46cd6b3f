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
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from millrace_pipelines.spark.choices import Isolation
from millrace_pipelines.warehouse.delta.lineage import Lineage, LineageRange
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.load.lineage import loads_of

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
