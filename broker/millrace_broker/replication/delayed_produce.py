"""Holds the response to a write until its records are synced and the in-sync replicas have them, as DelayedProduce.

| what happens to a partition | its response |
|---|---|
| the sync that is owed is made, and with acks=all the high watermark covers the records | NONE |
| the same, and too few replicas are in sync by then | NOT_ENOUGH_REPLICAS_AFTER_APPEND |
| the data directory fails | KAFKA_STORAGE_ERROR |
| it is led no more, or the records were cut off meanwhile | NOT_LEADER_OR_FOLLOWER |
| none of these within the request's timeout | REQUEST_TIMED_OUT |

A request that waits for the disk has `SYNC_WAIT_MS` at least: Kafka's appender has no limit for it.

The records stay in the log in any case, and may be replicated later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from millrace.errors import ErrorCode
from millrace.wire.encoder import Parts
from millrace_broker.replication.purgatory import settle
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import TopicPartition

Respond = Callable[[Mapping[TopicPartition, ErrorCode]], Parts]


SYNC_WAIT_MS = 30_000


class Appended(NamedTuple):
    """Records that this broker appended: the leader epoch at that time, the offset after them, who must have them."""

    leader_epoch: int
    next_offset: int
    acks_all: bool = True


def when_all_have(
    replicas: ReplicaManager, appended: Mapping[TopicPartition, Appended], wait_ms: int, respond: Respond
) -> Parts | asyncio.Future[Parts]:
    """Returns what `respond` makes of the outcomes once they are known, or a future of it.

    It is given the partitions that failed, with their errors.
    """
    waiting = DelayedProduce(replicas, appended, respond)
    reply = waiting.respond_now()
    return waiting.wait(wait_ms) if reply is None else reply


class DelayedProduce:
    """The records of one request, by partition."""

    def __init__(self, replicas: ReplicaManager, appended: Mapping[TopicPartition, Appended], respond: Respond) -> None:
        self._replicas = replicas
        self._respond = respond
        self._failed: dict[TopicPartition, ErrorCode] = {}
        self._waiting = dict(appended)
        self._reply: asyncio.Future[Parts]

    def respond_now(self) -> Parts | None:
        """Returns the response if no partition needs to wait."""
        for key in tuple(self._waiting):
            self._look_at(key)
        return None if self._waiting else self._respond(self._failed)

    def wait(self, wait_ms: int) -> asyncio.Future[Parts]:
        """Waits in the purgatory; a client that disconnects cancels the future."""
        purgatory = self._replicas.purgatory
        self._reply = asyncio.get_running_loop().create_future()
        self._reply.add_done_callback(lambda _: purgatory.release(self))
        purgatory.hold(self, tuple(self._waiting), max(wait_ms, SYNC_WAIT_MS if self._waits_for_disk() else 0))
        return self._reply

    def _waits_for_disk(self) -> bool:
        led = self._replicas.partitions
        return any(led[key].log.owes_sync(appended.next_offset) for key, appended in self._waiting.items())

    def is_ready(self, key: TopicPartition) -> bool:
        """Looks at the partition, and returns whether none is left to wait for."""
        if key in self._waiting:
            self._look_at(key)
        return not self._waiting

    def complete(self) -> None:
        """Answers, unless the client has gone."""
        settle(self._reply, lambda: self._respond(self._failed))

    def expire(self) -> None:
        """Answers that the replicas took too long."""
        self._failed |= dict.fromkeys(self._waiting, ErrorCode.REQUEST_TIMED_OUT)
        self.complete()

    def _look_at(self, key: TopicPartition) -> None:
        partition, appended = self._replicas.partitions.get(key), self._waiting[key]
        if partition is None or not partition.has_kept(appended.next_offset - 1, appended.leader_epoch):
            code: ErrorCode | None = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            code = partition.outcome_of(appended.next_offset, acks_all=appended.acks_all)
        if code is not None:
            del self._waiting[key]
            if code != ErrorCode.NONE:
                self._failed[key] = code
