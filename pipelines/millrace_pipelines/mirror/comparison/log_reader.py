"""A log that is read in step with another one: batches while these are the same, records where they are not.

What is held of it is one fetch, and a window of records bounded by number and bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from millrace.client.fetched import FetchedBatch
from millrace.records.record import Record

Read = Callable[[int], Iterator[FetchedBatch]]
"""Yields a log's batches from an offset on, up to where the comparison ends, CRCs checked; may be called again."""
OnPair = Callable[[int, int, int], None]
"""Takes what belongs together: a source offset, a target offset, and how many records follow one another from there."""
WINDOW_BYTES = 32 << 20


class LogReader:
    """Reads the records of a log with offsets from `begin` up to `end`; those passed over by readers are left out."""

    def __init__(self, read: Read, begin: int, end: int) -> None:
        self._read = read
        self.begin = begin
        self.end = end
        self.seek(begin)

    def seek(self, offset: int) -> None:
        """Goes on from an offset, forth or back."""
        self._from = offset
        self._batches = self._read(offset)
        self._batch: FetchedBatch | None = None
        self._records: deque[Record] = deque()

    def fork(self) -> Iterator[Record]:
        """Returns the records from here on, read for themselves: this reader stays where it is."""
        first = self.peek()
        if first is None:
            return iter(())
        return LogReader(self._read, first.offset, self.end).rest()

    def rest(self) -> Iterator[Record]:
        """Yields all records that are left."""
        while (record := self.peek()) is not None:
            self._records.popleft()
            yield record

    def whole_batch(self) -> FetchedBatch | None:
        """Returns the next batch if nothing of it was read, and all of it is to be; None otherwise, and at the end."""
        if self._records:
            return None
        if self._batch is None:
            self._batch = next(self._batches, None)
        batch = self._batch
        if batch is None or batch.header.base_offset < self._from or batch.header.next_offset > self.end:
            return None
        return batch

    def drop_batch(self) -> None:
        """Goes on behind the batch that `whole_batch` returned."""
        self._batch = None

    def peek(self) -> Record | None:
        """Returns the next record without going on; None at the end."""
        while not self._records:
            if not self._decode():
                return None
        return self._records[0]

    def take(self, count: int = 1) -> list[Record]:
        """Returns the next records, fewer at the end, and goes on behind them."""
        found = self.window(count)[:count]
        for _ in found:
            self._records.popleft()
        return found

    def window(self, count: int) -> list[Record]:
        """Returns the next records without going on: `count` of them, or fewer that are of `WINDOW_BYTES`."""
        while len(self._records) < count and sum(map(_size, islice(self._records, count))) < WINDOW_BYTES:
            if not self._decode():
                break
        return list(islice(self._records, count))

    def _decode(self) -> bool:
        batch, self._batch = self._batch or next(self._batches, None), None
        if batch is None:
            return False
        self._records.extend(one for one in batch.records() if self._from <= one.offset < self.end)
        return True


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"") + sum(len(value or b"") for _, value in record.headers)
