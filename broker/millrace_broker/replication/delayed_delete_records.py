"""Holds the answer to DeleteRecords until the followers have deleted the records, too (KIP-107).

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
from collections.abc import Mapping
from typing import NamedTuple

from millrace.errors import ErrorCode
from millrace.records.batch import NO_OFFSET
from millrace_broker.replication.purgatory import settle
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import TopicPartition


class Deleted(NamedTuple):
    """The answer for one partition; the low watermark is -1 where it is not known."""

    low_watermark: int
    error_code: ErrorCode = ErrorCode.NONE


Outcomes = dict[TopicPartition, Deleted]


async def until_all_have_deleted(
    replicas: ReplicaManager, offsets: Mapping[TopicPartition, int], wait_ms: int
) -> Outcomes:
    """Waits until no live replica has records below the offsets any more, and returns the answers."""
    waiting = DelayedDeleteRecords(replicas, offsets)
    return waiting.outcomes if waiting.is_complete else await waiting.wait(wait_ms)


class DelayedDeleteRecords:
    """The partitions of one request. `outcomes` has those that need not wait any more."""

    def __init__(self, replicas: ReplicaManager, offsets: Mapping[TopicPartition, int]) -> None:
        self._replicas = replicas
        self._waiting = dict(offsets)
        self._reply: asyncio.Future[Outcomes] = asyncio.get_running_loop().create_future()
        self.outcomes: Outcomes = {}
        for key in offsets:
            self._look_at(key)

    @property
    def is_complete(self) -> bool:
        """Whether no partition has to wait."""
        return not self._waiting

    def wait(self, wait_ms: int) -> asyncio.Future[Outcomes]:
        """Waits in the purgatory; a client that disconnects cancels the future."""
        purgatory = self._replicas.purgatory
        self._reply.add_done_callback(lambda _: purgatory.release(self))
        purgatory.hold(self, tuple(self._waiting), max(wait_ms, 0))
        return self._reply

    def is_ready(self, key: TopicPartition) -> bool:
        """Looks at the partition, and returns whether none is left to wait for."""
        if key in self._waiting:
            self._look_at(key)
        return not self._waiting

    def complete(self) -> None:
        """Answers, unless the client has gone."""
        settle(self._reply, lambda: self.outcomes)

    def expire(self) -> None:
        """Answers that the followers took too long."""
        for key in self._waiting:
            partition = self._replicas.partitions.get(key)
            low_watermark = NO_OFFSET if partition is None else partition.low_watermark
            self.outcomes[key] = Deleted(low_watermark, ErrorCode.REQUEST_TIMED_OUT)
        self.complete()

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
