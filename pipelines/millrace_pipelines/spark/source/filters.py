"""Filters of a query that choose offsets: only the offsets that they leave of a partition are fetched.

    topic = 'events'            these topics                        done here
    partition in (0, 2)         these partitions                    done here
    offset >= 17                from 17                             done here
    timestamp >= t              from the first offset not older     Spark looks again at the rows
    timestamp < t               nothing: producers' times need not grow with the offsets

An upper bound of time chooses rows, not offsets; the option endingTime ends a read at an offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from typing import TypeVar

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from millrace.times import EPOCH

MAX_OFFSET = 2**63 - 1
NEVER_NULL = frozenset({"topic", "partition", "offset"})
Kept = TypeVar("Kept", str, int)


@dataclass(frozen=True, slots=True)
class OffsetFilter:
    """The topics, partitions and offsets that filters leave; None means all of them.

    `from_offset` is included, `until_offset` is not.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    from_offset: int = 0
    until_offset: int = MAX_OFFSET
    from_timestamp_ms: int | None = None

    def allows(self, topic: str, partition: int) -> bool:
        """Returns whether a partition is read at all."""
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


def narrow(bounds: OffsetFilter, filters: Iterable[Filter]) -> tuple[OffsetFilter, list[Filter]]:
    """Returns the bounds, narrowed by the filters that they can express, and those that Spark has to apply itself."""
    left: list[Filter] = []
    for one in filters:
        narrowed = list(_narrowed(one))
        bounds = reduce(_both, narrowed, bounds)
        if not narrowed or getattr(one, "attribute", ()) == ("timestamp",):
            left.append(one)
    return bounds, left


def _narrowed(one: Filter) -> Iterator[OffsetFilter]:
    """Yields the bounds that a filter expresses; none where it chooses no offsets."""
    match one:
        case IsNotNull((name,)) if name in NEVER_NULL:
            yield OffsetFilter()
        case EqualTo((name,), value) | EqualNullSafe((name,), value):
            yield from _equal(name, [value])
        case In((name,), values):
            yield from _equal(name, list(values))
        case GreaterThan(("offset",), int(value)):
            yield OffsetFilter(from_offset=value + 1)
        case GreaterThanOrEqual(("offset",), int(value)):
            yield OffsetFilter(from_offset=value)
        case LessThan(("offset",), int(value)):
            yield OffsetFilter(until_offset=value)
        case LessThanOrEqual(("offset",), int(value)):
            yield OffsetFilter(until_offset=value + 1)
        case GreaterThan(("timestamp",), datetime() as value) | GreaterThanOrEqual(("timestamp",), datetime() as value):
            yield from _since(value)


def _equal(name: str, values: Sequence[object]) -> Iterator[OffsetFilter]:
    texts = frozenset(value for value in values if isinstance(value, str))
    numbers = frozenset(value for value in values if isinstance(value, int))
    if name == "topic" and texts.issuperset(values):
        yield OffsetFilter(topics=texts)
    elif name == "partition" and numbers.issuperset(values):
        yield OffsetFilter(partitions=numbers)
    elif name == "offset" and len(values) == 1 and isinstance(values[0], int):
        yield OffsetFilter(from_offset=values[0], until_offset=values[0] + 1)
    elif name == "timestamp" and len(values) == 1 and isinstance(values[0], datetime):
        yield from _since(values[0])


def _since(moment: datetime) -> Iterator[OffsetFilter]:
    if moment.tzinfo is not None:
        yield OffsetFilter(from_timestamp_ms=(moment - EPOCH) // timedelta(milliseconds=1))


def _both(one: OffsetFilter, other: OffsetFilter) -> OffsetFilter:
    times = [time for time in (one.from_timestamp_ms, other.from_timestamp_ms) if time is not None]
    return replace(
        one,
        topics=_intersection(one.topics, other.topics),
        partitions=_intersection(one.partitions, other.partitions),
        from_offset=max(one.from_offset, other.from_offset),
        until_offset=min(one.until_offset, other.until_offset),
        from_timestamp_ms=max(times, default=None),
    )


def _intersection(one: frozenset[Kept] | None, other: frozenset[Kept] | None) -> frozenset[Kept] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
