"""Moves partitions' logs between the broker's data folders while they are served (KIP-113).

One log is copied at a time, in the order in which the moves were asked for, on a worker thread and no faster than
`replica.alter.log.dirs.io.max.bytes.per.second` allows. Once `FINISH_BYTES` or less are left, they are copied at any
rate, and the copy is put in the log's place; producers of the partition are refused meanwhile, and come again. A move
that fails leaves the log where it is. It goes on when the leader changes, and ends when the partition is deleted. A
move that the end of the broker interrupts starts again when the broker leads the partition, where Kafka goes on with
what was copied. A broker that is killed after it dropped an old copy, and before it made the new folder, forgets the
move.

Runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from millrace.errors import CompactionStoppedError, MillraceError, UnknownTopicError
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import Log, LogCopy, LogManager, TopicPartition

logger = logging.getLogger(__name__)

FINISH_BYTES = 1 << 20


class LogDirMover:
    """Moves logs between data folders, one at a time; calls `moved(old, new)` on a worker thread after each move."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        moved: Callable[[Log, Log], None],
        bytes_per_second: Callable[[], float],
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._moved = moved
        self._bytes_per_second = bytes_per_second
        self._interrupted = logs.moves.interrupted()
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def copies(self) -> Mapping[TopicPartition, LogCopy]:
        """Returns the copies of the logs that are being moved."""
        return self._logs.moves.copies()

    def prefer(self, topic_partition: TopicPartition, path: str) -> None:
        """Sets the data folder `path` in which the log of a partition that has none yet will be made."""
        self._logs.dirs.prefer(topic_partition, path)

    def move(self, topic_partition: TopicPartition, path: str) -> list[LogCopy]:
        """Begins to move a partition's log to the data folder `path`, unless it is on its way there.

        Returns the begun copy, and one dropped for it; `settle` then changes their folders. Raises StorageError.
        """
        copy = self.copies().get(topic_partition)
        if copy is not None and copy.parent == path:
            return [copy]
        dropped = self.drop(topic_partition)
        copy = self._logs.moves.begin(topic_partition, path)
        task = asyncio.get_running_loop().create_task(self._move(topic_partition, copy))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return [*dropped, copy]

    def elected(self, topic_partition: TopicPartition) -> None:
        """Begins a move again that the broker's last stop has interrupted, now that it leads the partition."""
        path = self._interrupted.pop(topic_partition, None)
        if path is None:
            return
        try:
            self.move(topic_partition, path)
        except MillraceError:
            logger.exception("%s was being moved to %s, and stays where it is", topic_partition, path)
        else:
            logger.info("%s was being moved to %s: the move starts again", topic_partition, path)

    def resigned(self, topic_partition: TopicPartition) -> None:
        """Does nothing: the move goes on while another broker leads, and a truncated log truncates its copy."""

    def drop(self, topic_partition: TopicPartition) -> list[LogCopy]:
        """Ends the move of a log, which stays where it is; returns its copy, if any, which `settle` then removes.

        Raises StorageError where the copy is just being put in the log's place.
        """
        copy = self._logs.moves.drop(topic_partition)
        return [] if copy is None else [copy]

    @property
    def is_settled(self) -> bool:
        """Whether every copy has its folder and those of dropped copies are renamed: the next start goes by names."""
        return self._logs.moves.is_settled

    async def settle(self) -> None:
        """Makes the folders of begun moves and renames those of dropped ones; gives up moves where that fails."""
        await asyncio.to_thread(self._logs.moves.settle)
        for copy in [copy for copy in self.copies().values() if copy.refusal is not None]:
            self._logs.moves.give_up(copy)

    async def close(self) -> None:
        """Interrupts all moves, and returns when no thread works on them; the next start begins them again."""
        for copy in self.copies().values():
            copy.stop()
        await asyncio.gather(*self._tasks)
        await self.settle()

    async def _move(self, topic_partition: TopicPartition, copy: LogCopy) -> None:
        async with self._turn:
            try:
                await self._copy(topic_partition, copy)
            except CompactionStoppedError:
                logger.info("%s stays where it is: the move to %s was stopped", topic_partition, copy.parent)
            except MillraceError:
                logger.exception("%s was to be moved to %s", topic_partition, copy.parent)
                if self.copies().get(topic_partition) is copy:
                    self._logs.moves.give_up(copy)

    async def _copy(self, topic_partition: TopicPartition, copy: LogCopy) -> None:
        while not copy.is_stopped:
            replica = self._replicas.replica(topic_partition)
            if replica is None:
                raise UnknownTopicError(f"{topic_partition} is neither led nor followed any more")
            log = replica.log
            await asyncio.to_thread(copy.catch_up, log, self._bytes_per_second())
            await replica.until_free()
            if self._replicas.replica(topic_partition) is not replica:
                continue  # it has another role now
            if not copy.is_stopped and copy.rest_bytes(log.segments) <= FINISH_BYTES:
                await self._replicas.finish_move(replica, copy)
                logger.info("%s was moved to %s", topic_partition, copy.parent)
                await asyncio.to_thread(self._moved, log, replica.log)
                return
