"""A broker's fetchers, which follow a leader that the test plays: the logs are real, on disks in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from uuid import UUID

from millrace.addresses import Address
from millrace.config import MAX_LONG
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.fetch import PartitionFetched, TopicFetched, encode_fetch_response
from millrace.wire.header import RequestHeader
from millrace_broker.replication.followed_partition import FollowedPartition
from millrace_broker.replication.partition_roles import ReplicaFetchers
from millrace_broker.replication.replica_fetcher import FetchSettings, FollowingBroker
from millrace_broker.replication.replication_quota import ReplicationQuota
from millrace_broker.storage import Log, LogManager, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.leading_broker import LeadingBroker, LedLog
from millrace_support.scripted_broker import Answer, ScriptedBroker, answer_frame

TOPIC_ID = UUID(int=7)
SETTINGS = FetchSettings(backoff_ms=1, wait_max_ms=10)
SMALL_SEGMENTS = {"segment.bytes": "1000", "index.interval.bytes": "100"}
LEADER = 2


class Machine:
    """A broker's logs on a disk of its own, a new one unless one is given."""

    def __init__(self, broker_id: int, fs: CrashFileSystem | None = None) -> None:
        self.fs = CrashFileSystem() if fs is None else fs
        self.logs = LogManager(self.fs, ManualClock(), ["/data"], {}, "c" * 22, broker_id)
        self.logs.start()

    def log(self, index: int = 0, topic_id: UUID = TOPIC_ID) -> Log:
        """Returns the log of a partition, which is created unless it is there."""
        return self.logs.create(TopicPartition("t", index), topic_id, SMALL_SEGMENTS)


class Follower(Machine):
    """A broker that follows."""

    def __init__(self, settings: FetchSettings = SETTINGS, fs: CrashFileSystem | None = None) -> None:
        super().__init__(1, fs)
        self.addresses: dict[int, Address] = {}
        self.offline: list[TopicPartition] = []
        self.quota_clock = ManualClock()
        self.rate = MAX_LONG
        quota = ReplicationQuota(1, self.quota_clock, lambda: self.rate)
        self.committed: list[TopicPartition] = []
        broker = FollowingBroker(
            1, lambda: 5, self.addresses.get, self.logs, self.offline.append, self.committed.append, quota
        )
        self.fetchers = ReplicaFetchers(settings, broker)
        self.followed: dict[int, FollowedPartition] = {}

    def follow(
        self, index: int = 0, *, epoch: int = 1, leader: int = LEADER, high_watermark: int = 0
    ) -> FollowedPartition:
        """Follows a partition in an epoch, with the high watermark of the epoch before if there was one."""
        old = self.followed.get(index)
        log = self.log(index)
        log.high_watermark = old.high_watermark if old else high_watermark
        if old is not None:
            self.fetchers.unfollow(old)
        new = FollowedPartition(log, TOPIC_ID, {}, leader=leader, leader_epoch=epoch)
        self.followed[index] = new
        self.fetchers.follow(new)
        return new


@asynccontextmanager
async def following(
    leader: LeadingBroker | Answer, settings: FetchSettings = SETTINGS, fs: CrashFileSystem | None = None
) -> AsyncIterator[tuple[Follower, ScriptedBroker]]:
    """Yields (a follower, the leader's socket)."""
    answer = leader.answer if isinstance(leader, LeadingBroker) else leader
    async with ScriptedBroker(answer) as broker:
        follower = Follower(settings, fs)
        follower.addresses[LEADER] = broker.address
        try:
            yield follower, broker
        finally:
            await follower.fetchers.close()


def played(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Plays a scenario on an event loop of its own, for two minutes at most."""
    asyncio.run(asyncio.wait_for(scenario(), 120))


def append(log: Log, count: int, epoch: int = 1, chance: Random | None = None) -> None:
    """Appends so many batches of one to three records, whose values are of random lengths if there is a chance."""
    for number in range(count):
        value = b"%d" % number if chance is None else chance.randbytes(chance.randint(0, 200))
        log.append(encode_batch([NewRecord(value)] * (1 + number % 3)), leader_epoch=epoch)


def content(log: Log) -> bytes:
    """Returns the bytes of all segments."""
    return b"".join(segment.read_at(0, segment.size_bytes) for segment in log.segments)


def same(one: Log, other: Log) -> bool:
    """Returns whether two logs have the same bytes up to the same end."""
    return one.log_end_offset == other.log_end_offset and content(one) == content(other)


def led(machine: Machine, count: int = 1) -> list[LedLog]:
    """Returns so many logs of a machine, which leads them in epoch 1."""
    return [LedLog(machine.log(index), TOPIC_ID, 1) for index in range(count)]


def fetch_answer(header: RequestHeader, *fetched: PartitionFetched, error_code: int = 0) -> bytes:
    """Returns the frame of an answer to a fetch with these partitions of the topic."""
    topics = [TopicFetched("", TOPIC_ID, fetched)] if fetched else []
    parts = encode_fetch_response(header.api_version, topics, error_code)
    return answer_frame(header, b"".join(bytes(part) for part in parts if isinstance(part, bytes | memoryview)))
