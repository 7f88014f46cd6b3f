"""Gives differences of single records their exact names, once all of a partition's are known.

A record that the source has alone at one place, and the target at another, was moved. One that the target has alone,
though the source has a record of the same content, is there twice. And two that were taken for one that was changed
are no such pair if one of them is found elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from millrace.records.record import Record
from millrace_pipelines.mirror.comparison.difference import Content, Difference, Kind, content, extra, missing


def renamed(differences: Sequence[Difference], source: Iterable[Record]) -> list[Difference]:
    """Returns the differences with the names that they get by one another, and by the source's records.

    `source` is only looked at if the target has records that the source lacks at their place.
    """
    of_target = {content(one.target) for one in differences if one.target is not None}
    first: dict[Content, int] = {}
    for record in source if of_target else ():
        if content(record) in of_target:
            first.setdefault(content(record), record.offset)
    single = [one for each in differences for one in _single(each, of_target, first)]
    return [_twice(one, first) for one in _moved(single)]


def _single(one: Difference, of_target: set[Content], first: dict[Content, int]) -> Iterator[Difference]:
    """Yields the difference, or two in place of one of two records of which either is found elsewhere."""
    if one.source is None or one.target is None:
        yield one
    elif content(one.source) in of_target or content(one.target) in first:
        yield missing(one.source)
        yield extra(one.target)
    else:
        yield one


def _moved(differences: Sequence[Difference]) -> list[Difference]:
    lacking: dict[Content, list[Difference]] = {}
    for one in differences:
        if one.kind is Kind.MISSING and one.source is not None:
            lacking.setdefault(content(one.source), []).append(one)
    found: list[Difference] = []
    gone: set[int | None] = set()
    for one in differences:
        same = lacking.get(content(one.target)) if one.kind is Kind.EXTRA and one.target is not None else None
        if same:
            moved = same.pop(0)
            gone.add(moved.source_offset)
            found.append(replace(moved, kind=Kind.MOVED, target_offset=one.target_offset, target=one.target))
        else:
            found.append(one)
    return [one for one in found if one.kind is not Kind.MISSING or one.source_offset not in gone]


def _twice(one: Difference, first: dict[Content, int]) -> Difference:
    if one.kind is not Kind.EXTRA or one.target is None or content(one.target) not in first:
        return one
    return replace(one, kind=Kind.TWICE, source_offset=first[content(one.target)])
