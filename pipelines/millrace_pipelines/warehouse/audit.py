"""The completeness audit: does a table have every offset that its ledger says, once?

For each partition, from the table's own parts:

    lineage     the ranges of all commits follow one another from the ledger's start to its next offset
    offsets     none twice among rows and dead letters, none outside start … next
    counts      rows + dead letters + absent + lost == next - start

Offsets are read from the data files (two columns of them) and noted in one byte each.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.dataset as ds

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.dead_letters import dead_letters_dir
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.ledger import LedgerEntry, ledger_of
from millrace_pipelines.warehouse.table import Table

SHOWN_OFFSETS = 5


def audit(table_dir: str) -> list[str]:
    """What is wrong with the table, a line for each finding; none where it is complete.

    Raises:
        TableNotFoundError: No table of Millrace in the directory.
    """
    table = Table.load(table_dir, OsFileSystem())
    ledger, lineage = ledger_of(table), table.lineage()
    files = table.files()
    findings = [f"{path}: the table names this file, but it is not there" for path in files if not os.path.exists(path)]
    if findings:
        return findings
    counts = {partition: _Seen(entry) for partition, entry in ledger.partitions.items()}
    findings += _note_offsets(files, counts, "rows", bounded=True)
    findings += _note_offsets(_dead_letter_files(table_dir), counts, "dead letters", bounded=False)
    for partition, seen in counts.items():
        spans = _spans_of(partition, lineage)
        findings += _chain_findings(partition, seen.entry, spans)
        findings += _count_findings(partition, seen, sum(span["absent"] for span in spans))
    return findings


class _Seen:
    """Which offsets of one partition were met."""

    def __init__(self, entry: LedgerEntry) -> None:
        self.entry = entry
        self.met = np.zeros(entry.next_offset - entry.start_offset, np.bool_)

    def note(self, offsets: Any) -> Any:
        """Note offsets inside start … next; returns those that were met before."""
        places = offsets - self.entry.start_offset
        unique, counts = np.unique(places, return_counts=True)
        repeated = unique[(counts > 1) | self.met[unique]]
        self.met[unique] = True
        return repeated + self.entry.start_offset


def _dead_letter_files(table_dir: str) -> list[str]:
    try:
        return Table.load(dead_letters_dir(table_dir), OsFileSystem()).files()
    except TableNotFoundError:
        return []


def _note_offsets(files: Sequence[str], counts: Mapping[int, _Seen], kind: str, *, bounded: bool) -> Iterator[str]:
    """Note the files' offsets; dead letters may be ahead of the ledger, by a load that stopped between its commits."""
    if not files:
        return
    for batch in ds.dataset(list(files), format="parquet").to_batches(columns=["partition", "offset"]):
        partitions, offsets = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        for partition in np.unique(partitions):
            yield from _note_partition(int(partition), offsets[partitions == partition], counts, kind, bounded)


def _note_partition(
    partition: int, offsets: Any, counts: Mapping[int, _Seen], kind: str, bounded: bool
) -> Iterator[str]:
    seen = counts.get(partition)
    if seen is None:
        if bounded:
            yield f"partition {partition}: {len(offsets)} {kind}, but the ledger doesn't know the partition"
        return
    inside = (offsets >= seen.entry.start_offset) & (offsets < seen.entry.next_offset)
    if bounded and not inside.all():
        yield (
            f"partition {partition}: {kind} outside the ledger's offsets "
            f"{seen.entry.start_offset}-{seen.entry.next_offset - 1}: {_shown(offsets[~inside])}"
        )
    repeated = seen.note(offsets[inside])
    if len(repeated):
        yield f"partition {partition}: {len(repeated)} offsets are doubled, again among {kind}: {_shown(repeated)}"


def _spans_of(partition: int, lineage: Iterable[Mapping[str, Any]]) -> list[dict[str, int]]:
    """The ranges and losses of all loads for one partition, by offset."""
    spans: list[dict[str, int]] = []
    for load in lineage:
        spans += [span for span in load["ranges"] if span["partition"] == partition]
        for span in load["lost"]:
            if span["partition"] == partition:
                spans.append(span | {"absent": span["until_offset"] - span["from_offset"]})
    return sorted(spans, key=lambda span: span["from_offset"])


def _chain_findings(partition: int, entry: LedgerEntry, spans: Sequence[Mapping[str, int]]) -> Iterator[str]:
    position = entry.start_offset
    for span in spans:
        if span["from_offset"] != position:
            yield f"partition {partition}: a load began at {span['from_offset']}, the one before ended at {position}"
        position = span["until_offset"]
    if position != entry.next_offset:
        yield f"partition {partition}: the loads end at offset {position}, the ledger at {entry.next_offset}"


def _count_findings(partition: int, seen: _Seen, absent: int) -> Iterator[str]:
    missing = np.flatnonzero(~seen.met) + seen.entry.start_offset
    if len(missing) != absent:
        yield (
            f"partition {partition}: {len(missing)} offsets are neither rows nor dead letters, "
            f"the loads say {absent}: {_shown(missing)}"
        )


def _shown(offsets: Any) -> str:
    shown = ", ".join(str(offset) for offset in offsets[:SHOWN_OFFSETS])
    return shown + (", …" if len(offsets) > SHOWN_OFFSETS else "")
