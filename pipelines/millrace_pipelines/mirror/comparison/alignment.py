"""Which of two sequences' members belong together, where they are not the same.

`matches` finds the shortest edit script of two short sequences, as Myers does in "An O(ND) Difference Algorithm and Its
Variations".
`find_run` finds where long sequences go on together, without holding more than one of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple


def matches(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Returns the rising pairs of indexes whose members are equal, as many as there can be."""
    furthest = {1: 0}  # by diagonal, how far into `a` the edits so far have come
    before: list[dict[int, int]] = []
    for edits in range(len(a) + len(b) + 1):
        before.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            i = _entered(furthest, diagonal, edits)
            while i < len(a) and i - diagonal < len(b) and a[i] == b[i - diagonal]:
                i += 1
            furthest[diagonal] = i
            if i >= len(a) and i - diagonal >= len(b):
                return _walked_back(before, len(a), len(b))
    raise AssertionError("deleting and inserting all is a script")


def _is_insertion(furthest: Mapping[int, int], diagonal: int, edits: int) -> bool:
    """Returns whether a diagonal is entered from the one above it, which skips a member of `b`, or from below."""
    if diagonal in (-edits, edits):
        return diagonal == -edits
    return furthest[diagonal - 1] < furthest[diagonal + 1]


def _entered(furthest: Mapping[int, int], diagonal: int, edits: int) -> int:
    """Returns how far into `a` a diagonal is entered."""
    is_insertion = _is_insertion(furthest, diagonal, edits)
    return furthest[diagonal + 1] if is_insertion else furthest[diagonal - 1] + 1


def _walked_back(before: Sequence[Mapping[int, int]], i: int, j: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for edits in range(len(before) - 1, -1, -1):
        furthest, diagonal = before[edits], i - j
        entered = _entered(furthest, diagonal, edits)
        while i > entered:
            i, j = i - 1, j - 1
            found.append((i, j))
        i, j = (i, j - 1) if _is_insertion(furthest, diagonal, edits) else (i - 1, j)
    return found[::-1]


class Run(NamedTuple):
    """Where two sequences go on together: an index in the long one, and one in the short one."""

    place: int
    short_place: int


def find_run(short: Sequence[Hashable], long: Iterable[Hashable], length: int) -> Run | None:
    """Returns the first place of `long` from which `length` members are those of some place of `short`; None for none.

    `length` is at least 1; of a short sequence that has fewer members, all of these are looked for.
    """
    wanted = min(length, len(short))
    places: dict[Hashable, list[int]] = {}
    for place, member in enumerate(short):
        places.setdefault(member, []).append(place)
    runs: dict[int, int] = {}
    for index, member in enumerate(long):
        runs = {place: runs.get(place - 1, 0) + 1 for place in places.get(member, ())}
        for place, so_far in runs.items():
            if so_far >= wanted:
                return Run(index - wanted + 1, place - wanted + 1)
    return None
