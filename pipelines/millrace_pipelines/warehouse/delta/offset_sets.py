"""Sets of offsets that a commit keeps where their number is not enough: in its lineage, or in a file that it names.

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
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from zlib import compress, crc32, decompress

import numpy as np
import numpy.typing as npt

from millrace.errors import WarehouseError
from millrace.records.absent import Intervals, as_intervals, intervals_of, joined
from millrace_pipelines.arrow import Flags
from millrace_pipelines.warehouse.delta.lineage import KeptOffsets, Lineage
from millrace_pipelines.warehouse.delta.store import LINEAGE_FOLDER, TableFiles

SUFFIX = ".offsets"
INLINE_BYTES = 1024


class OffsetPage(NamedTuple):
    """The offsets of a set that lie in a range of one partition."""

    partition: int
    from_offset: int
    until_offset: int
    packed: str

    def intervals(self) -> Intervals:
        """Returns the offsets as intervals, which rise and do not touch."""
        return unpacked(self.packed, self.from_offset)

    def marks(self, from_offset: int, until_offset: int) -> Flags:
        """Returns for each offset of a part of the range whether the set has it."""
        found = self.intervals()
        low = np.searchsorted(found[:, 1], from_offset, side="right")
        high = np.searchsorted(found[:, 0], until_offset)
        begins, ends = (np.clip(found[low:high], from_offset, until_offset) - from_offset).T
        steps = np.zeros(until_offset - from_offset + 1, np.int8)
        steps[begins], steps[ends] = 1, -1
        return np.cumsum(steps[:-1], dtype=np.int8).astype(np.bool_)


def packed(intervals: Intervals, from_offset: int) -> str:
    """Packs intervals that rise and do not touch, none of which begins before an offset."""
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
    """Yields pages of distinct offsets. An offset that comes several times is on as many pages."""
    for partition in np.unique(partitions):
        mine = np.sort(offsets[partitions == partition])
        while len(mine):
            is_again = np.r_[False, mine[1:] == mine[:-1]]
            once, mine = mine[~is_again], mine[is_again]
            first, until = int(once[0]), int(once[-1]) + 1
            yield OffsetPage(int(partition), first, until, packed(intervals_of(once), first))


def keep_offsets(store: TableFiles, operation_id: str, pages: Sequence[OffsetPage]) -> KeptOffsets:
    """Keeps a set durably, and returns what the commit's lineage is to say of it; raises OSError where that fails."""
    content = _content(pages)
    if len(content) <= INLINE_BYTES:
        return {"crc32": crc32(content), "pages": pages}
    name = f"{LINEAGE_FOLDER}/{operation_id}-{uuid.uuid4().hex}{SUFFIX}"
    store.replace(name, lambda _: content)
    return {"crc32": crc32(content), "file": name}


def kept_offsets(store: TableFiles, said: KeptOffsets) -> list[OffsetPage]:
    """Returns the pages of a set that a lineage names.

    Raises:
        WarehouseError: They are not there, or not those that were kept.
    """
    name = said.get("file")
    content = _content(said.get("pages", ())) if name is None else store.read(name)
    place = f"{store.location}: the offsets in its lineage" if name is None else store.path(name)
    if content is None:
        raise WarehouseError(f"{place}: the table's history names this file, but it is not there")
    if crc32(content) != said.get("crc32"):
        raise WarehouseError(f"{place}: CRC-32 is {crc32(content)}, and {said.get('crc32')} was written")
    return [OffsetPage(*page) for page in json.loads(content)]


def offset_files(store: TableFiles, names: Iterable[str], before_ms: int) -> list[str]:
    """Returns those of a table's files that keep sets, or were to, and were written before a time."""
    kept = [name for name in names if name.startswith(f"{LINEAGE_FOLDER}/") and SUFFIX in name]
    found = store.filesystem.get_file_info([store.path(name) for name in kept])
    return [name for name, info in zip(kept, found, strict=True) if (info.mtime_ns or 0) < before_ms * 1_000_000]


def named_by(history: Iterable[Lineage]) -> set[str]:
    """Returns the names of the files that keep the sets of a table's commits."""
    said = [commit[what] for commit in history for what in ("recorded", "erased") if what in commit]
    return {one["file"] for one in said if "file" in one}


def _content(pages: Sequence[Sequence[object]]) -> bytes:
    return json.dumps([list(page) for page in pages]).encode()
