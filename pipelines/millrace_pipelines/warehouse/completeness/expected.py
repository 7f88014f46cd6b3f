"""How often each offset should be there, as a row or a dead letter: decided from what commits keep of their offsets.

    load        each offset of its ranges once more, but for those that gave no record (markers, aborted, absent, lost)
    reload      the same of the earlier offsets that it added, and in place of all before it for what it replaced
    erasure     each offset that it removed once less; so does a reload with records of erased keys, which it leaves out

A load whose offsets all gave records keeps none, for its numbers tell as much. Those of older versions that met others,
too, do not: what they gave is known as a number alone, and so is what an older erasure left. These offsets are OLD.
Where what a commit keeps can't be read any more, they are DAMAGED. A reload makes both KNOWN again.

Erasures of dead letters are in another table's history, and no order is known between the two: what they removed is
taken last, and is OLD where more than one ledger claims the offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from millrace.errors import WarehouseError
from millrace.records.absent import NO_INTERVALS
from millrace_pipelines.arrow import Flags
from millrace_pipelines.warehouse.keys.removal import ERASE
from millrace_pipelines.warehouse.load.history import LOAD
from millrace_pipelines.warehouse.stores.store import Store
from millrace_pipelines.warehouse.table.lineage import (
    KeptOffsets,
    Lineage,
    LineageRange,
    OffsetPage,
    kept_offsets,
    packed,
)

KNOWN, OLD, DAMAGED = range(3)
FILES_AT_ONCE = 4
MOST = np.iinfo(np.int64).max


class Expectation:
    """The number of records that consecutive offsets should have, by the table's history, in arrays by offset.

    Attributes:
        times: How many rows and dead letters together the offset should have; of use where it is KNOWN.
        claims: How many ledgers claim it.
        state: KNOWN; OLD where the history is too old to say; DAMAGED where its record can't be read.
    """

    def __init__(self, from_offset: int, until_offset: int) -> None:
        self.from_offset = from_offset
        self.until_offset = until_offset
        self.times: npt.NDArray[np.int16] = np.zeros(until_offset - from_offset, np.int16)
        self.claims: npt.NDArray[np.int16] = np.zeros(until_offset - from_offset, np.int16)
        self.state: npt.NDArray[np.uint8] = np.zeros(until_offset - from_offset, np.uint8)


class Does(Enum):
    """The ways in which a commit changes how many records the offsets in a range should have."""

    ADD = auto()
    REPLACE = auto()
    REMOVE = auto()
    REMOVE_DEAD_LETTERS = auto()
    FORGET = auto()


Pages: TypeAlias = Callable[[], Sequence[OffsetPage]]


class _Layer(NamedTuple):
    """The change that a commit makes to the offsets of a range: all, or with `pages` only those in the pages."""

    does: Does
    partition: int
    from_offset: int
    until_offset: int
    state: int = KNOWN
    pages: Pages = tuple


class Expected:
    """Tells from a table's history which of its offsets should be a row or a dead letter.

    Attributes:
        damages: Why sets of offsets that commits recorded can't be read; for offsets that are DAMAGED.

    Args:
        store: The files of the table of rows.
        history: The lineage of that table's commits, oldest first.
        ledgers: The names of its ledgers, the newest one last.
        dead_letters: The files and the history of its dead letters; None where there are none.
    """

    def __init__(
        self,
        store: Store,
        history: Sequence[Lineage],
        ledgers: Sequence[str],
        dead_letters: tuple[Store, Sequence[Lineage]] | None = None,
    ) -> None:
        self.damages: list[str] = []
        self._store = store
        self._file = lru_cache(FILES_AT_ONCE)(self._read_file)
        of_rows = list(self._of_rows(history, ledgers))
        of_dead_letters = [] if dead_letters is None else [
            layer
            for commit in dead_letters[1]
            for layer in self._erased(dead_letters[0], commit, Does.REMOVE_DEAD_LETTERS)
        ]  # fmt: skip
        forgotten = [layer for layer in of_dead_letters if layer.does is Does.FORGET]
        removed = [layer for layer in of_dead_letters if layer.does is not Does.FORGET]
        self._layers: dict[int, list[_Layer]] = {}
        for layer in (*forgotten, *of_rows, *removed):
            self._layers.setdefault(layer.partition, []).append(layer)
        self._bounds = {
            partition: np.array([(layer.from_offset, layer.until_offset) for layer in layers], np.int64)
            for partition, layers in self._layers.items()
        }

    def of(self, partition: int, from_offset: int, until_offset: int) -> Expectation:
        """Returns what is expected of the offsets from `from_offset` up to `until_offset`.

        Raises WarehouseError where the offsets that a commit recorded change on the disk meanwhile.
        """
        expectation = Expectation(from_offset, until_offset)
        begins, ends = self._bounds.get(partition, np.zeros((0, 2), np.int64)).T
        for number in np.flatnonzero((begins < until_offset) & (ends > from_offset)):
            self._apply(self._layers[partition][number], expectation)
        return expectation

    def _apply(self, layer: _Layer, expectation: Expectation) -> None:
        low = max(layer.from_offset, expectation.from_offset)
        high = min(layer.until_offset, expectation.until_offset)
        part = slice(low - expectation.from_offset, high - expectation.from_offset)
        times, claims, state = expectation.times[part], expectation.claims[part], expectation.state[part]
        if layer.does is Does.FORGET:
            state[:] = layer.state
            return
        offsets = _offsets(layer, low, high)
        if layer.does is Does.ADD:
            claims += 1
            times += offsets
            np.maximum(state, layer.state, out=state)
        elif layer.does is Does.REPLACE:
            times[:] = offsets
            state[:] = layer.state
        else:
            np.maximum(times - offsets, 0, out=times)
            if layer.does is Does.REMOVE_DEAD_LETTERS:
                state[offsets & (claims > 1) & (state == KNOWN)] = OLD

    def _pages(self, kept: KeptOffsets) -> Sequence[OffsetPage]:
        return self._file(kept["file"], kept["crc32"]) if "file" in kept else kept_offsets(self._store, kept)

    def _read_file(self, name: str, checksum: int) -> Sequence[OffsetPage]:
        return kept_offsets(self._store, {"file": name, "crc32": checksum})

    def _of_rows(self, history: Sequence[Lineage], ledgers: Sequence[str]) -> Iterator[_Layer]:
        has_erased = False
        for commit in history:
            if commit.get("kind", LOAD) == LOAD and commit.get("ledger", ledgers[-1]) in ledgers:
                is_old = has_erased and "replaced" in commit and "erased" not in commit
                yield from self._loaded(commit, is_old=is_old)
            has_erased |= commit.get("kind") == ERASE
            yield from self._erased(self._store, commit, Does.REMOVE)

    def _loaded(self, commit: Lineage, *, is_old: bool) -> Iterator[_Layer]:
        """Yields a layer for each range of a load or reload, OLD where it does not list which offsets became no row."""
        kept = commit.get("recorded")
        is_damaged = kept is not None and self._checked(self._store, kept) is None
        in_part = DAMAGED if is_damaged else OLD if kept is None else KNOWN
        pages = tuple if kept is None or is_damaged else partial(self._pages, kept)
        for does, spans in ((Does.ADD, commit.get("ranges", ())), (Does.REPLACE, commit.get("replaced", ()))):
            for span in spans:
                state = OLD if is_old else KNOWN if _is_whole(span) else in_part
                yield _Layer(does, *_bounds(span), state, pages)
        for span in commit.get("lost", ()):
            nothing = OffsetPage(*_bounds(span), packed(NO_INTERVALS, span["from_offset"]))
            yield _Layer(Does.ADD, *_bounds(span), KNOWN, partial(list, [nothing]))

    def _erased(self, store: Store, commit: Lineage, does: Does) -> Iterator[_Layer]:
        """Yields layers of the offsets that a commit erased; where it does not list them, of all that it may have."""
        pages = self._checked(store, commit["erased"]) if "erased" in commit else None
        if pages is not None:
            for page in pages:
                yield _Layer(does, *page[:3], KNOWN, partial(list, [page]))
            return
        state = DAMAGED if "erased" in commit else OLD
        if commit.get("kind") == ERASE:
            below = commit.get("below", {})
            for change in commit.get("absent", ()):
                yield _Layer(Does.FORGET, change["partition"], 0, below.get(str(change["partition"]), MOST), state)
        elif state == DAMAGED:
            for span in (*commit.get("ranges", ()), *commit.get("replaced", ())):
                yield _Layer(Does.FORGET, *_bounds(span), state)

    def _checked(self, store: Store, kept: KeptOffsets) -> Sequence[OffsetPage] | None:
        """Returns the offsets that a commit recorded; None where they can't be read, with the reason in `damages`."""
        try:
            return kept_offsets(store, kept)
        except WarehouseError as error:
            self.damages.append(str(error))
            return None


def _offsets(layer: _Layer, low: int, high: int) -> Flags:
    """Returns, for each offset from `low` up to `high`, whether a layer applies to it."""
    if layer.state != KNOWN:
        return np.zeros(high - low, np.bool_)
    meant = np.ones(high - low, np.bool_)
    for page in layer.pages():
        first, end = max(low, page.from_offset), min(high, page.until_offset)
        if page.partition == layer.partition and first < end:
            meant[first - low : end - low] = page.marks(first, end)
    return meant


def _bounds(span: LineageRange) -> tuple[int, int, int]:
    return span["partition"], span["from_offset"], span["until_offset"]


def _is_whole(span: LineageRange) -> bool:
    """Returns whether each offset of a range became a row or a dead letter."""
    return span.get("rows", 0) + span.get("dead_letters", 0) == span["until_offset"] - span["from_offset"]
