"""Changes the logs of followed partitions as their leaders answer, and takes a partition out whose log fails.

| what fails | what follows |
|---|---|
| the disk is full, or batches break a rule | the partition is fetched again after a pause |
| the data directory goes offline | the partition is offline: `when_offline` is told, and nothing more is fetched |

Runs on the event loop, to which the logs belong. Cuts, and appends for which files are changed first, wait for the
disk: the worker of the data directory makes them, and has the log for itself (`Replica.hold`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial

from millrace.errors import MillraceError, StorageError, is_unforeseen
from millrace.wire.encoder import contents
from millrace.wire.fetch import PartitionFetched
from millrace_broker.replication.followed_partition import FollowedPartition
from millrace_broker.storage import AppendWaitsError, LogManager, TopicPartition

logger = logging.getLogger(__name__)

WhenTold = Callable[[TopicPartition], None]

ANY_END = -1


class FollowerLogs:
    """Appends to the logs that one fetcher follows, and cuts them; work that waits for the disk runs on workers.

    Three functions are called with a followed partition: `pause` has it fetched again later; `when_offline` hears that
    its data directory has failed, and `when_committed` that its high watermark has moved.
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
        self._at_work: set[asyncio.Task[None]] = set()

    def append(self, followed: FollowedPartition, fetched: PartitionFetched) -> None:
        """Appends fetched batches, and sets high watermark and log start offset; an error pauses the partition."""
        high_watermark = followed.high_watermark
        try:
            followed.append(fetched)
        except AppendWaitsError:
            kept = fetched._replace(records=bytes(contents(fetched.records)))
            self._on_worker({followed: ANY_END}, lambda: followed.append(kept, may_wait=True))
        except MillraceError as error:
            self._failed(followed, error)
        if followed.high_watermark != high_watermark:
            self._when_committed(followed.topic_partition)

    def check(self, followed: FollowedPartition) -> None:
        """Takes a partition offline if its data directory has failed."""
        if followed.log.is_offline and followed.failure is None:
            self._failed(followed, StorageError(f"{followed.log.directory}: the data directory is offline"))

    def cut(self, leaders_ends: Mapping[FollowedPartition, tuple[int, int]]) -> None:
        """Cuts each log where it diverges from the leader's, whose newest epoch up to ours is given as (epoch, end)."""
        offsets: dict[FollowedPartition, int] = {}
        for followed, leaders_end in leaders_ends.items():
            try:
                offsets[followed] = followed.cut_at(leaders_end).offset
            except MillraceError as error:
                self._failed(followed, error)
        self.truncate(offsets)

    def truncate(self, offsets: Mapping[FollowedPartition, int]) -> None:
        """Cuts each log at its offset, on the workers of the data directories."""
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
        by_dir: dict[str, dict[FollowedPartition, int]] = defaultdict(dict)
        for followed, offset in offsets.items():
            by_dir[os.path.dirname(followed.log.directory)][followed] = offset
        for those in by_dir.values():
            ends = {followed.topic_partition: offset for followed, offset in those.items()}
            self._on_worker(those, partial(self._logs.truncate_to, ends))

    def start_again(self, followed: FollowedPartition, offset: int) -> None:
        """Empties a log that ends below its leader's log start; it begins again at `offset`."""
        logger.warning(
            "%s ends at %d, and its leader %d begins at %d: the log is emptied and begins there",
            followed.topic_partition,
            followed.log.log_end_offset,
            followed.leader,
            offset,
        )
        work = partial(self._logs.truncate_fully_and_start_at, followed.topic_partition, offset)
        self._on_worker({followed: ANY_END}, work)

    def _on_worker(self, ends: Mapping[FollowedPartition, int], work: Callable[[], None]) -> None:
        """Runs `work`, which changes logs of one data directory, on a worker, and holds these logs until it has ended.

        If it fails, partitions whose logs still end above their offset in `ends` (-1: all) are paused or offline.
        """
        for followed in ends:
            followed.hold()
        task = asyncio.get_running_loop().create_task(self._held(ends, work))
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    async def _held(self, ends: Mapping[FollowedPartition, int], work: Callable[[], None]) -> None:
        """Runs `work` on a worker, releases the logs, and has the partitions fetched further."""
        watermarks = [one.high_watermark for one in ends]
        failure: Exception | None = None
        try:
            await asyncio.wrap_future(self._logs.in_lane(next(iter(ends)).log, work))
        except Exception as error:  # the partitions are fetched again, or are offline
            if is_unforeseen(error):
                logger.exception("a log can't be changed")
            failure = error
        for (followed, end), high_watermark in zip(ends.items(), watermarks, strict=True):
            followed.let_go()
            if failure is not None and (followed.log.log_end_offset > end or self._is_offline(followed)):
                self._failed(followed, failure)
            if followed.high_watermark != high_watermark:
                self._when_committed(followed.topic_partition)
            followed.when_synced()

    def _failed(self, followed: FollowedPartition, error: Exception) -> None:
        if self._is_offline(followed):
            followed.failure = str(error)
            logger.error("%s is offline: %s", followed.topic_partition, error)
            self._when_offline(followed.topic_partition)
            return
        logger.error("%s is fetched again from broker %d: %s", followed.topic_partition, followed.leader, error)
        self._pause(followed)

    def _is_offline(self, followed: FollowedPartition) -> bool:
        return not self._logs.dirs.of_log(followed.log.directory).is_online
