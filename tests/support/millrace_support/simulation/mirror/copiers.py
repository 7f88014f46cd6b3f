"""Instances of a mirror that copies: the real decisions (`mirror.copy`), carried out over the simulated network.

The instances are members of one group at the target, which gives each partition to one of them. One that has slept for
longer than its session takes itself for the owner until it hears of another generation. A transaction has the batches,
the runs of the offset map and the progress, as in `mirror.transaction`, with whose outcomes the partitions are told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from itertools import count

from millrace.client.damaged_batches import MissingOffsetsError
from millrace.client.fetched import IsolationLevel
from millrace.client.simple_consumer import EpochEnd
from millrace.errors import AnswerLostError, ClientError, MillraceError
from millrace.records.batch import NO_LEADER_EPOCH, NO_OFFSET
from millrace.records.intervals import Interval
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import TopicPartition
from millrace_pipelines.mirror.copy import Copy, CopyLook, Ids, Phase, Portion, Progress
from millrace_pipelines.mirror.offset_map import MappedRuns, Run
from millrace_pipelines.mirror.offset_map_topic import map_records
from millrace_pipelines.mirror.settings import Accept
from millrace_pipelines.mirror.stops import Mirrored
from millrace_pipelines.mirror.transaction import Outcome
from millrace_support.simulation.mirror.instances import Instance
from millrace_support.simulation.mirror.settings import MAP_TOPIC, MIRROR_NAME, SOURCE_IDS
from millrace_support.simulation.mirror.target_clients import FencedError, TargetClient

MAP = TopicPartition(MAP_TOPIC, 0)
HEARTBEAT_S, PAUSE_S, FAILED_S = 0.5, (0.05, 0.4), (0.1, 0.8)
MOST_FETCHES = 3
READS_COMMITTED = IsolationLevel.READ_COMMITTED


class CopyingInstance(Instance):
    """One instance that copies."""

    _client: TargetClient
    _name: str

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._starts = count(1)
        self._copies: dict[TopicPartition, Copy] = {}
        self._must_join = True
        self._divided: list[TopicPartition] = []
        self._told: list[Copy] = []

    def has_stopped(self, key: TopicPartition) -> bool:
        """Returns whether this instance has the partition, and mirrors it no more."""
        return self.is_running and key in self._copies and self._copies[key].phase is Phase.STOPPED

    async def _live(self) -> None:
        self._name = f"mirror-{self.machine}-{next(self._starts)}"
        self._client = TargetClient(self._world.target, self.machine, self._name, self._name)
        self._copies, self._must_join, self._divided = {}, True, []
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell_alive())
            tasks.create_task(self._go_round())

    def kill(self) -> None:
        """Ends the process without a word."""
        if self.is_running:
            self._client.close()
            self.left_ids.append(self._name)
        super().kill()

    async def _tell_alive(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if not self._must_join:
                with suppress(MillraceError):
                    try:
                        await self._client.heartbeat()
                    except FencedError:
                        self._must_join = True

    async def _go_round(self) -> None:
        while True:
            pause_s = PAUSE_S
            try:
                if self._must_join or self._divided != self._world.mirrored():
                    await self._join()
                await self._look()
                if not await self._copy():
                    pause_s = FAILED_S
            except MillraceError:
                pause_s = FAILED_S
            await asyncio.sleep(self._world.chance.uniform(*pause_s))

    async def _join(self) -> None:
        """Joins the group once more; all partitions are dropped, and their progress is read again."""
        self._copies = {}
        accepted = frozenset({Accept.LOST_OFFSETS}) if self._world.settings.accepts_loss else frozenset()
        divided = list(self._world.mirrored())
        owned = await self._client.join(divided)
        self._must_join, self._divided = False, divided
        for key in owned:
            ids = Ids(str(SOURCE_IDS[key.topic]), str(self._world.target.topic_ids[key.topic]))
            self._copies[key] = Copy(Mirrored(key.topic, key.topic, key.partition), self._check_gap, ids, accepted)
        self._world.note(f"instance {self.machine} has {list(map(str, owned))} in generation {self._client.generation}")

    async def _look(self) -> None:
        for key, copy in self._copies.items():
            if copy.wants_look:
                with suppress(MillraceError):
                    copy.looked(await self._looked(key))
            self._tell_stop(key, copy)

    async def _looked(self, key: TopicPartition) -> CopyLook:
        source, target = await self._source.ends(key), await self._target.ends(key)
        progress = Progress.of(await self._client.progress(key))
        epoch_end = None
        if progress is not None and progress.leader_epoch != NO_LEADER_EPOCH:
            epoch_end = EpochEnd(*await self._source.epoch_end(key, progress.leader_epoch))
        topic_id = self._topic_id(key.topic)
        told = None if topic_id is None else str(topic_id)
        return CopyLook(progress, source.start, target.end, told, epoch_end, source.end)

    async def _copy(self) -> bool:
        """Copies what there is within a transaction; returns whether that was committed, if there is anything."""
        first = {key: copy.first_progress for key, copy in self._copies.items()}
        portions = {key: [Portion((), progress)] for key, progress in first.items() if progress is not None}
        for key, copy in self._copies.items():
            if fetched := await self._fetched(key, copy):
                portions[key] = fetched
            self._tell_stop(key, copy)
        if not portions:
            return True
        outcome = await self._transaction(portions)
        for key, sent in portions.items():
            self._tell(self._copies[key], sent[-1].progress, outcome)
        if outcome is Outcome.FENCED:
            self._must_join = True
        return outcome is Outcome.COMMITTED

    async def _fetched(self, key: TopicPartition, copy: Copy) -> list[Portion]:
        """Returns what a few answers of the source bring."""
        found: list[Portion] = []
        for _ in range(self._world.chance.randint(1, MOST_FETCHES)):
            if not copy.wants_fetch:
                break
            portion = copy.fetched(await self._source.fetch(key, copy.next_offset, READS_COMMITTED))
            if portion is None:
                break
            found.append(portion)
        return found

    @staticmethod
    def _tell(copy: Copy, progress: Progress, outcome: Outcome) -> None:
        if outcome is Outcome.COMMITTED:
            copy.was_committed(progress)
        elif outcome is Outcome.UNKNOWN:
            copy.is_unknown()
        else:
            copy.was_rolled_back()

    def _tell_stop(self, key: TopicPartition, copy: Copy) -> None:
        if copy.stop is not None and all(copy is not one for one in self._told):
            self._told.append(copy)
            self._world.stopped(self, key, copy.stop)

    async def _transaction(self, portions: Mapping[TopicPartition, list[Portion]]) -> Outcome:
        """Plays one transaction, and returns what became of it."""
        client = self._client
        try:
            await client.begin()
        except MillraceError:
            client.forget_producer()
            return Outcome.ABORTED
        try:
            await self._send(portions)
            await client.send_offsets({key: sent[-1].progress.to_commit for key, sent in portions.items()})
        except MillraceError as error:
            await self._abort()
            return Outcome.FENCED if isinstance(error, FencedError) else Outcome.ABORTED
        try:
            await client.end(is_commit=True)
            if self._world.mishaps.loses_answer():
                raise AnswerLostError("no answer to the end of a transaction")
        except MillraceError:
            client.forget_producer()
            return Outcome.UNKNOWN
        return Outcome.COMMITTED

    async def _abort(self) -> None:
        try:
            await self._client.end(is_commit=False)
        except MillraceError:
            self._client.forget_producer()

    async def _send(self, portions: Mapping[TopicPartition, list[Portion]]) -> None:
        client = self._client
        maps: list[NewRecord] = []
        for key, sent in portions.items():
            runs: list[Run] = []
            for part in (part for portion in sent for part in portion.parts):
                if not runs:
                    await client.add_partition(key)
                base = await client.produce(key, part.batch)
                if base == NO_OFFSET:
                    raise ClientError("the target does not say where it has put a batch that it got twice")
                runs += [Run(run.source_offset, base + run.index, run.count) for run in part.runs]
            if runs:
                mapped = MappedRuns(sent[-1].progress.next_offset, runs)
                maps += [
                    NewRecord(record.value, record.key)
                    for record in map_records(MIRROR_NAME, key.topic, key.partition, mapped)
                ]
        if maps:
            await self._send_maps(maps)

    async def _send_maps(self, maps: list[NewRecord]) -> None:
        await self._client.add_partition(MAP)
        await self._client.produce(MAP, encode_batch(maps))

    def _check_gap(self, what: Mirrored, gap: Interval) -> None:
        if "cleanup.policy" not in self._world.source.configs[what.topic]:
            raise MissingOffsetsError(f"offsets among {gap} are missing")
