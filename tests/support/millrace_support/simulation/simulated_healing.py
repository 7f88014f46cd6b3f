"""What heals the logs of a simulated broker: the real healer, the real checks of the scrubber, and reports of damage.

All go on as in a real broker, but for the scrubber, which has no thread: it checks a segment now and then, in rounds
over all logs. Recovery points are written every few seconds, as damage below them is never taken for a torn write.

What healing has put in place must have every offset of the range, or be damaged still: a scrubber would find a hole
there later, and have it healed again, so that nothing would be wrong in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

from millrace.errors import MillraceError, RecordError, StorageError
from millrace_broker.assembly import BrokerComponents, new_healer
from millrace_broker.broker import DAMAGE_INTERVAL_MS, HEAL_INTERVAL_MS
from millrace_broker.cluster.eligible_leaders import eligible_leaders
from millrace_broker.cluster.loss_reports import write_damage
from millrace_broker.metrics import MaintenanceCounts
from millrace_broker.replication.broker_link import BrokerLink
from millrace_broker.storage import DamagedRange, Log, LogSegment, TopicPartition
from millrace_support.simulation.simulated_coordinator import CoordinatingBroker

SCRUB_PAUSE_S, LAST_SCRUB_PAUSE_S = 0.3, 0.03  # between two segments, while there are faults and after them
SYNC_S = 3.0


class SimulatedHealing:
    """The work for the logs of one process. `is_paused` says whether the process sleeps."""

    def __init__(
        self, broker: CoordinatingBroker, is_paused: Callable[[], bool], anomaly: Callable[[str], None]
    ) -> None:
        self._anomaly = anomaly
        self._was_sound = False
        self._active: list[tuple[Log, LogSegment]] = []
        self._broker = broker
        self._logs = broker.replicas.logs
        self._is_paused = is_paused
        self._is_last_round = False
        self._reported: frozenset[TopicPartition] | None = None
        base = SimpleNamespace(
            broker_id=broker.broker_id,
            logs=self._logs,
            metadata=SimpleNamespace(partition=broker.metadata.partition, address_of=broker.known_address_of),
            store=SimpleNamespace(eligible_leaders=lambda one: eligible_leaders(cast("Any", broker.session), one)),
            connect=BrokerLink.connect,
            clock=broker.clock,
        )
        self._healer = new_healer(cast("BrokerComponents", base), broker.replicas, MaintenanceCounts())

    def chores(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yields what a process does all the time."""
        yield self._again(HEAL_INTERVAL_MS / 1000, self._heal)
        yield self._again(DAMAGE_INTERVAL_MS / 1000, self.report_damage)
        yield self._again(SYNC_S, self._sync)
        yield self._scrub()

    def begin_last_round(self) -> None:
        """Has the scrubber go over all logs until a round finds nothing, and end then."""
        self._is_last_round = True

    @property
    def is_sound(self) -> bool:
        """Whether the last round of the scrubber (`begin_last_round`) has found nothing, and no segment has rolled.

        The indexes of an active segment are checked once it is closed.
        """
        logs = self._logs
        here = (one for one in self._active if logs.get(one[0].topic_partition) is one[0])
        return self._was_sound and all(segment is log.segments.active for log, segment in here)

    async def _again(self, pause_s: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            await asyncio.sleep(pause_s)
            if not self._is_paused():
                await work()

    async def _heal(self) -> None:
        """Heals, and looks at what is not damaged any more."""
        before = {log: (log.truncations, log.healing.damage()) for log in self._logs.damaged().values()}
        await self._healer.heal_all()
        for log, (truncations, damage) in before.items():
            if self._logs.get(log.topic_partition) is log and log.truncations == truncations:
                for _, one in damage:
                    left_out = first_left_out(log, one)
                    if left_out is not None:
                        what = f"{log.topic_partition} of broker {self._broker.broker_id}"
                        self._anomaly(f"{what} lacks offset {left_out} where {one} is healed")

    async def report_damage(self) -> None:
        """Does what `ClusterMember` does; where ZooKeeper does not answer, the next look reports."""
        damaged = self._broker.replicas.damaged()
        if damaged != self._reported:
            with suppress(MillraceError):
                write_damage(cast("Any", self._broker.session), self._broker.broker_id, damaged)
                self._reported = damaged

    async def _sync(self) -> None:
        """Does what the broker's chores do for the disk."""
        with suppress(StorageError):  # the disk is full
            self._logs.flush_due()
            self._logs.checkpoint()
            self._logs.release_replaced()
            self._logs.remove_deleted()

    async def _scrub(self) -> None:
        """Makes rounds, until the last one has found nothing, and again where a segment has rolled since."""
        while True:
            if not self.is_sound:
                await self._make_round()
            await asyncio.sleep(SCRUB_PAUSE_S)

    async def _make_round(self) -> None:
        is_last, is_sound = self._is_last_round, True
        self._active = []
        for log, segment in self._segments():
            await asyncio.sleep(LAST_SCRUB_PAUSE_S if self._is_last_round else SCRUB_PAUSE_S)
            if not self._is_paused():
                if segment is log.segments.active:
                    self._active.append((log, segment))
                is_sound &= self._check(log, segment)
        self._was_sound = is_last and is_sound

    def _segments(self) -> Iterator[tuple[Log, LogSegment]]:
        for key in sorted(self._logs.logs()):
            next_base = 0
            while (log := self._logs.get(key)) is not None:
                segment = next((one for one in log.segments if one.base_offset >= next_base), None)
                if segment is None:
                    break
                yield log, segment
                next_base = segment.base_offset + 1

    def _check(self, log: Log, segment: LogSegment) -> bool:
        """Checks a segment as the scrubber does; returns whether nothing was wrong, or is left."""
        try:
            scrubbed = log.scrub(segment, lambda _: None)
        except MillraceError:  # a full disk, or a log that is gone; a scrubber goes on
            return self._logs.get(log.topic_partition) is not log
        return not (scrubbed.findings or scrubbed.is_left or log.healing.is_due)


def first_left_out(log: Log, damaged: DamagedRange) -> int | None:
    """Returns the first offset of a range that no batch of a log has, and no damage explains; None without one.

    None, too, where the log may leave out offsets, or its batches can't be read.
    """
    next_offset, end_offset = max(damaged.start_offset, log.log_start_offset), damaged.end_offset
    if next_offset < log.gapless_from:
        return None
    for segment in log.segments:
        here = [(one.start_offset, one.end_offset) for one in segment.damage]
        try:
            here.extend((header.base_offset, header.next_offset) for _, header in segment.headers(0))
        except RecordError:
            return None
        for first, behind in sorted(here):
            next_offset = behind if first <= next_offset < behind else next_offset
    return next_offset if next_offset < min(end_offset, log.log_end_offset) else None
