"""Heals damaged logs: fetches what is damaged from the other replicas of the partition, and has it put in place.

    damage set aside (a read, the scrubber, compaction, a start)
        → `Healer.heal_all`, once a second
        → `range_fetch`: batches of other replicas that fit
        → `storage.log.healing`: a new segment takes the damaged one's place

A range that no replica has is tried again, after pauses that grow up to half a minute, and named until then by health,
metrics and `damaged-ranges`.

A follower whose log ends with damage cuts that off, once its leader has what begins there, and follows on. It cuts
nothing that is committed: others count on its copy, and it may lead before it has fetched that again.

No CRC covers a base offset, so a batch right behind damage may be in another's place, with its offsets. It is fetched
again with the damage. Where the others have a batch across its beginning, it is damage, too, and so the log grows to
where its leader's batch ends, if nothing is behind the damage (`storage.log.healing`).

What compaction has removed must not come back: a record whose tombstone is gone here may be there at another replica,
and the other way round. So where batches behind the damage lack records, or no replica of a compacted log has all that
is damaged any more, all segments up to there are fetched from one replica, and the damaged one is put in place last: a
crash in between leaves the damage, and all is fetched again.

What lies below the log start offset is left as it is: the other replicas may have deleted it, and nobody reads it.

One log is healed at a time. Runs on the event loop; disks are waited for on worker threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import NamedTuple

from millrace.addresses import Address
from millrace.clock import Clock
from millrace.config import MAX_INT, MAX_LONG
from millrace.errors import BrokerUnreachableError, NotLeaderError, ZooKeeperError, is_unforeseen
from millrace.records.batch import walk
from millrace.wire.fetch import PartitionKey
from millrace_broker.metrics import MaintenanceCounts
from millrace_broker.replication.broker_link import BrokerLink, Connect
from millrace_broker.replication.filled_range import ended_range
from millrace_broker.replication.followed_partition import FollowedPartition
from millrace_broker.replication.range_fetch import (
    FETCH_BYTES,
    Missing,
    OtherReplicas,
    Sources,
    Taken,
    committed,
    epochs_around,
    of_known_epoch,
)
from millrace_broker.replication.replica import Replica
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import (
    DamagedRange,
    Log,
    LogManager,
    LogSegment,
    NewSegment,
    SegmentHealing,
    TopicPartition,
    hole_at_end,
)

logger = logging.getLogger(__name__)

ANSWER_TIMEOUT_S = 10.0
MAX_RESPONSE_BYTES = 128 << 20
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1_000, 30_000


class _Pause(NamedTuple):
    """When a log that could not be healed is tried again, the pause before that, and why it could not."""

    until_ms: int
    pause_ms: int
    reason: str


class Healer:
    """Heals the damaged logs of this broker from other brokers' replicas.

    Args:
        broker_id: the id of this broker.
        logs: the logs of this broker.
        replicas: which of them are led and followed.
        sources: returns where other replicas of a partition are, None for one that the cluster does not have.
        eligible: returns which brokers outside a partition's ISR have all that is committed. Raises ZooKeeperError.
        address_of: returns where a broker listens, None where it is not alive.
        connect: makes connections to other brokers.
        clock: measures the pauses.
        counts: counts what was healed.
    """

    def __init__(  # noqa: PLR0917 -- the wiring of a broker, once
        self,
        broker_id: int,
        logs: LogManager,
        replicas: ReplicaManager,
        sources: Callable[[TopicPartition], Sources | None],
        eligible: Callable[[TopicPartition], Awaitable[tuple[int, ...]]],
        address_of: Callable[[int], Address | None],
        connect: Connect,
        clock: Clock,
        counts: MaintenanceCounts,
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._replicas = replicas
        self._sources = sources
        self._eligible = eligible
        self._address_of = address_of
        self._connect = connect
        self._clock = clock
        self._counts = counts
        self._pauses: dict[TopicPartition, _Pause] = {}

    async def heal_all(self) -> None:
        """Heals each damaged log that is not paused; one that can't be healed is paused, and stops no other."""
        damaged = await asyncio.to_thread(self._logs.damaged)
        self._pauses = {key: pause for key, pause in self._pauses.items() if key in damaged}
        for topic_partition, log in damaged.items():
            pause = self._pauses.get(topic_partition)
            if pause is None or pause.until_ms <= self._clock.monotonic_ms():
                await self._try(topic_partition, log)

    async def _try(self, topic_partition: TopicPartition, log: Log) -> None:
        try:
            reason = await self._heal(topic_partition, log)
        except Exception as error:
            reason = str(error) or type(error).__name__
            if is_unforeseen(error):
                logger.exception("%s can't be healed", topic_partition)
        if not log.healing.is_due:
            self._pauses.pop(topic_partition, None)
            return
        before = self._pauses.get(topic_partition)
        if reason and (before is None or before.reason != reason):
            logger.warning("%s stays damaged, and is tried again: %s", topic_partition, reason)
        pause_ms = FIRST_PAUSE_MS if before is None else min(2 * before.pause_ms, LONGEST_PAUSE_MS)
        self._pauses[topic_partition] = _Pause(self._clock.monotonic_ms() + pause_ms, pause_ms, reason)

    async def _heal(self, topic_partition: TopicPartition, log: Log) -> str:
        """Heals what it can of one log; returns why something is left, nothing where the next turn goes on with it."""
        sources, replica = self._sources(topic_partition), self._replicas.replica(topic_partition)
        topic_id = self._logs.topic_id(topic_partition)
        if sources is None or replica is None or replica.log is not log or topic_id is None:
            return "the cluster does not have it here"
        async with AsyncExitStack() as links:
            key = PartitionKey(topic_id, topic_partition.partition)
            others = OtherReplicas(self._link_to, links, key, sources)
            work = _LogHealing(
                log,
                replica,
                lambda: self._replicas.replica(topic_partition) is replica,
                others,
                partial(self._eligible, topic_partition),
                self._logs,
                self._counts,
            )
            await work.run()
            return others.refusal

    async def _link_to(self, broker: int) -> BrokerLink:
        address = self._address_of(broker)
        if address is None:
            raise BrokerUnreachableError("it is not alive")
        return await self._connect(
            address,
            client_id=f"broker-{self._broker_id}-healer",
            timeout_s=ANSWER_TIMEOUT_S,
            max_response_bytes=MAX_RESPONSE_BYTES,
        )


class _LogHealing:
    """The healing of one log, segment by segment. `is_current` says whether the replica still has its role."""

    def __init__(  # noqa: PLR0917 -- one log, and what it is healed with
        self,
        log: Log,
        replica: Replica,
        is_current: Callable[[], bool],
        others: OtherReplicas,
        eligible: Callable[[], Awaitable[tuple[int, ...]]],
        logs: LogManager,
        counts: MaintenanceCounts,
    ) -> None:
        self._log = log
        self._replica = replica
        self._is_current = is_current
        self._others = others
        self._eligible = eligible
        self._logs = logs
        self._counts = counts
        self._holders: tuple[int, frozenset[int]] | None = None

    async def run(self) -> None:
        """Heals what other replicas have of the damage. Raises a MillraceError where the log itself can't be healed."""
        log = self._log
        if log.healing.must_roll:
            log.healing.roll()
        if self._others.brokers and not await self._cut_damaged_end():
            log.healing.roll()
            await asyncio.to_thread(log.flush)
            removed_to = await asyncio.to_thread(log.healing.removed_up_to)
            for segment in log.healing.damaged_segments():
                if segment is log.segments.active:
                    continue
                if any(one.start_offset < removed_to for one in segment.damage):
                    await self._copy_compacted(removed_to)
                    break
                await self._heal_segment(segment)
            await self._copy_what_others_lack()
        if log.healing.owes_producers:
            await self._held(log.healing.reread_producers)
        log.release_replaced()
        await asyncio.to_thread(log.name_damage)

    async def _cut_damaged_end(self) -> bool:
        """Cuts off damage at the end of a follower's log; returns whether it did."""
        log, replica = self._log, self._replica
        at_end = [one for _, one in log.damage if one.end_offset >= log.log_end_offset]
        if not at_end or not isinstance(replica, FollowedPartition) or replica.leader not in self._others.brokers:
            return False
        start = min(one.start_offset for one in at_end)
        if start < replica.high_watermark:
            return False
        missing = self._missing(start, MAX_LONG)
        if await self._others.next_batches(missing, [replica.leader]) is None:
            return False
        topic_partition, end = log.topic_partition, log.log_end_offset
        await self._held(lambda: self._logs.truncate_to({topic_partition: start}))
        logger.info("%s: its damaged end, from %d to %d, is fetched again", topic_partition, start, end)
        return True

    async def _held(self, work: Callable[[], object]) -> None:
        """Runs work that changes the log on the worker of its data directory, which has the log for itself.

        Raises NotLeaderError where the replica has another role by now.
        """
        await self._replica.until_free()
        if not self._is_current():
            raise NotLeaderError(f"{self._log.topic_partition} has another role now")
        self._replica.hold()
        try:
            await asyncio.wrap_future(self._logs.in_lane(self._log, work))
        finally:
            self._replica.let_go()
            if isinstance(self._replica, FollowedPartition):
                self._replica.when_cut()

    async def _heal_segment(self, segment: LogSegment) -> None:
        truncations = self._log.truncations
        hole = hole_at_end(segment)
        is_behind = hole is not None and hole.start_offset > segment.base_offset
        if hole is not None and is_behind and not await self._fill_hole(segment, hole, truncations):
            return
        if not segment.damage or not segment.retain():
            return
        log = self._log
        try:
            with await asyncio.to_thread(log.healing.healing, segment) as new:
                healed = await self._refill(new, segment)
                place = partial(log.healing.put_in_place, segment, new, truncations)
                is_placed: bool = await asyncio.to_thread(place) if healed else False
                if is_placed:
                    self._note_healed(healed)
        finally:
            segment.release()

    async def _refill(self, new: SegmentHealing, segment: LogSegment) -> list[DamagedRange]:
        """Fills the damaged ranges of a segment; returns what is healed, nothing where `new` can't be used."""
        healed: list[DamagedRange] = []
        end_offset, is_follower = 0, isinstance(self._replica, FollowedPartition)
        for damaged in segment.damage:
            if damaged.start_offset < end_offset:
                continue  # it was filled with the one in front
            await asyncio.to_thread(new.copy_up_to, damaged.position)
            wider = await self._with_batch_behind(segment, damaged)
            missing = self._missing(wider.start_offset, wider.end_offset)
            most_bytes = self._log.healing.most_bytes(segment, wider)
            filled_to = await self._fill(new, missing, most_bytes=most_bytes)
            is_full = new.segment.size_bytes >= most_bytes
            ended = ended_range(damaged, wider, filled_to, is_full=is_full, is_follower=is_follower)
            if ended is None:
                return []
            is_filled = filled_to > missing.next_offset
            await asyncio.to_thread(new.end, ended, filled_to if is_filled else ended.start_offset)
            if is_filled or ended.start_offset == ended.end_offset:
                healed.append(ended._replace(end_offset=filled_to))
            else:
                await self._set_aside_behind(segment, damaged, wider)
            end_offset = ended.end_offset
        return healed

    async def _with_batch_behind(self, segment: LogSegment, damaged: DamagedRange) -> DamagedRange:
        if damaged.start_offset < self._log.healing.gapless_from:
            return damaged  # compaction leaves other batches elsewhere
        return await asyncio.to_thread(self._log.healing.with_batch_behind, segment, damaged)

    async def _set_aside_behind(self, segment: LogSegment, damaged: DamagedRange, wider: DamagedRange) -> None:
        """Sets aside the batch behind, or the log's end, where others have a batch that reaches over the range."""
        if await self._end_across(wider.start_offset, wider.end_offset) is None:
            return
        if wider != damaged:
            self._log.healing.widen(segment, wider)
        else:
            await self._extend_end(wider)

    async def _extend_end(self, damaged: DamagedRange) -> None:
        """Moves the end of a follower's log, where that is damaged, to that of its leader's batch across it."""
        log, replica = self._log, self._replica
        if not isinstance(replica, FollowedPartition) or replica.leader not in self._others.brokers:
            return
        if damaged.end_offset < log.log_end_offset:
            return
        end_offset = await self._end_across(damaged.start_offset, log.log_end_offset, [replica.leader])
        if end_offset is not None:
            await self._held(lambda: log.healing.extend_end(end_offset))

    async def _end_across(self, start_offset: int, end_offset: int, brokers: Sequence[int] = ()) -> int | None:
        """Returns the end of a batch of other replicas that reaches over `end_offset`; None where they have none."""
        found = await self._others.next_batches(self._missing(start_offset, MAX_LONG), brokers)
        headers = () if found is None else (header for _, header in walk(found.batches))
        return next((one.next_offset for one in headers if one.base_offset < end_offset < one.next_offset), None)

    async def _fill_hole(self, before: LogSegment, hole: DamagedRange, truncations: int) -> bool:
        """Puts new segments into a hole at a segment's end; returns whether nothing is missing there any more."""
        log, next_offset = self._log, hole.start_offset
        while next_offset < hole.end_offset:
            with await asyncio.to_thread(log.healing.filling, next_offset) as new:
                missing = self._missing(next_offset, hole.end_offset)
                filled_to = await self._fill(new, missing, most_bytes=log.healing.segment_bytes)
                if filled_to == missing.next_offset:
                    await self._extend_end(hole._replace(start_offset=next_offset))
                    return False
                if not await asyncio.to_thread(log.healing.put_into_hole, before, new, filled_to, truncations):
                    return False
                self._note_healed([hole._replace(start_offset=next_offset, end_offset=filled_to)])
            before, next_offset = new.segment, filled_to
        return True

    async def _copy_compacted(self, removed_to: int) -> None:
        """Puts one replica's batches in the place of all closed segments that begin below `removed_to`."""
        log, truncations = self._log, self._log.truncations
        segments = [one for one in log.closed_segments if one.base_offset < removed_to]
        with ExitStack() as stack:
            for segment in segments:
                if not segment.retain():
                    return
                stack.callback(segment.release)
            for broker in self._others.brokers:
                with ExitStack() as made:
                    copies = [(segment, await self._copied(segment, broker, made)) for segment in segments]
                    whole = [(segment, new) for segment, new in copies if new is not None]
                    if len(whole) < len(segments):
                        continue
                    for segment, new in sorted(whole, key=lambda pair: bool(pair[0].damage)):
                        place = partial(log.healing.put_in_place, segment, new, truncations, is_other=True)
                        if not await asyncio.to_thread(place):
                            return
                    self._note_healed([one for segment in segments for one in segment.damage])
                    return

    async def _copy_what_others_lack(self) -> None:
        """Copies a compacted log up to the damage that is left: others may have removed what is missing here."""
        log = self._log
        closed = [one for one in log.healing.damaged_segments() if one is not log.segments.active]
        if closed and log.config.is_compacted:
            await self._copy_compacted(max(one.end_offset for one in closed[-1].damage))

    async def _copied(self, segment: LogSegment, broker: int, made: ExitStack) -> SegmentHealing | None:
        """Returns a segment of a broker's batches with the offsets of `segment`; None where it lacks some."""
        new = made.enter_context(await asyncio.to_thread(self._log.healing.healing, segment))
        missing = self._missing(segment.base_offset, segment.next_offset)._replace(may_leave_out=True)
        filled_to = await self._fill(new, missing, [broker])
        whole = DamagedRange(segment.base_offset, segment.next_offset, 0, segment.size_bytes, "")
        if filled_to < segment.next_offset:
            return None
        await asyncio.to_thread(new.end, whole, filled_to)
        return new

    async def _fill(
        self, new: NewSegment, missing: Missing, brokers: Sequence[int] = (), most_bytes: int = MAX_INT
    ) -> int:
        """Puts batches of other replicas into a new segment; returns the offset up to which nothing is missing."""
        while missing.next_offset < missing.end_offset and new.segment.size_bytes < most_bytes:
            room = min(FETCH_BYTES, most_bytes - new.segment.size_bytes)
            found = await self._next_batches(missing, brokers, room)
            if found is None:
                break
            await asyncio.to_thread(new.put, found.batches)
            self._counts.healed_bytes += len(found.batches)
            missing = missing.behind(found.next_offset)
        return missing.next_offset

    async def _next_batches(self, missing: Missing, brokers: Sequence[int], room: int) -> Taken | None:
        """Returns batches that other replicas know as committed, or else those that are certainly the same there."""
        log, others = self._log, self._others
        found = await others.next_batches(missing, brokers, room)
        known = of_known_epoch(missing, log.leader_epochs.entries, log.log_end_offset)
        if found is None and known is not None:
            found = await others.next_batches(known, brokers, room, is_committed=False)
        if found is None and missing.next_offset < self._replica.high_watermark:
            high_watermark, holders = await self._known_holders()
            below = committed(missing, high_watermark)
            asked = [one for one in brokers or others.brokers if one in holders]
            if below is not None and asked:
                found = await others.next_batches(below, asked, room, is_committed=False)
        return found

    async def _known_holders(self) -> tuple[int, frozenset[int]]:
        """Returns the high watermark when ZooKeeper was asked, once, and the brokers that have all below it."""
        if self._holders is None:
            high_watermark = self._replica.high_watermark
            eligible: tuple[int, ...] = ()
            try:
                eligible = await self._eligible()
            except ZooKeeperError as error:
                logger.warning("%s: which leaders are eligible can't be read: %s", self._log.topic_partition, error)
            self._holders = high_watermark, frozenset((*self._others.in_sync, *eligible))
        return self._holders

    def _missing(self, start_offset: int, end_offset: int) -> Missing:
        log = self._log
        may_leave_out = start_offset < log.healing.gapless_from
        newest = self._replica.leader_epoch, log.log_end_offset
        least, largest = epochs_around(
            log.leader_epochs.entries, start_offset, end_offset, newest=newest, may_leave_out=may_leave_out
        )
        return Missing(start_offset, max(start_offset, log.log_start_offset), end_offset, least, largest, may_leave_out)

    def _note_healed(self, healed: Sequence[DamagedRange]) -> None:
        for one in healed:
            self._counts.healed_ranges += 1
            what = self._log.topic_partition, one.start_offset, one.end_offset - 1
            logger.info("%s: offsets %d to %d are healed from other replicas", *what)
