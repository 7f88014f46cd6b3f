"""What a commit says of itself: JSON in the table's log, under `millrace.lineage`, and in files that outlive the log.

Each operation writes what it did (`WrittenLineage`), and gives it a `kind`. A table's history returns these objects
(`Lineage`); their fields here are those that something reads again. An object has those of its kind, and what older
versions wrote may lack some of them.

    DIR/_lineage/<first version>-<last version>.json    {"lineage": [table's id, {version: lineage, …}], "crc32": …}

The log's commits have it first, and what they say counts. But an engine may remove commits that are older than
`delta.logRetentionDuration` and stand in a checkpoint, and the audit, the history and the erased keys need all of them.
So each commit is followed by a file, of all commits since the one that the ledger's copy knows: a crash between leaves
the file of the next commit to say it. Where there are many files, one takes their place. A damaged file counts as none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Required, TypeAlias, TypedDict, cast

import pyarrow.fs as pafs

from millrace.errors import WarehouseError
from millrace_pipelines.warehouse.delta.store import LINEAGE_FOLDER, TableFiles, checked_json, said_in

LINEAGE_KEY = "millrace.lineage"

WrittenLineage: TypeAlias = Mapping[str, object]
"""A JSON object that a commit is to keep."""

Ranges: TypeAlias = Mapping[str, Mapping[str, Sequence[Sequence[int]]]]
"""By ledger and partition, ranges of offsets as [from, until]."""
MANY_FILES = 100
SAID = "lineage"


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


def keep_lineage(store: TableFiles, table_id: str, commits: Mapping[int, Lineage]) -> None:
    """Writes the lineage of some commits durably, by their versions; raises OSError where that fails."""
    if not commits:
        return
    store.replace(_name(commits), lambda _: _content(table_id, commits))
    names = _names(store)
    if len(names) > MANY_FILES:
        everything = kept_lineage(store, table_id)
        whole = _name(everything)
        store.replace(whole, lambda _: _content(table_id, everything))
        store.remove_durably(name for name in names if name != whole)


def kept_lineage(store: TableFiles, table_id: str) -> dict[int, Lineage]:
    """Returns the lineage of a table's commits, by their versions, as far as files have it."""
    found: dict[int, Lineage] = {}
    for name in _names(store):
        found |= _commits_in(store.read(name), table_id)
    return found


def _commits_in(content: bytes | None, table_id: str) -> dict[int, Lineage]:
    match said_in(content, SAID):
        case [of_table, dict(commits)] if of_table == table_id:
            return {int(version): cast("Lineage", lineage) for version, lineage in commits.items()}
    return {}


def _content(table_id: str, commits: Mapping[int, Lineage]) -> bytes:
    said = [table_id, {str(version): lineage for version, lineage in commits.items()}]
    return checked_json(SAID, said)


def _name(commits: Mapping[int, Lineage]) -> str:
    return f"{LINEAGE_FOLDER}/{min(commits):020d}-{max(commits):020d}.json"


def _names(store: TableFiles) -> list[str]:
    selector = pafs.FileSelector(store.path(LINEAGE_FOLDER), allow_not_found=True)
    listed = store.filesystem.get_file_info(selector)
    return sorted(f"{LINEAGE_FOLDER}/{one.base_name}" for one in listed if one.base_name.endswith(".json"))
