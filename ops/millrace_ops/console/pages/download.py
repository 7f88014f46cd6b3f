"""The records of the message browser as a file: a line of JSON each, as `millrace consume --json` prints them.

It has what a page of messages has, without the limit of a page, within the same bounds of a read. Where it ends at a
bound, its last line is no record but says so, and from which positions on to ask again:

    {"incomplete": "…", "positions": "weather-0@1234 weather-1@77"}

Records are read and sent a few at a time, so that no process has the whole file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from millrace.client import Cluster, FetchedData, SimpleConsumer
from millrace.errors import MillraceError
from millrace.records.intervals import Interval
from millrace_ops.console.console import Console
from millrace_ops.console.pages.messages import (
    FETCH_BYTES,
    OFFSET,
    SCANNED_RECORDS,
    Budget,
    Matches,
    RecordQuery,
    read_spans,
    scan,
    search_of,
    wanted_records,
)
from millrace_ops.console.request import Asked, Download
from millrace_ops.record_values.json_line import json_line

RECORDS_AT_ONCE = 200
SENT_S = 60.0  # with the time that the browser takes


def download_messages(console: Console, asked: Asked) -> Download:
    """Returns the file of the records that a page of messages asks for; what is wrong with the request is raised."""
    topic = asked.need("topic")
    matches = search_of(asked, console.decoder)
    with console.clusters.lent() as cluster:
        partitions = list(cluster.metadata([topic]).topic(topic).partitions)
        wanted = wanted_records(asked, topic, partitions)._replace(limit=SCANNED_RECORDS)
        spans = read_spans(cluster, wanted, looks_back=True).spans
    lines = Lines(console, wanted, matches, spans)
    return Download(f"{re.sub('[^A-Za-z0-9._-]', '_', topic)}.ndjson", lines.of_all())


class Lines:
    """The lines of a file; `spans` has the offsets that are read of each partition."""

    def __init__(
        self, console: Console, wanted: RecordQuery, matches: Matches | None, spans: Mapping[int, Interval]
    ) -> None:
        self._console = console
        self._wanted = wanted
        self._matches = matches
        self._spans = spans
        self._reached = {partition: span.from_offset for partition, span in spans.items()}

    def of_all(self) -> Iterator[bytes]:
        """Yields the lines, some at a time, and at last the one that says where they end too early."""
        trouble = ""
        try:
            with self._console.clusters.lent() as cluster:
                for partition in self._spans:
                    yield from self._of(cluster, partition)
        except MillraceError as error:
            trouble = str(error)
        left = {one: at for one, at in self._reached.items() if at < self._spans[one].until_offset}
        if left:
            positions = " ".join(f"{self._wanted.topic}-{partition}@{at}" for partition, at in left.items())
            why = trouble or "a download ends with what one search looks at; ask again from these positions"
            yield json.dumps({"incomplete": why, "positions": positions}).encode() + b"\n"

    def _of(self, cluster: Cluster, partition: int) -> Iterator[bytes]:
        consumer, topic = SimpleConsumer(cluster), self._wanted.topic
        some = self._wanted._replace(position=OFFSET, limit=RECORDS_AT_ONCE)
        budget = Budget.new(self._console.clock, len(self._spans), SENT_S)

        def fetch(offset: int) -> FetchedData:
            return consumer.fetch(topic, partition, offset, max_bytes=FETCH_BYTES, isolation=some.isolation)

        at, end = self._spans[partition]
        while at < end and budget.is_left:
            records, following = scan(fetch, some, Interval(at, end), budget, self._matches)
            if lines := b"".join(json_line(topic, partition, one) for one in records):
                yield lines
            has_ended = following == at and budget.is_left  # nothing lies there any more
            self._reached[partition] = at = end if has_ended else following
