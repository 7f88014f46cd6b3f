"""A replica of a partition that this broker has, led or followed: its log, and up to where readers may see that.

    log start offset ≤ last stable offset ≤ high watermark ≤ log end offset

The last stable offset is the first offset of the oldest open transaction in the log; where none is open, it is the high
watermark. Consumers read from the leader, and from followers too (KIP-392), up to what the follower knows as committed.

A fetch waits for bytes that its reader did not see when a partition was looked at (`MissingBytes`). A partition that
has another role, or is in another epoch, than when it was looked at ends the wait, as does one whose log was cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from millrace.errors import CorruptRecordError, FencedLeaderEpochError, OffsetOutOfRangeError, UnknownLeaderEpochError
from millrace.records.batch import NO_LEADER_EPOCH, walk
from millrace.wire.encoder import Part, contents
from millrace_broker.metrics import TopicTraffic
from millrace_broker.replication.epoch_ends import UNKNOWN, Entries, end_of_epoch, epoch_of_offset
from millrace_broker.storage import AbortedTransaction, Log, TopicPartition

READ_AT_ONCE_BYTES = 64 << 10


class Isolation(Enum):
    """The part of a log that a reader may see: a follower all of it, a consumer what is committed."""

    LOG_END = "log end"
    READ_UNCOMMITTED = "high watermark"
    READ_COMMITTED = "last stable offset"


class PartitionRead(NamedTuple):
    """The records for one reader: bytes, or a slice of a file if they are large, which is read as the socket takes it.

    `aborted` has the aborted transactions as (producer id, first offset), for `read_committed` readers only.
    """

    records: Part
    aborted: list[tuple[int, int]] | None = None


class Replica:
    """A log with a topic id and a leader epoch; the base class of led and followed partitions.

    `appended_bytes` counts the bytes appended since this broker leads, or follows. `traffic` is shared by a topic's
    partitions.

    A worker holds the log while it truncates or replaces it: between `hold` and `let_go` appends are refused, and a
    change of role waits (`until_free`).
    """

    __slots__ = ("_held", "appended_bytes", "config", "leader_epoch", "log", "topic_id", "traffic")

    def __init__(self, log: Log, topic_id: UUID, leader_epoch: int, config: Mapping[str, str]) -> None:
        self.log = log
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.config = config
        self.appended_bytes = 0
        self.traffic = TopicTraffic()
        self._held: tuple[Log, asyncio.Future[None]] | None = None

    def hold(self) -> None:
        """Keeps the log for a worker. The caller has seen that it is free, or has awaited `until_free`."""
        assert self._held is None
        self._held = self.log, asyncio.get_running_loop().create_future()
        self.log.is_held = True

    def let_go(self) -> None:
        """Releases the log from its worker; `log` may be another one by now."""
        assert self._held is not None
        (log, free), self._held = self._held, None
        log.is_held = False
        free.set_result(None)

    async def until_free(self) -> None:
        """Waits until no worker holds the log; the caller can hold it if it awaits nothing in between."""
        while self._held is not None:
            await asyncio.shield(self._held[1])

    @property
    def high_watermark(self) -> int:
        """The offset below which all is committed, as far as this broker knows."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which a `read_committed` reader may see the log."""
        return self.log.last_stable_offset(self.high_watermark)

    def visible_end(self, isolation: Isolation) -> int:
        """Returns the offset up to which a reader may see the log."""
        if isolation is Isolation.READ_UNCOMMITTED:
            return self.high_watermark
        return self.log.log_end_offset if isolation is Isolation.LOG_END else self.last_stable_offset

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        healed_up_to: int = 0,
    ) -> PartitionRead:
        """Returns whole batches from `offset` on, up to what the reader may see.

        Where `healed_up_to` is set a broker heals with them, and gets all up to that offset, committed or not.

        With `max_bytes` 0 and no `at_least_one`, only the offset is checked, without a read of the disk. Raises
        OffsetOutOfRangeError or StorageError.
        """
        end = self.visible_end(isolation) if max_bytes or at_least_one else offset
        if healed_up_to:
            end = max(end, min(healed_up_to, self.log.log_end_offset))
        records: Part = self.log.read_or_find(
            offset, max_bytes, up_to_offset=end, at_least_one=at_least_one, read_at_once_bytes=READ_AT_ONCE_BYTES
        )
        if isolation is not Isolation.READ_COMMITTED:
            return PartitionRead(records)
        aborted = self.log.aborted_transactions(offset, end) if len(records) else []
        return PartitionRead(records, _aborted_in(records, aborted) if aborted else [])

    def size_between(self, offset: int, end_offset: int, max_bytes: int) -> int:
        """Returns the size in bytes of the batches between two offsets, up to their segment's end or about `max_bytes`.

        They are not read. Raises OffsetOutOfRangeError or StorageError.
        """
        return len(
            self.log.read_or_find(offset, max_bytes, up_to_offset=end_offset, at_least_one=True, read_at_once_bytes=0)
        )

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raises FencedLeaderEpochError for an older epoch, UnknownLeaderEpochError for a newer one (KIP-320)."""
        if current_leader_epoch in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        message = f"leader epoch is {self.leader_epoch}, the request says {current_leader_epoch}"
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError(message)
        raise UnknownLeaderEpochError(message)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns (epoch, end offset) of the newest epoch up to `epoch`; (-1, -1) where it is not known.

        Raises CorruptRecordError where damage may hide the batches of a newer one.
        """
        found, end = end_of_epoch(self._epochs, epoch, self.log.log_end_offset)
        self._check_not_hidden(epoch, found, end)
        return found, end

    def _check_not_hidden(self, asked: int, found: int, end: int) -> None:
        """Raises CorruptRecordError where an epoch up to the one that was asked for may lie in damage before `end`.

        Whoever believes an older one cuts off the only sound copy of what is damaged here.
        """
        if found < asked and end > 0 and self.log.healing.hides_epoch_at(end - 1):
            raise CorruptRecordError(f"{self.log.topic_partition}: damage before offset {end} may hide epoch {asked}")

    def epoch_of(self, offset: int) -> int:
        """Returns the leader epoch in which an offset was written; -1 where that is not known."""
        return epoch_of_offset(self._epochs, offset)

    def diverging_epoch(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Returns (epoch, end offset) up to which a reader's log agrees with this one; None for all of it (KIP-595).

        A batch here that ends at the fetch offset and has the last fetched epoch agrees, whatever the log's epochs say:
        no checksum covers their file. Raises OffsetOutOfRangeError where nothing is known, and below the log start
        offset, and CorruptRecordError where damage may hide the batches of that epoch.
        """
        if last_fetched_epoch == NO_LEADER_EPOCH:
            return None
        epoch, end = end_of_epoch(self._epochs, last_fetched_epoch, self.log.log_end_offset)
        if (epoch, end) == UNKNOWN:
            raise OffsetOutOfRangeError(f"the end of epoch {last_fetched_epoch} is not known")
        if fetch_offset < self.log.log_start_offset:
            raise OffsetOutOfRangeError(f"offset {fetch_offset} is below {self.log.log_start_offset}")
        diverges = epoch < last_fetched_epoch or end < fetch_offset
        if not diverges or self.log.healing.confirms_epoch(fetch_offset, last_fetched_epoch):
            return None
        self._check_not_hidden(last_fetched_epoch, epoch, end)
        return epoch, end

    @property
    def _epochs(self) -> Entries:
        """The log's leader epochs as (epoch, start offset), oldest first."""
        return self.log.leader_epochs.entries


def _aborted_in(records: Part, found: Sequence[AbortedTransaction]) -> list[tuple[int, int]]:
    """Returns the aborted transactions that begin before the records' end, as (producer id, first offset)."""
    end = max((header.next_offset for _, header in walk(contents(records))), default=0)
    return [(one.producer_id, one.first_offset) for one in found if one.first_offset < end]


class _Seen(NamedTuple):
    """The state of a partition when a waiting fetch looked at it last."""

    replica: Replica
    leader_epoch: int
    appended_bytes: int
    visible_end: int
    is_held_back: bool  # by followers that are behind, or by an open transaction


class MissingBytes:
    """Counts down the bytes that a waiting fetch still needs until its `min_bytes` can be read.

    Args:
        isolation: Up to where the fetch may see logs.
        is_throttled: Returns whether a quota keeps a replica's records from the fetch for now.
    """

    def __init__(self, isolation: Isolation, is_throttled: Callable[[Replica], bool]) -> None:
        self.count = 0
        self._isolation = isolation
        self._is_throttled = is_throttled
        self._seen: dict[TopicPartition, _Seen] = {}

    def look_at(self, key: TopicPartition, replica: Replica) -> None:
        """Stores a partition's present state; only bytes that become visible after that are counted."""
        self._seen[key] = self._look_at(replica)

    def look_at_first(self, key: TopicPartition, replica: Replica) -> None:
        """Does what `look_at` does, unless the partition was looked at before."""
        if key not in self._seen:
            self.look_at(key, replica)

    def are_there(self, key: TopicPartition, replica: Replica | None) -> bool:
        """Subtracts a partition's bytes that have become visible; returns whether the fetch need not wait longer."""
        seen = self._seen.get(key)
        if replica is None or seen is None or replica is not seen.replica or replica.leader_epoch != seen.leader_epoch:
            return True
        now = self._seen[key] = self._look_at(replica)
        if not self._is_throttled(replica):
            self.count -= self._became_visible(replica, seen, now)
        return self.count <= 0

    def _look_at(self, replica: Replica) -> _Seen:
        end = replica.visible_end(self._isolation)
        return _Seen(replica, replica.leader_epoch, replica.appended_bytes, end, end < replica.log.log_end_offset)

    def _became_visible(self, replica: Replica, seen: _Seen, now: _Seen) -> int:
        if not seen.is_held_back and not now.is_held_back:
            return now.appended_bytes - seen.appended_bytes
        if now.visible_end < seen.visible_end or seen.visible_end < replica.log.log_start_offset:
            return self.count
        return replica.size_between(seen.visible_end, now.visible_end, self.count)
