"""Changes the logs of followed partitions as their leaders answer, and takes a partition out whose log fails.

| what fails | what follows |
|---|---|
| the disk is full, or batches break a rule | the partition is fetched again after a pause |
| the data directory goes offline | the partition is offline: `when_offline` is told, and nothing more is fetched |

Runs on the event loop, to which the logs belong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from millrace.errors import MillraceError, StorageError
from millrace.wire.fetch import PartitionFetched
from millrace_broker.replication.followed_partition import FollowedPartition
from millrace_broker.storage import LogManager, TopicPartition

logger = logging.getLogger(__name__)

WhenTold = Callable[[TopicPartition], None]


class FollowerLogs:
    """The logs of all followed partitions.

    `pause(followed)` has the partition fetched again later. `when_committed` is told of one whose high watermark has
    moved.
    """

    def __init__(
        self,
        logs: LogManager,
        pause: Callable[[FollowedPartition], None],
        when_offline: WhenTold,
        when_committed: WhenTold,
    ) -> None:
        self._logs = logs
        self._pause = pause
        self._when_offline = when_offline
        self._when_committed = when_committed

    def append(self, followed: FollowedPartition, fetched: PartitionFetched) -> None:
        """Appends what was fetched, and takes over high watermark and log start offset."""
        high_watermark = followed.high_watermark
        try:
            followed.append(fetched)
        except MillraceError as error:
            self._failed(followed, error)
        if followed.high_watermark != high_watermark:
            self._when_committed(followed.topic_partition)

    def check(self, followed: FollowedPartition) -> None:
        """Takes a partition out whose data directory has failed."""
        if followed.log.is_offline and followed.failure is None:
            self._failed(followed, StorageError(f"{followed.log.directory}: the data directory is offline"))

    def cut(self, leaders_ends: Mapping[FollowedPartition, tuple[int, int]]) -> None:
        """Cuts each log where the leader's is another one, given (epoch, end offset) that the leader has answered."""
        offsets: dict[FollowedPartition, int] = {}
        for followed, leaders_end in leaders_ends.items():
            try:
                offsets[followed] = followed.cut_at(leaders_end).offset
            except MillraceError as error:
                self._failed(followed, error)
        self.truncate(offsets)

    def truncate(self, offsets: Mapping[FollowedPartition, int]) -> None:
        """Cuts off what the logs hold above the offsets."""
        for followed, offset in offsets.items():
            below = f", below the high watermark {followed.high_watermark}" * (offset < followed.high_watermark)
            logger.info(
                "%s is cut from %d to %d%s: its leader %d has another log in epoch %d",
                followed.topic_partition,
                followed.log.log_end_offset,
                offset,
                below,
                followed.leader,
                followed.leader_epoch,
            )
        try:
            self._logs.truncate_to({followed.topic_partition: offset for followed, offset in offsets.items()})
        except StorageError as error:
            for followed, offset in offsets.items():
                if followed.log.log_end_offset > offset or self._is_offline(followed):
                    self._failed(followed, error)

    def start_again(self, followed: FollowedPartition, offset: int) -> None:
        """Removes all that a log holds, as its leader's log begins above its end; it goes on at the offset."""
        logger.warning(
            "%s ends at %d, and its leader %d begins at %d: the log is emptied and begins there",
            followed.topic_partition,
            followed.log.log_end_offset,
            followed.leader,
            offset,
        )
        try:
            self._logs.truncate_fully_and_start_at(followed.topic_partition, offset)
        except MillraceError as error:
            self._failed(followed, error)

    def _failed(self, followed: FollowedPartition, error: MillraceError) -> None:
        if self._is_offline(followed):
            followed.failure = str(error)
            logger.error("%s is offline: %s", followed.topic_partition, error)
            self._when_offline(followed.topic_partition)
            return
        logger.error("%s is fetched again from broker %d: %s", followed.topic_partition, followed.leader, error)
        self._pause(followed)

    def _is_offline(self, followed: FollowedPartition) -> bool:
        return not self._logs.dirs.of_log(followed.log.directory).is_online
