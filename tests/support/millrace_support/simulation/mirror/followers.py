"""Instances of a mirror that follows: the real decisions (`mirror.follow`), carried out over the simulated network.

Every instance has tasks for the partitions that it believes to be its own. There may be two that believe so, which
nothing but the target's comparison of log ends keeps apart. A killed instance forgets all, as the real one does.
"""

from __future__ import annotations

import asyncio

from millrace.client.damaged_batches import MissingOffsetsError
from millrace.client.fetched import FetchedData, IsolationLevel
from millrace.errors import MillraceError, OffsetOutOfRangeError
from millrace.records.intervals import Interval
from millrace_broker.storage import TopicPartition
from millrace_pipelines.mirror.follow import Follow, Look, Phase
from millrace_pipelines.mirror.settings import Accept
from millrace_pipelines.mirror.stops import Mirrored
from millrace_support.simulation.mirror.cluster import SimulatedCluster
from millrace_support.simulation.mirror.doors import Door
from millrace_support.simulation.mirror.instances import Instance
from millrace_support.simulation.mirror.settings import SOURCE_IDS

GROWTH_S = 0.5
IDLE_S, FAILED_S = (0.01, 0.3), (0.05, 0.8)
READS_ALL = IsolationLevel.READ_UNCOMMITTED


class FollowingInstance(Instance):
    """One instance that follows."""

    async def _live(self) -> None:
        known: set[TopicPartition] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                for key in [one for one in self._world.mirrored() if one not in known]:
                    known.add(key)
                    tasks.create_task(self._follow(key))
                await asyncio.sleep(GROWTH_S)

    async def _follow(self, key: TopicPartition) -> None:
        chance = self._world.chance
        accepted = frozenset({Accept.LOST_OFFSETS}) if self._world.settings.accepts_loss else frozenset()
        follow = Follow(Mirrored(key.topic, key.topic, key.partition), self._check_gap, accepted)
        while True:
            has_failed = await self._step(follow, key)
            if follow.phase is Phase.STOPPED:
                break
            is_busy = follow.phase is Phase.RUN and not has_failed
            await asyncio.sleep(chance.uniform(*(IDLE_S if is_busy else FAILED_S)))
        assert follow.stop is not None
        self._world.stopped(self, key, follow.stop)

    async def _step(self, follow: Follow, key: TopicPartition) -> bool:
        """Does what a partition wants; returns whether that has failed."""
        if follow.wants_look:
            try:
                follow.looked(await self._look(key))
            except MillraceError as error:
                follow.failed(error)
        else:
            await asyncio.gather(self._fetch(follow, key), self._append(follow, key))
        return follow.trouble is not None

    async def _look(self, key: TopicPartition) -> Look:
        source, target = await self._source.ends(key), await self._target.ends(key)
        is_recreated = self._topic_id(key.topic) not in (None, SOURCE_IDS[key.topic])
        look = Look(target.start, target.end, source.start, is_recreated=is_recreated)
        if look.target_start == look.target_end:
            return look
        ours = await self._target.fetch(key, look.at, READS_ALL, wait_ms=0)
        if isinstance(ours, MillraceError):
            raise ours
        if look.at < look.source_start:
            return look._replace(ours=ours)
        theirs = await self._source.fetch(key, look.at, READS_ALL, wait_ms=0)
        if isinstance(theirs, FetchedData) and not theirs.records:
            beyond = await self._source.fetch(key, look.target_end, READS_ALL, wait_ms=0)
            theirs = beyond if isinstance(beyond, OffsetOutOfRangeError) else theirs
        if isinstance(theirs, MillraceError) and not isinstance(theirs, OffsetOutOfRangeError):
            raise theirs
        if isinstance(theirs, MillraceError) and (await self._source.ends(key)).start > look.at:
            return look  # without records: the source has deleted that offset meanwhile
        found = None if isinstance(theirs, MillraceError) else theirs
        return look._replace(ours=ours, theirs=found, is_compacted=self._is_compacted(key.topic))

    async def _fetch(self, follow: Follow, key: TopicPartition) -> None:
        if follow.wants_fetch:
            answer: FetchedData | MillraceError = await self._source.fetch(key, follow.next_offset, READS_ALL)
            follow.fetched(answer)

    async def _append(self, follow: Follow, key: TopicPartition) -> None:
        piece = follow.piece
        if piece is None:
            return
        told = await self._target.append(key, piece.end_offset, bytes(piece.records), piece.log_start_offset)
        if follow.piece is piece:
            follow.appended(told.end_offset, told.error)

    def _check_gap(self, what: Mirrored, gap: Interval) -> None:
        if not self._is_compacted(what.topic):
            raise MissingOffsetsError(f"offsets among {gap} are missing")

    def _is_compacted(self, topic: str) -> bool:
        return "cleanup.policy" in self._world.source.configs[topic]


async def end_mirroring(target: SimulatedCluster, machine: int, key: TopicPartition) -> int:
    """Ends the mirroring into a partition as the command does, asked again until it is answered."""
    door = Door(target, machine, "switch-over")
    try:
        while True:
            told = await door.end_mirroring(key)
            if told.error is None:
                return told.end_offset
            await asyncio.sleep(target.chance.uniform(*FAILED_S))
    finally:
        door.close()
