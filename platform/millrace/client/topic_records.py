"""Intervals of a topic's offsets as Arrow: one partition after the other, each time that they are looked at.

    fetch ──► batches follow one another ──► columns ──► (another thread up to here, one block ahead) ──► RecordBatch

What is held of them is a fetch and two blocks of columns. As `SimpleConsumer` does, it proves that it reads all: a gap
in a log that is not compacted, or a damaged batch, is an error unless it is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

import numpy as np
import pyarrow as pa

from millrace.arrow_rows import ArrowRows
from millrace.client.cluster import Cluster
from millrace.client.fetched import FetchedData, IsolationLevel
from millrace.client.simple_consumer import SimpleConsumer
from millrace.errors import MillraceError, OffsetOutOfRangeError
from millrace.one_ahead import one_ahead
from millrace.records.arrow import decode_to_arrow
from millrace.records.arrow_columns import (
    RECORD_FIELDS,
    RECORD_SCHEMA,
    HeaderParts,
    has_no_time,
    record_batch,
    times_of,
)
from millrace.records.intervals import Interval
from millrace.records.record import Record

WAIT_MS = 500
SCHEMA = pa.schema([pa.field("partition", pa.int32()), *RECORD_FIELDS])


class TopicRecords(ArrowRows):
    """Records of a topic: iterate over their batches, or ask for all of them as `arrow()`, `df()` (pandas) or `pl()`.

    Their columns are partition, offset, timestamp (null for a record without one, and outside of the years 1 to 9999),
    key, value and headers.

    Attributes:
        intervals: By partition, the offsets that are read.
    """

    def __init__(
        self,
        topic: str,
        intervals: Mapping[int, Interval],
        connect: Callable[[], Cluster],
        isolation: IsolationLevel,
        *,
        accept_missing_offsets: bool,
    ) -> None:
        self.topic, self.intervals = topic, intervals
        self._connect, self._isolation, self._accept = connect, isolation, accept_missing_offsets

    @property
    def schema(self) -> pa.Schema:
        """The columns of the records."""
        return SCHEMA

    def __repr__(self) -> str:
        offsets = sum(max(until - first, 0) for first, until in self.intervals.values())
        found = f"{self.topic}: {len(self.intervals)} partitions, {offsets:,} offsets"
        return f"<{found}; .df(), .pl() or .arrow() reads them>"

    def _batches(self) -> Generator[pa.RecordBatch, None, None]:
        yield from one_ahead(self._made())

    def _made(self) -> Generator[pa.RecordBatch, None, None]:
        with self._connect() as cluster:
            consumer = SimpleConsumer(cluster, accept_missing_offsets=self._accept)
            for partition, interval in self.intervals.items():
                for records in self._of(consumer, partition, interval):
                    column = pa.array(np.full(records.num_rows, partition, np.int32))
                    shown = [records.column(field.name) for field in RECORD_FIELDS]
                    yield pa.RecordBatch.from_arrays([column, *shown], schema=SCHEMA)

    def _of(
        self, consumer: SimpleConsumer, partition: int, interval: Interval
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yields an interval of a partition, past damage where that is accepted."""
        (offset, end), goes_on = interval, False
        while offset < end:
            try:
                fetched = consumer.fetch(self.topic, partition, offset, max_wait_ms=WAIT_MS, isolation=self._isolation)
                next_offset = self._next_offset(consumer, partition, fetched, end, goes_on=goes_on)
                for records in decode_to_arrow(
                    fetched.records, from_offset=offset, until_offset=end, aborted=fetched.aborted
                ):
                    if records.num_rows:
                        yield records
                        offset, goes_on = int(records.column("offset")[-1].as_py()) + 1, True
                offset, goes_on = next_offset, True
            except MillraceError as error:
                found = consumer.read_on(
                    self.topic, partition, Interval(offset, end), error, isolation=self._isolation, goes_on=goes_on
                )
                if found.records:
                    yield _as_arrow(found.records)
                offset, goes_on = found.next_offset, True

    def _next_offset(
        self, consumer: SimpleConsumer, partition: int, fetched: FetchedData, end: int, *, goes_on: bool
    ) -> int:
        """Returns the offset behind a fetch; raises RecordError for a gap, OffsetOutOfRangeError for a cut log."""
        if not fetched.records:
            if consumer.reaches(self.topic, partition, fetched, end, self._isolation):
                return end
            raise OffsetOutOfRangeError(f"{fetched.subject}: the log ends here, and ended at {end} before")
        next_offset = fetched.asked_offset
        for batch in consumer.batches(self.topic, partition, fetched, end, goes_on=goes_on):
            next_offset = batch.header.next_offset
        return next_offset


def _as_arrow(records: list[Record]) -> pa.RecordBatch:
    milliseconds = np.array([one.timestamp_ms for one in records], np.int64)
    headers = [header for one in records for header in one.headers]
    starts = np.cumsum([0, *(len(one.headers) for one in records)], dtype=np.int32)
    return record_batch(
        pa.array([one.offset for one in records], pa.int64()),
        times_of(milliseconds, has_no_time(milliseconds)),
        pa.array([one.key for one in records], pa.binary()),
        pa.array([one.value for one in records], pa.binary()),
        HeaderParts(
            pa.array(starts),
            pa.array([key.encode() for key, _ in headers], pa.binary()),
            pa.array([value for _, value in headers], pa.binary()),
        ),
    ).select(RECORD_SCHEMA.names)
