"""What a table's history claims to have loaded, decided from the lineage of its commits and its ledgers alone.

claim       a range of one load, or one that was lost, and how many of its offsets are rows or dead letters
interval     the claims of one partition that overlap. They overlap where the table went on with another ledger whose
            offsets are the same numbers: an offset may then be there once for each

ledger 1    ├── claim ──┼── claim ──┤
ledger 2                      ├── claim ──┤
intervals   ├───────────┼─────────────────┤
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias, get_args

from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry
from millrace_pipelines.warehouse.load.claims import Claim, History
from millrace_pipelines.warehouse.load.history import loads_of

Kind: TypeAlias = Literal["rows", "dead_letters", "control", "aborted", "compacted", "missing", "absent"]
KINDS: tuple[Kind, ...] = get_args(Kind)  # the last in older tables


class ClaimedInterval(NamedTuple):
    """Claims that overlap, or one alone, in the order of their beginnings."""

    partition: int
    claims: tuple[Claim, ...]

    @property
    def from_offset(self) -> int:
        """The first offset."""
        return self.claims[0].from_offset

    @property
    def until_offset(self) -> int:
        """The offset after the last one."""
        return max(claim.until_offset for claim in self.claims)

    @property
    def places(self) -> int:
        """The number of rows that there could be."""
        return sum(claim.until_offset - claim.from_offset for claim in self.claims)

    @property
    def records(self) -> int:
        """The number of rows and dead letters that there should be."""
        return sum(claim.records for claim in self.claims)


def intervals_of_claims(claims: Iterable[Claim]) -> list[ClaimedInterval]:
    """Joins the claims of all ledgers that overlap."""
    intervals: list[list[Claim]] = []
    end = -1
    for claim in sorted(claims, key=lambda claim: (claim.partition, claim.from_offset)):
        if intervals and intervals[-1][0].partition == claim.partition and claim.from_offset < end:
            intervals[-1].append(claim)
            end = max(end, claim.until_offset)
        elif claim.from_offset < claim.until_offset:
            intervals.append([claim])
            end = claim.until_offset
    return [ClaimedInterval(claims[0].partition, tuple(claims)) for claims in intervals]


def absent_since(*histories: History) -> dict[int, int]:
    """Counts, by partition, the claimed records that later commits removed from the tables (erasure, reload)."""
    absent: dict[int, int] = {}
    for commit in (commit for history in histories for commit in history):
        for change in commit.get("absent", ()):
            absent[change["partition"]] = absent.get(change["partition"], 0) + change["offsets"]
    return absent


def rows_by_key(lineage: History) -> int:
    """Returns how many rows a table of newest records should have: keys inserted less those deleted and erased."""
    merged = [commit["upsert"] for commit in lineage if commit.get("upsert")]
    taken_out = sum(absent_since(lineage).values())
    inserted, deleted = (sum(int(counts[what]) for counts in merged) for what in ("inserted", "deleted"))
    return inserted - deleted - taken_out


def chain_findings(entries: Mapping[int, LedgerEntry], claims: Sequence[Claim]) -> Iterator[str]:
    """Yields where the claims of a ledger don't lead from its start to its next offset, one after the other."""
    by_partition = {partition: list(group) for partition, group in groupby(claims, attrgetter("partition"))}
    for partition, entry in entries.items():
        yield from _chain(partition, entry, by_partition.pop(partition, []))
    for partition, unknown in by_partition.items():
        if any(claim.from_offset < claim.until_offset for claim in unknown):
            yield f"partition {partition}: loads say that they loaded it, but the ledger doesn't know it"


def sum_findings(lineage: History, ledger: str) -> Iterator[str]:
    """Yields where a load's own account of a range does not add up to its offsets."""
    for load in loads_of(lineage, ledger):
        for span in load.get("ranges", ()):
            offsets = span["until_offset"] - span["from_offset"]
            accounted = sum(span.get(kind, 0) for kind in KINDS)
            if accounted != offsets:
                yield (
                    f"partition {span['partition']}, offsets {span['from_offset']}-{span['until_offset'] - 1}: "
                    f"the load accounts for {accounted} of {offsets} offsets"
                )


def _chain(partition: int, entry: LedgerEntry, claims: Iterable[Claim]) -> Iterator[str]:
    position = entry.start_offset
    for claim in claims:
        if claim.from_offset != position:
            yield f"partition {partition}: a load began at {claim.from_offset}, the one before ended at {position}"
        position = max(position, claim.until_offset)
    if position != entry.next_offset:
        yield f"partition {partition}: the loads end at offset {position}, the ledger at {entry.next_offset}"
