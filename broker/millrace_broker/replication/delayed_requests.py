"""Holds the answers to writes and to DeleteRecords until the replicas have what was written, or deleted.

The response to a write waits until its records are synced and the in-sync replicas have them (DelayedProduce):

| what happens to a partition | its response |
|---|---|
| the sync that is owed is made, and with acks=all the high watermark covers the records | NONE |
| the same, and too few replicas are in sync by then | NOT_ENOUGH_REPLICAS_AFTER_APPEND |
| the data directory fails | KAFKA_STORAGE_ERROR |
| it is led no more, or the records were cut off meanwhile | NOT_LEADER_OR_FOLLOWER |
| none of these within the request's timeout | REQUEST_TIMED_OUT |

A request that waits for the disk has `SYNC_WAIT_MS` at least: Kafka's appender has no limit for it. The records stay in
the log in any case, and may be replicated later.

The answer to DeleteRecords waits until the followers have deleted the records, too (KIP-107):

| what happens to a partition | its answer |
|---|---|
| the low watermark, the least log start offset of the live replicas, has reached the offset | the low watermark |
| it is led no more, or its folder has failed | NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR |
| neither within the request's timeout | REQUEST_TIMED_OUT, and the low watermark |

The records are deleted in any case. A follower learns the leader's log start offset from the answer to a fetch, and
tells its own by the next one.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from millrace.errors import ErrorCode
from millrace.records.batch import NO_OFFSET
from millrace.wire.encoder import Parts
from millrace_broker.replication.purgatory import settle
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import TopicPartition

WaitedFor = TypeVar("WaitedFor")
Answer = TypeVar("Answer")
Respond = Callable[[Mapping[TopicPartition, ErrorCode]], Parts]
SYNC_WAIT_MS = 30_000


class _Delayed(ABC, Generic[WaitedFor, Answer]):
    """A request held in the purgatory until each of its partitions has an outcome."""

    def __init__(self, replicas: ReplicaManager, waited_for: Mapping[TopicPartition, WaitedFor]) -> None:
        self._replicas = replicas
        self._waiting = dict(waited_for)
        self._reply: asyncio.Future[Answer]

    def wait(self, wait_ms: int) -> asyncio.Future[Answer]:
        """Holds the request in the purgatory; returns the answer's future, which a disconnected client cancels."""
        purgatory = self._replicas.purgatory
        self._reply = asyncio.get_running_loop().create_future()
        self._reply.add_done_callback(lambda _: purgatory.release(self))
        purgatory.hold(self, tuple(self._waiting), max(wait_ms, 0))
        return self._reply

    def is_ready(self, key: TopicPartition) -> bool:
        """Looks for the outcome of partition `key`, and returns whether all partitions have theirs."""
        if key in self._waiting:
            self._look_at(key)
        return not self._waiting

    def complete(self) -> None:
        """Sends the answer, unless the client has gone."""
        settle(self._reply, self._answer)

    @abstractmethod
    def expire(self) -> None:
        """Sends the answer with a timeout error for each partition that still waits."""

    @abstractmethod
    def _look_at(self, key: TopicPartition) -> None: ...

    @abstractmethod
    def _answer(self) -> Answer: ...


class Appended(NamedTuple):
    """Records that were appended: the leader epoch then, the offset after them, and whether acks is all."""

    leader_epoch: int
    next_offset: int
    acks_all: bool = True


def when_all_have(
    replicas: ReplicaManager, appended: Mapping[TopicPartition, Appended], wait_ms: int, respond: Respond
) -> Parts | asyncio.Future[Parts]:
    """Returns the response to a Produce request if no partition has to wait for followers or a sync, or a future of it.

    `respond` makes it, given the partitions that failed, with their errors.
    """
    waiting = DelayedProduce(replicas, appended, respond)
    reply = waiting.respond_now()
    return waiting.wait(wait_ms) if reply is None else reply


class DelayedProduce(_Delayed[Appended, Parts]):
    """A Produce request that waits for followers or the disk to have its records."""

    def __init__(self, replicas: ReplicaManager, appended: Mapping[TopicPartition, Appended], respond: Respond) -> None:
        super().__init__(replicas, appended)
        self._respond = respond
        self._failed: dict[TopicPartition, ErrorCode] = {}

    def respond_now(self) -> Parts | None:
        """Returns the response if no partition needs to wait, else None."""
        for key in tuple(self._waiting):
            self._look_at(key)
        return None if self._waiting else self._respond(self._failed)

    def wait(self, wait_ms: int) -> asyncio.Future[Parts]:
        """Holds the request for `wait_ms`, or at least `SYNC_WAIT_MS` if a partition waits for the disk."""
        led = self._replicas.partitions
        for_disk = any(led[key].log.owes_sync(appended.next_offset) for key, appended in self._waiting.items())
        return super().wait(max(wait_ms, SYNC_WAIT_MS if for_disk else 0))

    def expire(self) -> None:
        """Responds with REQUEST_TIMED_OUT for each partition that still waits."""
        self._failed |= dict.fromkeys(self._waiting, ErrorCode.REQUEST_TIMED_OUT)
        self.complete()

    def _answer(self) -> Parts:
        return self._respond(self._failed)

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


class Deleted(NamedTuple):
    """The outcome of DeleteRecords for one partition: an error or NONE, and the low watermark, -1 if not known."""

    low_watermark: int
    error_code: ErrorCode = ErrorCode.NONE


Outcomes = dict[TopicPartition, Deleted]


async def until_all_have_deleted(
    replicas: ReplicaManager, offsets: Mapping[TopicPartition, int], wait_ms: int
) -> Outcomes:
    """Waits until no replica that is alive or in sync has records below the offsets; returns each one's outcome."""
    waiting = _DelayedDeleteRecords(replicas, offsets)
    are_ready = [waiting.is_ready(key) for key in offsets]  # the last one says whether all are
    return waiting.outcomes if all(are_ready[-1:]) else await waiting.wait(wait_ms)


class _DelayedDeleteRecords(_Delayed[int, Outcomes]):
    """A DeleteRecords request that waits for followers to delete; `outcomes` has those of finished partitions."""

    def __init__(self, replicas: ReplicaManager, offsets: Mapping[TopicPartition, int]) -> None:
        super().__init__(replicas, offsets)
        self.outcomes: Outcomes = {}

    def expire(self) -> None:
        for key in self._waiting:
            partition = self._replicas.partitions.get(key)
            low_watermark = NO_OFFSET if partition is None else partition.low_watermark
            self.outcomes[key] = Deleted(low_watermark, ErrorCode.REQUEST_TIMED_OUT)
        self.complete()

    def _answer(self) -> Outcomes:
        return self.outcomes

    def _look_at(self, key: TopicPartition) -> None:
        partition = self._replicas.partitions.get(key)
        if partition is not None:
            outcome = Deleted(partition.low_watermark)
        elif key in self._replicas.offline:
            outcome = Deleted(NO_OFFSET, ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            outcome = Deleted(NO_OFFSET, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if outcome.error_code or outcome.low_watermark >= self._waiting[key]:
            del self._waiting[key]
            self.outcomes[key] = outcome
