"""The ranges of offsets that tasks read, and how many offsets a micro-batch takes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

TopicPartition = tuple[str, int]


class TopicRange(NamedTuple):
    """Offsets of one partition: from_offset up to, not including, until_offset."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int


class RangePartition(InputPartition):
    """A range as Spark hands it to a task."""

    def __init__(self, part: TopicRange) -> None:
        super().__init__(tuple(part))


def split(part: TopicRange, max_records_per_task: int | None) -> list[TopicRange]:
    """Splits a range into equal pieces of at most `max_records_per_task` offsets; none where it is empty."""
    offsets = part.until_offset - part.from_offset
    if offsets <= 0:
        return []
    pieces = 1 if max_records_per_task is None else -(-offsets // max_records_per_task)
    bounds = [part.from_offset + offsets * piece // pieces for piece in range(pieces + 1)]
    return [TopicRange(part.topic, part.partition, low, high) for low, high in pairwise(bounds)]


def admit(backlog: Mapping[TopicPartition, int], max_records: int) -> dict[TopicPartition, int]:
    """Returns how many offsets each partition gives, in proportion to its backlog, at most `max_records` together.

    The offsets that rounding leaves go to the partitions with the largest remainders, so a limit of 1 makes progress.
    """
    total = sum(backlog.values())
    if total <= max_records:
        return dict(backlog)
    shares = {place: waiting * max_records // total for place, waiting in backlog.items()}
    left = max_records - sum(shares.values())
    by_remainder = sorted(backlog, key=lambda place: (-(backlog[place] * max_records % total), place))
    for place in by_remainder[:left]:
        shares[place] += 1
    return shares
