"""What a commit says of itself: JSON in the table's log, under `millrace.lineage`.

Each operation writes what it did (`WrittenLineage`), and gives it a `kind`. A table's history returns these objects
(`Lineage`); their fields here are those that something reads again. An object has those of its kind, and what older
versions wrote may lack some of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Required, TypeAlias, TypedDict, cast

from millrace.errors import WarehouseError

LINEAGE_KEY = "millrace.lineage"

WrittenLineage: TypeAlias = Mapping[str, object]
"""A JSON object that a commit is to keep."""

Ranges: TypeAlias = Mapping[str, Mapping[str, Sequence[Sequence[int]]]]
"""By ledger and partition, ranges of offsets as [from, until]."""


class LineageRange(TypedDict, total=False):
    """A range of offsets, and how many of them a load made into what; those that it lost have a `reason` instead.

    `absent` is in older tables.
    """

    partition: Required[int]
    from_offset: Required[int]
    until_offset: Required[int]
    rows: int
    dead_letters: int
    control: int
    aborted: int
    compacted: int
    missing: int
    absent: int
    reason: str


class KeptOffsets(TypedDict, total=False):
    """A set of offsets: its pages, or the file that has them (`delta.offset_sets`)."""

    crc32: int
    pages: Sequence[Sequence[object]]
    file: str


class AbsentOffsets(TypedDict):
    """How many more offsets of a partition give no row any more."""

    partition: int
    offsets: int


class Lineage(TypedDict, total=False):
    """What one commit said of itself, with the table's `version` that it made."""

    kind: str
    version: int
    run_id: str
    # Loads, reloads and changes of the ledger.
    load_id: str
    time_ms: int
    topic: str
    topic_id: str
    ledger: str
    isolation: str
    ranges: Sequence[LineageRange]
    replaced: Sequence[LineageRange]
    lost: Sequence[LineageRange]
    missing: Sequence[LineageRange]
    recorded: KeptOffsets
    rows: int
    dead_letters: int
    seconds: float
    upsert: Mapping[str, int]
    # Erasures; a reload has `absent`, too, and `erased` where keys were.
    salt: str
    keys: Sequence[str]
    below: Mapping[str, int]
    absent: Sequence[AbsentOffsets]
    erased: KeptOffsets
    # Replays.
    number: int
    letters: Ranges


def of_run(run_id: str | None) -> dict[str, object]:
    """Returns what a commit says of the scheduler's run that made it; nothing where none did."""
    return {} if run_id is None else {"run_id": run_id}


def parse_lineage(text: str, place: str) -> Lineage:
    """Returns a commit's lineage from its text; raises WarehouseError, which names `place`, for another text."""
    try:
        lineage: object = json.loads(text)
    except ValueError:
        lineage = None
    if not isinstance(lineage, dict):
        raise WarehouseError(f"{place} is no JSON object")
    return cast("Lineage", lineage)
