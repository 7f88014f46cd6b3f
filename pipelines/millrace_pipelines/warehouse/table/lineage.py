"""What a commit says of itself: JSON in the table's log, under `millrace.lineage`, and in files that outlive the log.

Each operation writes what it did (`WrittenLineage`), and gives it a `kind`. A table's history returns these objects
(`Lineage`); their fields here are those that something reads again. An object has those of its kind, and what older
versions wrote may lack some of them.

    DIR/_lineage/<first version>-<last version>.json    {"lineage": [table's id, {version: lineage, …}], "crc32": …}

The log's commits have it first, and what they say counts. But an engine may remove commits that are older than
`delta.logRetentionDuration` and stand in a checkpoint, and the audit, the history and the erased keys need all of them.
So each commit is followed by a file, of all commits since the one that the ledger's copy knows: a crash between leaves
the file of the next commit to say it. Where there are many files, one stands for all. A damaged file counts as none.

Where the number of offsets is not enough, a commit keeps the set: in its lineage, or in a file that it names.

    {"crc32": …, "pages": [[partition, from offset, until offset, packed], …]}
    {"crc32": …, "file": "_lineage/<operation id>-<unique>.offsets"}              the same pages, as JSON

A page has the offsets of a set that lie in one range. It is packed as the lengths of the runs that lie in the set and
outside of it in turn, which repeat in a log with gaps at even distances: compressed, such a set of millions of offsets
takes a few hundred bytes, and no set more than about two bits for each offset. More than INLINE_BYTES go to a file. It
is durable before the commit names it, and lies where other engines leave it alone; one that no commit names is garbage,
which vacuum removes. `crc32` is the checksum of the pages' JSON.
"""

from __future__ import annotations

import json
import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Required, TypeAlias, TypedDict, cast
from zlib import compress, crc32, decompress

import numpy as np
import numpy.typing as npt
import pyarrow.fs as pafs

from millrace.errors import WarehouseError
from millrace.records.absent import Intervals, as_intervals, intervals_of, joined
from millrace_pipelines.arrow import Flags
from millrace_pipelines.warehouse.stores.store import LINEAGE_FOLDER, Store, checked_json, said_in

LINEAGE_KEY = "millrace.lineage"

WrittenLineage: TypeAlias = Mapping[str, object]
"""A JSON object that a commit is to keep."""

Ranges: TypeAlias = Mapping[str, Mapping[str, Sequence[Sequence[int]]]]
"""By ledger and partition, ranges of offsets as [from, until]."""
MANY_FILES = 100
SAID = "lineage"
SUFFIX = ".offsets"
INLINE_BYTES = 1024


class LineageRange(TypedDict, total=False):
    """A range of offsets in a lineage, and how many of them became what; a lost range has only a `reason`.

    Only lineages of older tables have `absent`.
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
    """A set of offsets in a lineage: its pages themselves, or the name of the file that has them (`OffsetPage`)."""

    crc32: int
    pages: Sequence[Sequence[object]]
    file: str


class AbsentOffsets(TypedDict):
    """The number of offsets of a partition whose rows a commit removed; negative where it added some."""

    partition: int
    offsets: int


class Lineage(TypedDict, total=False):
    """The JSON by which a commit describes itself: its kind, offsets and counts; `version` is the version it made."""

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
    after: int
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
    """Returns the part of a lineage that names the scheduler's run; empty where no run made the commit."""
    return {} if run_id is None else {"run_id": run_id}


def parse_lineage(text: str, where: str) -> Lineage:
    """Returns a commit's lineage from its JSON; raises WarehouseError, naming `where` it stands, for other text."""
    try:
        lineage: object = json.loads(text)
    except ValueError:
        lineage = None
    if not isinstance(lineage, dict):
        raise WarehouseError(f"{where} is no JSON object")
    return cast("Lineage", lineage)


def keep_lineage(store: Store, table_id: str, commits: Mapping[int, Lineage]) -> None:
    """Writes the lineage of commits, by version, into files that outlast the log; raises OSError where that fails."""
    if not commits:
        return
    store.replace(_name(commits), lambda _: _content(table_id, commits))
    names = _names(store)
    if len(names) > MANY_FILES:
        everything = kept_lineage(store, table_id)
        whole = _name(everything)
        store.replace(whole, lambda _: _content(table_id, everything))
        store.remove_durably(name for name in names if name != whole)


def kept_lineage(store: Store, table_id: str) -> dict[int, Lineage]:
    """Returns the lineage of a table's commits, by version, that `keep_lineage` has written."""
    found: dict[int, Lineage] = {}
    for name in _names(store):
        found |= _commits_in(store.read(name), table_id)
    return found


def kept_until(store: Store) -> int:
    """Returns the newest version whose lineage `keep_lineage` has written; -1 for none."""
    return max((int(name.removesuffix(".json").rpartition("-")[2]) for name in _names(store)), default=-1)


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


def _names(store: Store) -> list[str]:
    selector = pafs.FileSelector(store.path(LINEAGE_FOLDER), allow_not_found=True)
    listed = store.filesystem.get_file_info(selector)
    return sorted(f"{LINEAGE_FOLDER}/{one.base_name}" for one in listed if one.base_name.endswith(".json"))


class OffsetPage(NamedTuple):
    """Those offsets of a set that lie in one range of a partition; `packed` has them compressed."""

    partition: int
    from_offset: int
    until_offset: int
    packed: str

    def intervals(self) -> Intervals:
        """Returns the page's offsets as intervals, which rise and do not touch."""
        return unpacked(self.packed, self.from_offset)

    def marks(self, from_offset: int, until_offset: int) -> Flags:
        """Returns, for each offset from `from_offset` up to `until_offset`, whether it is on the page."""
        found = self.intervals()
        low = np.searchsorted(found[:, 1], from_offset, side="right")
        high = np.searchsorted(found[:, 0], until_offset)
        begins, ends = (np.clip(found[low:high], from_offset, until_offset) - from_offset).T
        steps = np.zeros(until_offset - from_offset + 1, np.int8)
        steps[begins], steps[ends] = 1, -1
        return np.cumsum(steps[:-1], dtype=np.int8).astype(np.bool_)


def packed(intervals: Intervals, from_offset: int) -> str:
    """Returns intervals as compressed base64; they must rise, not touch, and begin at `from_offset` or later."""
    lengths = np.diff(intervals.ravel(), prepend=from_offset)
    size = np.min_scalar_type(lengths.max(initial=0)).itemsize
    return b64encode(compress(b"%d" % size + lengths.astype(f"<u{size}").tobytes())).decode()


def unpacked(text: str, from_offset: int) -> Intervals:
    """Returns the intervals in a text that `packed` has made for the same offset."""
    content = decompress(b64decode(text))
    lengths = np.frombuffer(content, f"<u{content[:1].decode()}", offset=1)
    return (np.cumsum(lengths.astype(np.int64)) + from_offset).reshape(-1, 2)


def merged(parts: Iterable[Intervals]) -> Intervals:
    """Returns the intervals of parts that share no offset, in order; those that touch become one."""
    found = joined(parts)
    found = found[np.argsort(found[:, 0], kind="stable")]
    is_edge = found[1:, 0] > found[:-1, 1]
    begins, ends = found[np.r_[True, is_edge][: len(found)], 0], found[np.r_[is_edge, True][: len(found)], 1]
    return as_intervals([]) if not len(found) else np.column_stack((begins, ends))


def pages_of(partitions: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> Iterator[OffsetPage]:
    """Yields pages of the given offsets; an offset that is given n times is on n pages."""
    for partition in np.unique(partitions):
        mine = np.sort(offsets[partitions == partition])
        while len(mine):
            is_again = np.r_[False, mine[1:] == mine[:-1]]
            once, mine = mine[~is_again], mine[is_again]
            first, until = int(once[0]), int(once[-1]) + 1
            yield OffsetPage(int(partition), first, until, packed(intervals_of(once), first))


def again_paged(pages: Iterable[OffsetPage]) -> list[OffsetPage]:
    """Returns the offsets of all pages on as few pages as `pages_of` needs; some of those given may meet."""
    given = [(page.partition, offsets_in(page.intervals())) for page in pages]
    if not given:
        return []
    partitions = np.repeat([partition for partition, _ in given], [len(offsets) for _, offsets in given])
    return list(pages_of(partitions.astype(np.int64), np.concatenate([offsets for _, offsets in given])))


def offsets_in(intervals: Intervals) -> npt.NDArray[np.int64]:
    """Returns each of the offsets that lie in the intervals, in their order."""
    begins, lengths = intervals[:, 0], intervals[:, 1] - intervals[:, 0]
    before = np.cumsum(lengths) - lengths
    offsets: npt.NDArray[np.int64] = np.arange(lengths.sum(), dtype=np.int64) + np.repeat(begins - before, lengths)
    return offsets


def keep_offsets(store: Store, operation_id: str, pages: Sequence[OffsetPage]) -> KeptOffsets:
    """Keeps a set of offsets durably, and returns how the lineage names it; raises OSError where that fails."""
    content = _written(pages)
    if len(content) <= INLINE_BYTES:
        return {"crc32": crc32(content), "pages": pages}
    name = f"{LINEAGE_FOLDER}/{operation_id}-{uuid.uuid4().hex}{SUFFIX}"
    store.replace(name, lambda _: content)
    return {"crc32": crc32(content), "file": name}


def kept_offsets(store: Store, said: KeptOffsets) -> list[OffsetPage]:
    """Returns the pages of a set of offsets that a lineage names.

    Raises:
        WarehouseError: The pages are missing, or fail their checksum.
    """
    name = said.get("file")
    content = _written(said.get("pages", ())) if name is None else store.read(name)
    where = f"{store.location}: the offsets in its lineage" if name is None else store.path(name)
    if content is None:
        raise WarehouseError(f"{where}: the table's history names this file, but it is not there")
    if crc32(content) != said.get("crc32"):
        raise WarehouseError(f"{where}: CRC-32 is {crc32(content)}, and {said.get('crc32')} was written")
    return [OffsetPage(*page) for page in json.loads(content)]


def offset_files(store: Store, names: Iterable[str], before_ms: int) -> list[str]:
    """Returns the names of files, among `names`, that keep sets of offsets and were written before `before_ms`."""
    kept = [name for name in names if name.startswith(f"{LINEAGE_FOLDER}/") and SUFFIX in name]
    found = store.filesystem.get_file_info([store.path(name) for name in kept])
    return [name for name, info in zip(kept, found, strict=True) if (info.mtime_ns or 0) < before_ms * 1_000_000]


def named_by(history: Iterable[Lineage]) -> set[str]:
    """Returns the names of the files to which a table's commits refer for sets of offsets."""
    said = [commit[what] for commit in history for what in ("recorded", "erased") if what in commit]
    return {one["file"] for one in said if "file" in one}


def _written(pages: Sequence[Sequence[object]]) -> bytes:
    return json.dumps([list(page) for page in pages]).encode()
