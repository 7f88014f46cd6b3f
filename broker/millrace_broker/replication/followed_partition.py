"""A partition that this broker follows: its log, and how the leader's answers change it.

    log start offset ≤ high watermark ≤ log end offset = where the next fetch begins

The log is a copy of the leader's. Batches are appended as they are, the high watermark is the leader's, but never above
the own log's end, and the log start offset follows the leader's. Where the two logs differ, `cut_at` says from the
leader epochs of both where the own log is cut (`epoch_ends`).

A followed partition stands for one leader epoch: another epoch makes another object, so that an answer that comes late
finds that its object is followed no longer (KAFKA-6880).

A follower that is out of the range of its leader's log asks where that begins and ends (`leader_offsets`).

`FollowerLogs` changes the logs as the leaders answer, and takes a partition out whose log fails:

| what fails | what follows |
|---|---|
| the disk is full | the partition is fetched again after a pause |
| batches break a rule, or leave out offsets where the leader's log has them all | the same, and the leader is told |
| the data directory goes offline | the partition is offline: `when_offline` is told, and nothing more is fetched |

Runs on the event loop, to which the logs belong. Cuts, and appends for which files are changed first, wait for the
disk: the worker of the data directory makes them, and has the log for itself (`Replica.hold`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from millrace.errors import (
    ErrorCode,
    InvalidRecordError,
    MillraceError,
    NotLeaderError,
    RecordError,
    StorageError,
    is_unforeseen,
)
from millrace.leader_states import NO_LEADER
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.wire.encoder import contents
from millrace.wire.fetch import PartitionFetched, PartitionKey
from millrace.wire.messages import LIST_OFFSETS
from millrace_broker.replication.broker_link import BrokerLink
from millrace_broker.replication.epoch_ends import cut_for, fetch_position
from millrace_broker.replication.follower_session import Asked
from millrace_broker.replication.replica import Replica
from millrace_broker.storage import AppendWaitsError, Log, LogManager, TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.list_offsets import ListOffsetsPartitionFields, ListOffsetsRequestFields

logger = logging.getLogger(__name__)

FIRST_PAUSE_MS = 20  # about as long as the controller takes to tell all brokers of a new leader
LIST_OFFSETS_VERSION = 7
READ_UNCOMMITTED = 0
LATEST, EARLIEST = -1, -2  # a replica is told where the log ends, not the high watermark
ANY_END = -1

WhenTold = Callable[[TopicPartition], None]


class FollowedPartition(Replica):
    """A partition that this broker follows. `leader` is the id of the broker that leads, -1 where none does.

    `lag` counts the committed records of the leader that are missing here, as its newest answer says (MaxLag of Kafka).
    `failure` says why nothing is fetched any more in this leader epoch, None while it is fetched. `next_pause_ms` is
    the pause after the leader's next refusal. `is_in_sync` says whether the newest answer has brought the log to the
    leader's high watermark. `damaged_at` is the offset at which the newest answer was damaged, None while none was.
    `when_synced` is called when the log was synced or released by a worker, or its data directory failed, and
    `when_cut` when others than its fetcher have cut it.
    """

    __slots__ = (
        "damaged_at", "failure", "is_in_sync", "key", "lag", "leader", "next_pause_ms", "retry_at_s", "when_cut",
        "when_synced",
    )  # fmt: skip

    def __init__(self, log: Log, topic_id: UUID, config: Mapping[str, str], *, leader: int, leader_epoch: int) -> None:
        super().__init__(log, topic_id, leader_epoch, config)
        self.leader = leader
        self.key = PartitionKey(topic_id, log.topic_partition.partition)
        self.failure: str | None = None if leader != NO_LEADER else "it has no leader"
        self.retry_at_s = 0.0
        self.next_pause_ms = FIRST_PAUSE_MS
        self.is_in_sync = False
        self.damaged_at: int | None = None
        self.lag = 0
        self.when_synced: Callable[[], None] = lambda: None  # no fetcher waits
        self.when_cut = self.when_synced

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition's topic and index."""
        return self.log.topic_partition

    def asked(self) -> Asked:
        """Returns the position to fetch from; a log that ends above its offset has to be cut there first.

        A log whose epochs damage hides is not cut, as it may have to lead before it has fetched that again: once it is
        healed, its epochs are known and compared.
        """
        log = self.log
        offset, epoch = fetch_position(log.leader_epochs.entries, log.log_end_offset, log.high_watermark)
        if epoch == NO_LEADER_EPOCH and log.damage:
            offset = log.log_end_offset
        return Asked(offset, epoch, self.leader_epoch, log.log_start_offset)

    def cut_at(self, leaders_end: tuple[int, int]) -> int:
        """Returns where to cut the log; `leaders_end` is (epoch, end offset) of the leader's newest epoch up to ours.

        Raises InvalidRecordError for an epoch above our newest, and where nothing would be cut, though the leader has
        answered that the logs differ.
        """
        log = self.log
        cut = cut_for(log.leader_epochs.entries, log.log_end_offset, log.high_watermark, leaders_end)
        if leaders_end[0] > log.leader_epochs.latest or not 0 <= cut < log.log_end_offset:
            raise InvalidRecordError(
                f"{self.topic_partition}: the leader's epoch {leaders_end[0]} ends at {leaders_end[1]}, "
                f"which leaves the log as it is, up to {log.log_end_offset}"
            )
        return cut

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raises FencedLeaderEpochError for an older epoch, UnknownLeaderEpochError for a newer one.

        Raises NotLeaderError while a worker holds the log, so that the client asks another replica.
        """
        super().check_leader_epoch(current_leader_epoch)
        if self.log.is_held:
            raise NotLeaderError(f"{self.topic_partition}: the log is being cut or moved")

    def append(self, fetched: PartitionFetched, *, may_wait: bool = False) -> None:
        """Appends fetched batches, and sets the leader's high watermark and log start offset.

        Raises RecordError, also where there are bytes but nothing that can be appended, StorageError, or
        AppendWaitsError unless it `may_wait` for the disk; what was appended before the error stays.
        """
        log = self.log
        if len(fetched.records):
            end_offset = log.log_end_offset
            log.append_as_follower(
                contents(fetched.records),
                leader_epoch=self.leader_epoch,
                may_wait=may_wait,
                gapless_from=fetched.gapless_from,
            )
            self.damaged_at = None
            self.appended_bytes += len(fetched.records)
            self.traffic.replicated_bytes_in += len(fetched.records)
            if log.log_end_offset == end_offset:
                raise InvalidRecordError(
                    f"{self.topic_partition}: {len(fetched.records)} bytes at offset {end_offset} have no whole batch "
                    f"of leader epoch {self.leader_epoch} or before"
                )
        self.is_in_sync = log.log_end_offset >= fetched.high_watermark
        log.high_watermark = fetched.high_watermark
        self.lag = max(0, fetched.high_watermark - log.log_end_offset)
        log.raise_log_start_offset(min(fetched.log_start_offset, log.high_watermark))


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
                offsets[followed] = followed.cut_at(leaders_end)
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

    def compare_epochs(self, followed: FollowedPartition) -> None:
        """Has a log whose newest epoch its leader does not know look whether its batches are of that epoch."""
        self._on_worker({followed: ANY_END}, followed.log.healing.compare_leader_epochs)

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
        if isinstance(error, RecordError):
            is_news, followed.damaged_at = followed.damaged_at is None, followed.log.log_end_offset
        else:
            is_news = True
        log = logger.error if is_news else logger.debug
        log("%s is fetched again from broker %d: %s", followed.topic_partition, followed.leader, error)
        self._pause(followed)

    def _is_offline(self, followed: FollowedPartition) -> bool:
        return not self._logs.dirs.of_log(followed.log.directory).is_online


class LeaderOffset(NamedTuple):
    """The leader's answer to ListOffsets for one partition."""

    error_code: int
    offset: int


NOT_ANSWERED = LeaderOffset(ErrorCode.UNKNOWN_SERVER_ERROR, -1)


async def leader_offsets(
    link: BrokerLink, broker_id: int, partitions: Collection[FollowedPartition], timestamp: int
) -> dict[FollowedPartition, LeaderOffset]:
    """Returns what the leader answers to ListOffsets for each partition, in the partition's leader epoch.

    Raises BrokerUnreachableError, AnswerLostError or another error of `BrokerLink.request`.

    Args:
        link: the connection to the leader.
        broker_id: the id of this broker.
        partitions: which partitions.
        timestamp: LATEST or EARLIEST.
    """
    topics: dict[str, list[ListOffsetsPartitionFields]] = {}
    for one in partitions:
        topics.setdefault(one.topic_partition.topic, []).append(
            {
                "partition_index": one.topic_partition.partition,
                "timestamp": timestamp,
                "current_leader_epoch": one.leader_epoch,
            }
        )
    fields: ListOffsetsRequestFields = {
        "replica_id": broker_id,
        "isolation_level": READ_UNCOMMITTED,
        "topics": [{"name": name, "partitions": asked} for name, asked in topics.items()],
    }
    answer = await link.request(LIST_OFFSETS, LIST_OFFSETS_VERSION, fields)
    listed = {
        TopicPartition(topic.name, one.partition_index): LeaderOffset(int(one.error_code), one.offset)
        for topic in answer.topics
        for one in topic.partitions
    }
    return {one: listed.get(one.topic_partition, NOT_ANSWERED) for one in partitions}
