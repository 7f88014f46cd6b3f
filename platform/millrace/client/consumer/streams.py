"""Streams: what a thread of the application reads, and the partitions that feed them.

    fetcher ──chunks──► queue of at most queued.max.message.chunks ──► ConsumerStream ──messages──► one thread

Each hand-out takes the feed's lock, checks that the partition is still ours and the lease runs, and notes the
position: a partition that is given up hands out nothing after that, whatever lies in queues. A message counts as
done when its stream is asked for the next one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from millrace.client.consumer.assignment import Partition
from millrace.client.consumer.ownership import (
    NANOSECONDS_PER_MS,
    NANOSECONDS_PER_S,
    Kind,
    Lease,
    Observe,
    Ownership,
    OwnershipEvent,
)
from millrace.errors import ConsumerTimeoutError
from millrace.records.record import Record

LONGEST_WAIT_S = 3600.0


class Message(NamedTuple):
    """A message as an application gets it, with its topic, partition and offset. Headers are (name, value)."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


class Feed:
    """One partition that this member owns, with its position; its messages go to one stream.

    The fetcher asks for `fetch_offset` next; None means that `auto.offset.reset` decides. `handed` is the offset after
    the last message handed out, `done` the one after the last message that the application has finished with.

    `doubts_leader` is set where a broker refused the offset and may not be the leader any more; then all brokers are
    asked for the leader. `leader_epoch` is the epoch that they named, -1 for none; None if only one broker was asked.
    """

    def __init__(self, partition: Partition, ownership: Ownership, stream: ConsumerStream, offset: int | None) -> None:
        self.partition = partition
        self.ownership = ownership
        self.stream = stream
        self.fetch_offset = offset
        self.max_bytes = 0
        self.doubts_leader = False
        self.leader_epoch: int | None = None
        self.lock = threading.Lock()
        self.is_active = True
        self.handed = self.done = self.committed = offset

    def begin_at(self, offset: int) -> None:
        """Sets the next offset, at the beginning or where the log lacks the former one; it is to be committed."""
        with self.lock:
            self.fetch_offset = self.handed = self.done = offset
            self.committed = None

    def stop(self) -> None:
        """Ends the partition's feed: no more of its messages are handed out."""
        with self.lock:
            self.is_active = False

    def to_commit(self, *, with_last: bool) -> int | None:
        """Returns the offset to commit, None if not advanced; `with_last` includes the last handed-out message."""
        offset = self.handed if with_last else self.done
        if offset is None or (self.committed is not None and offset <= self.committed):
            return None
        return offset


class Chunk(NamedTuple):
    """The records of one partition from one fetch; for control and aborted batches there is only `next_offset`."""

    feed: Feed
    records: Sequence[Record]
    next_offset: int


class ConsumerStream:
    """An iterator of messages for one thread of the application. It ends when the consumer shuts down.

    Raises ConsumerTimeoutError where nothing comes for `consumer.timeout.ms`; reading can go on after that. Errors of
    fetches that don't pass (OffsetOutOfRangeError with `auto.offset.reset=error`, RecordError) are raised as well.
    """

    def __init__(
        self,
        name: str,
        lease: Lease,
        observe: Observe,
        *,
        max_chunks: int,
        timeout_ms: int,
        on_room: Callable[[], None],
    ) -> None:
        self.name = name
        self._lease = lease
        self._observe = observe
        self._max_chunks = max_chunks
        self._timeout_ms = timeout_ms
        self._on_room = on_room
        self._changed = threading.Condition()
        self._chunks: deque[Chunk] = deque()
        self._failure: Exception | None = None
        self._is_closed = False
        self._current: Chunk | None = None
        self._records: Iterator[Record] = iter(())
        self._pending: Record | None = None
        self._last: Feed | None = None

    def __iter__(self) -> ConsumerStream:
        return self

    def __next__(self) -> Message:
        self._finish_last()
        deadline_ns = self._deadline_ns()
        while True:
            chunk, record = self._next_record(deadline_ns)
            message = self._hand_out(chunk, record, deadline_ns)
            if message is not None:
                return message

    @property
    def has_room(self) -> bool:
        """Whether the stream's queue has room for the records of another fetch (a chunk)."""
        return len(self._chunks) < self._max_chunks

    def put(self, chunk: Chunk) -> None:
        """Queues the records of a fetch (a chunk) even without room: fetchers check `has_room` before they fetch."""
        with self._changed:
            self._chunks.append(chunk)
            self._changed.notify()

    def fail(self, error: Exception) -> None:
        """Makes the next read of the stream raise this error."""
        with self._changed:
            self._failure = error
            self._changed.notify()

    def drop(self, feeds: set[Feed]) -> None:
        """Drops the queued records of these partitions (feeds), which this member gives up."""
        with self._changed:
            self._chunks = deque(chunk for chunk in self._chunks if chunk.feed not in feeds)
        self._on_room()

    def close(self) -> None:
        """Ends the stream: its iteration stops."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _finish_last(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            with last.lock:
                if last.is_active:
                    last.done = last.handed

    def _deadline_ns(self) -> int | None:
        if self._timeout_ms < 0:
            return None
        return self._lease.clock_ns() + self._timeout_ms * NANOSECONDS_PER_MS

    def _next_record(self, deadline_ns: int | None) -> tuple[Chunk, Record | None]:
        if self._pending is not None and self._current is not None:
            return self._current, self._pending
        if self._current is not None:
            record = next(self._records, None)
            if record is not None:
                self._pending = record
                return self._current, record
            ended, self._current = self._current, None
            return ended, None
        chunk = self._await_chunk(deadline_ns)
        self._current, self._records = chunk, iter(chunk.records)
        self._on_room()
        return self._next_record(deadline_ns)

    def _await_chunk(self, deadline_ns: int | None) -> Chunk:
        with self._changed:
            while True:
                if self._is_closed:
                    raise StopIteration
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
                if self._chunks:
                    return self._chunks.popleft()
                self._changed.wait(self._remaining_s(deadline_ns))

    def _remaining_s(self, deadline_ns: int | None) -> float:
        if deadline_ns is None:
            return LONGEST_WAIT_S
        remaining_s = (deadline_ns - self._lease.clock_ns()) / NANOSECONDS_PER_S
        if remaining_s <= 0:
            raise ConsumerTimeoutError(f"stream {self.name}: nothing came for {self._timeout_ms} ms")
        return remaining_s

    def _hand_out(self, chunk: Chunk, record: Record | None, deadline_ns: int | None) -> Message | None:
        """Returns the record as a message, once the lease holds; None for no record, or one of a partition given up."""
        feed = chunk.feed
        while not self._is_closed:
            with feed.lock:
                if not feed.is_active:
                    self._current = self._pending = None
                    return None
                now_ns = self._lease.holding_ns(feed.ownership.session_id)
                if now_ns is not None:
                    return self._hand_over(chunk, record, now_ns)
            self._lease.wait(min(self._remaining_s(deadline_ns), 1.0))
        raise StopIteration

    def _hand_over(self, chunk: Chunk, record: Record | None, now_ns: int) -> Message | None:
        feed, self._pending = chunk.feed, None
        if record is None:
            feed.handed = feed.done = chunk.next_offset
            return None
        feed.handed, self._last = record.offset + 1, feed
        token, (topic, index) = feed.ownership.token, feed.partition
        member = feed.ownership.thread.member
        self._observe(OwnershipEvent(Kind.HAND_OUT, member, feed.partition, token, now_ns, now_ns, record.offset))
        return Message(topic, index, record.offset, record.key, record.value, record.timestamp_ms, record.headers)
