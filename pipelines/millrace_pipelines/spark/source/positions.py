"""Where a read begins and ends, as its options say.

earliest, latest                              the log's start or end when the query is planned
{"events": {"0": 17, "1": -2}}                an offset for each partition; -2 is earliest, -1 latest
2026-03-01T00:00:00Z, 1772323200000           the first offset whose record is not older, else the log's end
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from millrace import times
from millrace_pipelines.spark.brokers import LogOffsets
from millrace_pipelines.spark.errors import LogTruncatedError, OffsetsLostError, SourceOptionError

EARLIEST = -2
LATEST = -1
LOGICAL = {"earliest": EARLIEST, "latest": LATEST}

OffsetForTime = Callable[[str, int, int], int | None]
"""Returns, for a topic, a partition and milliseconds, the first offset that is not older; None where all are older."""


class Position(NamedTuple):
    """One of the three: a logical offset for all, an offset for each partition by topic, or a time."""

    logical: int = EARLIEST
    offsets: Mapping[str, Mapping[int, int]] | None = None
    timestamp_ms: int | None = None


def parse_offsets(option: str, text: str) -> Position:
    """Parses the value of an option of offsets; raises SourceOptionError, which names what can't be used."""
    if text.strip().lower() in LOGICAL:
        return Position(LOGICAL[text.strip().lower()])
    try:
        parsed = json.loads(text)
        offsets = {
            str(topic): {int(partition): _offset(offset) for partition, offset in partitions.items()}
            for topic, partitions in parsed.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise SourceOptionError(
            f'{option}: {text!r} is neither earliest, latest nor JSON like {{"topic": {{"0": 17, "1": -2}}}}: {error}'
        ) from None
    return Position(offsets=offsets)


def parse_time(option: str, text: str) -> Position:
    """Parses the value of an option of time: ISO 8601 (UTC where it names no zone) or milliseconds since 1970."""
    try:
        return Position(timestamp_ms=int(text))
    except ValueError:
        pass
    try:
        return Position(timestamp_ms=times.epoch_ms(times.parse_time(text)))
    except ValueError:
        raise SourceOptionError(
            f"{option}: {text!r} is neither a time of ISO 8601 nor milliseconds since 1970"
        ) from None


def check_named_partitions(option: str, position: Position, partitions: Mapping[str, tuple[int, ...]]) -> None:
    """Raises SourceOptionError unless a position by partition names exactly the partitions that are read."""
    if position.offsets is None:
        return
    named = {(topic, partition) for topic, offsets in position.offsets.items() for partition in offsets}
    wanted = {(topic, partition) for topic, indexes in partitions.items() for partition in indexes}
    for which, places in (("is not read", named - wanted), ("is missing", wanted - named)):
        if places:
            topic, partition = min(places)
            raise SourceOptionError(f"{option}: topic {topic}, partition {partition} {which}")


def resolve(position: Position, topic: str, partition: int, log: LogOffsets, offset_for_time: OffsetForTime) -> int:
    """Returns the position as an offset of this partition, which may lie outside of its log."""
    if position.timestamp_ms is not None:
        found = offset_for_time(topic, partition, position.timestamp_ms)
        return log.end_offset if found is None else found
    offset = position.logical if position.offsets is None else position.offsets[topic][partition]
    return {EARLIEST: log.start_offset, LATEST: log.end_offset}.get(offset, offset)


def within_log(offset: int, topic: str, partition: int, log: LogOffsets, *, fail_on_data_loss: bool) -> int:
    """Returns the offset, or with `fail_on_data_loss` off the nearest one that the log has.

    Raises:
        OffsetsLostError: It is below the log's start.
        LogTruncatedError: It is above the log's end.
    """
    if fail_on_data_loss and offset < log.start_offset:
        raise OffsetsLostError(
            f"topic {topic}, partition {partition}: offsets {offset}-{log.start_offset - 1} were deleted by retention; "
            "failOnDataLoss=false goes on without them"
        )
    if fail_on_data_loss and offset > log.end_offset:
        raise LogTruncatedError(
            f"topic {topic}, partition {partition}: offset {offset} is asked for, the log ends at {log.end_offset}; "
            "failOnDataLoss=false goes on from there"
        )
    return min(max(offset, log.start_offset), log.end_offset)


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST:
        raise ValueError(f"{value!r} is not an offset")
    return value
