"""A follower as a process of its own, which a test can kill at any moment.

    with FollowerProcess(folder, "HOST:PORT", FollowedTopic("t", topic_id, partitions=3, leader_epoch=0)) as follower:
        follower.ends()

It follows the partitions of a topic at one broker, as the replica of broker 99, and is killed at the end.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from uuid import UUID

from millrace.addresses import parse_address
from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_broker.replication.followed_partition import FollowedPartition
from millrace_broker.replication.partition_roles import ReplicaFetchers
from millrace_broker.replication.replica_fetcher import FetchSettings, FollowingBroker
from millrace_broker.replication.replication_quota import ReplicationQuota
from millrace_broker.storage import LogManager, TopicPartition

FOLLOWER_ID, LEADER_ID = 99, 1
SEGMENT_BYTES = 4 << 20


class FollowedTopic(NamedTuple):
    """The topic to follow, and the epoch of all its leaders."""

    name: str
    topic_id: UUID
    partitions: int
    leader_epoch: int


class FollowerProcess:
    """The process, as the test sees it."""

    def __init__(self, folder: Path, leader: str, topic: FollowedTopic) -> None:
        words = [str(folder), leader, *map(str, topic)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "millrace_support.follower_process", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": ":".join(sys.path)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._process:
            self._process.kill()

    def ends(self) -> list[int]:
        """Asks for the log end offset of each partition."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return [int(word) for word in self._process.stdout.readline().split()]


def batches_of(folder: Path, topic_partition: TopicPartition) -> bytes:
    """Returns the bytes of all segments of a log."""
    return b"".join(path.read_bytes() for path in sorted((folder / str(topic_partition)).glob("*.log")))


async def follow(folder: str, leader: str, topic: FollowedTopic) -> None:
    """Follows until stdin ends; answers each line of it with the log end offsets."""
    logs = LogManager(OsFileSystem(), SystemClock(), [folder], {}, "c" * 22, FOLLOWER_ID)
    logs.start()
    address = parse_address(leader)
    quota = ReplicationQuota(FOLLOWER_ID, SystemClock())
    broker = FollowingBroker(FOLLOWER_ID, lambda: -1, lambda _: address, logs, _end, lambda _: None, quota)
    fetchers = ReplicaFetchers(FetchSettings(backoff_ms=20), broker)
    followed: list[FollowedPartition] = []
    for index in range(topic.partitions):
        key = TopicPartition(topic.name, index)
        log = logs.create(key, topic.topic_id, {"segment.bytes": str(SEGMENT_BYTES)})
        log.high_watermark = logs.checkpoints.high_watermark(key)
        one = FollowedPartition(log, topic.topic_id, {}, leader=LEADER_ID, leader_epoch=topic.leader_epoch)
        followed.append(one)
        fetchers.follow(one)
    while await asyncio.to_thread(sys.stdin.readline):
        print(*[one.log.log_end_offset for one in followed], flush=True)  # noqa: T201
    await fetchers.close()


def _end(topic_partition: TopicPartition) -> None:
    """Ends the process, as no folder may fail here."""
    raise SystemExit(f"{topic_partition} is offline")


def main(arguments: Sequence[str]) -> None:
    """Runs the process."""
    folder, leader, name, topic_id, partitions, leader_epoch = arguments
    asyncio.run(follow(folder, leader, FollowedTopic(name, UUID(topic_id), int(partitions), int(leader_epoch))))


if __name__ == "__main__":
    main(sys.argv[1:])
