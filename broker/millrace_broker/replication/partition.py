"""A partition that this broker leads: its log, and how much of it readers may see.

    log start offset ≤ last stable offset ≤ high watermark ≤ log end offset

The high watermark is the smallest log end offset of the in-sync replicas. A partition has one replica, the
leader, so an append moves the high watermark at once. The last stable offset is the first offset of an open
transaction, the high watermark where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from millrace.errors import FencedLeaderEpochError, NotEnoughReplicasError, UnknownLeaderEpochError
from millrace.records.batch import NO_LEADER_EPOCH, Buffer
from millrace_broker.storage import Log, LogAppendInfo


class Partition:
    """One led partition."""

    __slots__ = ("config", "high_watermark", "leader_epoch", "log", "topic_id")

    def __init__(self, log: Log, topic_id: UUID, leader_epoch: int, config: Mapping[str, str]) -> None:
        self.config = config
        self.log = log
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.high_watermark = log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of what a `read_committed` reader may see."""
        return self.log.last_stable_offset(self.high_watermark)

    def check_in_sync_replicas(self) -> None:
        """Raise NotEnoughReplicasError where a write with acks=all can't be had: the leader alone is in sync."""
        if self.log.config.min_insync_replicas > 1:
            raise NotEnoughReplicasError(
                f"{self.log.topic_partition}: 1 replica is in sync, "
                f"min.insync.replicas={self.log.config.min_insync_replicas}"
            )

    def append(self, batches: Buffer) -> LogAppendInfo:
        """Append as leader. Raises as `Log.append` does; then nothing has changed."""
        info = self.log.append(batches, leader_epoch=self.leader_epoch)
        self.high_watermark = self.log.log_end_offset
        return info

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes:
        """Whole batches from `offset` up to the high watermark. Raises as `Log.read` does."""
        return self.log.read(offset, max_bytes, up_to_offset=self.high_watermark, at_least_one=at_least_one)

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Fence a client whose idea of the leader is older or newer than this one's (KIP-320)."""
        if current_leader_epoch in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        message = f"leader epoch is {self.leader_epoch}, the request says {current_leader_epoch}"
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError(message)
        raise UnknownLeaderEpochError(message)
