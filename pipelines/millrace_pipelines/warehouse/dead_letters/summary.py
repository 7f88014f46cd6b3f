"""Reading dead letters: counts by reason, and single dead letters with their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import numbered
from millrace_pipelines.warehouse.dead_letters.letters import NO_REASON, Selection, chosen, letters_of
from millrace_pipelines.warehouse.dead_letters.marks import Pending, pending_replay
from millrace_pipelines.warehouse.delta.location import dead_letters_dir
from millrace_pipelines.warehouse.delta.python_rows import python_rows
from millrace_pipelines.warehouse.delta.store import store_at
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.payload.dead_letter import Letter


@dataclass(slots=True)
class ReasonCount:
    """Counts the dead letters of one reason; `example` is the message of the first, at `partition` and `offset`."""

    reason: str
    letters: int = 0
    replayed: int = 0
    partition: int = -1
    offset: int = -1
    example: str = ""

    @property
    def waiting(self) -> int:
        """The number of dead letters that are not replayed."""
        return self.letters - self.replayed


def count_reasons(table_dir: str, selection: Selection) -> list[ReasonCount]:
    """Counts the selected dead letters by reason, most frequent first.

    Raises TableNotFoundError where there is no table.
    """
    counts: dict[str, ReasonCount] = {}
    for letters in _letters(table_dir, selection):
        reasons = letters.column("reason")
        for reason in reasons.unique().to_pylist():
            some = letters.filter(pc.equal(reasons, pa.scalar(reason)) if reason else pc.is_null(reasons))
            count = counts.setdefault(reason or NO_REASON, ReasonCount(reason or NO_REASON))
            if count.letters == 0:
                [first] = some.slice(0, 1).select(["partition", "offset", "error"]).to_pylist()
                count.partition, count.offset, count.example = first["partition"], first["offset"], first["error"]
            count.letters += some.num_rows
            count.replayed += some.num_rows - some.column("replay").null_count
    return sorted(counts.values(), key=lambda count: -count.letters)


def each_letter(table_dir: str, selection: Selection) -> Iterator[Letter]:
    """Yields the selected dead letters, one after the other, under their columns' names."""
    for letters in _letters(table_dir, selection):
        yield from cast("list[Letter]", python_rows(letters))


def _letters(table_dir: str, selection: Selection) -> Iterator[pa.Table]:
    """Yields the selected dead letters; those that are replayed but not marked yet have the number of their replay."""
    fs = OsFileSystem()
    location = store_at(table_dir, fs).location
    rows, dead_letters = Table.load(location, fs), Table.load(dead_letters_dir(location), fs)
    pending = pending_replay(rows, dead_letters)
    for letters in letters_of(dead_letters):
        selected = letters.filter(chosen(letters, selection))
        if selected.num_rows:
            yield selected if pending is None else _with_pending(selected, pending)


def _with_pending(letters: pa.Table, pending: Pending) -> pa.Table:
    replay = numbered(pending.mask(letters), pending.number, letters.column("replay"))
    return letters.set_column(letters.column_names.index("replay"), "replay", replay)
