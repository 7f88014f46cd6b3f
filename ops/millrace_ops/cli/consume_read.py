"""Reads the partitions of one topic for the command line: where reading begins and ends, and the records between.

To the end means: to where each partition ended when the command began. Of committed records that is the last stable
offset, for what follows belongs to a transaction that is still open, which may never be committed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.client.simple_consumer import IsolationLevel
    from millrace.records.record import Record

FOLLOW_WAIT_MS = 500
Start = str | int | datetime


def parse_start(text: str, option: str = "--from") -> Start:
    """`earliest`, `latest`, an offset, or a time (UTC unless it says otherwise); InvalidConfigError for the rest."""
    from millrace.config import MAX_LONG, whole_number
    from millrace.errors import InvalidConfigError

    if text in {"earliest", "latest"}:
        return text
    if text.isascii() and text.isdecimal():
        if (offset := whole_number(text, MAX_LONG)) is None:
            raise InvalidConfigError(f"{option} {text}: an offset is at most {MAX_LONG}")
        return offset
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidConfigError(f"{option} {text}: expected earliest, latest, an offset or an ISO 8601 time") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


class TopicReader:
    """Reads a topic with an isolation level; errors are those of `SimpleConsumer`."""

    def __init__(self, cluster: Cluster, topic: str, isolation: IsolationLevel) -> None:
        from millrace.client import SimpleConsumer

        self._cluster = cluster
        self._consumer = SimpleConsumer(cluster)
        self._topic = topic
        self._isolation = isolation

    def partitions(self) -> list[int]:
        """The numbers of the topic's partitions; UnknownTopicError where there is no such topic."""
        return list(self._cluster.metadata([self._topic]).topic(self._topic).partitions)

    def end(self, partition: int) -> int:
        """The offset that reading ends at: the high watermark, or for committed records the last stable offset."""
        return self._consumer.latest(self._topic, partition, self._isolation)

    def first_offset(self, partition: int, start: Start) -> int:
        """The offset that a start means in a partition; the end where no record is as late as a time."""
        if isinstance(start, int):
            return start
        if start == "earliest":
            return self._consumer.earliest(self._topic, partition)
        if isinstance(start, datetime):
            found = self._consumer.offset_for_time(self._topic, partition, int(start.timestamp() * 1000))
            if found is not None:
                return found
        return self.end(partition)

    def chunks(self, offsets: Mapping[int, int], ends: Mapping[int, int] | None) -> Iterator[list[tuple[int, Record]]]:
        """Yield the records of each fetch with their partition, up to `ends`, or for ever where there are none."""
        positions = {one: offset for one, offset in offsets.items() if ends is None or offset != ends[one]}
        wait_ms = 0
        while positions:
            found = False
            for partition, offset in list(positions.items()):
                data = self._consumer.fetch(
                    self._topic, partition, offset, max_wait_ms=wait_ms, isolation=self._isolation
                )
                limit = sys.maxsize if ends is None else ends[partition]
                chunk = [(partition, one) for one in data.messages(offset) if one.offset < limit]
                positions[partition] = max((batch.header.next_offset for batch in data.batches()), default=offset)
                found = found or positions[partition] > offset
                if positions[partition] >= limit:
                    del positions[partition]
                yield chunk
            wait_ms = 0 if found else FOLLOW_WAIT_MS // max(len(positions), 1)
