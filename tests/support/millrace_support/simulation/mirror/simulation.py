"""A mirror between two small clusters under random faults: `play(seed)` returns its history and what was wrong.

A seed draws two clusters of one to three brokers, topics, writers, faults, and whether the target follows or records
are copied (`settings`). Two instances of the mirror have all partitions, so that each may take the other for ended. For
a while there are faults in both clusters and of the instances; then all heals, and the mirror has to come to the ends
of the source. The decisions are those of `millrace_pipelines.mirror`; judges share nothing with it.

    PYTHONPATH=tests/support .venv/bin/python -m millrace_support.simulation.mirror.simulation 4711 [info]

prints the history of a seed (docs/simulation.md).
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from random import Random
from typing import Any, cast

from millrace.errors import MillraceError
from millrace.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from millrace_broker.storage import TopicPartition
from millrace_pipelines.mirror.stops import Stop
from millrace_support.simulation.light_processes import light_processes
from millrace_support.simulation.mirror.cluster import SimulatedCluster
from millrace_support.simulation.mirror.copiers import CopyingInstance
from millrace_support.simulation.mirror.copy_judge import CopyJudge
from millrace_support.simulation.mirror.faults import play_faults
from millrace_support.simulation.mirror.follow_judge import FollowJudge
from millrace_support.simulation.mirror.followers import FollowingInstance, end_mirroring
from millrace_support.simulation.mirror.instances import Instance, MirrorWorld
from millrace_support.simulation.mirror.mishaps import Mishaps
from millrace_support.simulation.mirror.settings import (
    FIRST_SOURCE_BROKER,
    FIRST_TARGET_BROKER,
    INTERNAL_IDS,
    MAP_TOPIC,
    MIRROR_NAME,
    SOURCE_IDS,
    TARGET_IDS,
    MirrorSettings,
    Upheaval,
    placed,
)
from millrace_support.simulation.mirror.target_clients import TargetClient
from millrace_support.simulation.mirror.upheavals import play_upheaval, strike
from millrace_support.simulation.mirror.writers import PRODUCER_IDS, Writer, Written
from millrace_support.simulation.network import Network
from millrace_support.simulation.simulated_broker import LONGEST_SHUTDOWN_S
from millrace_support.simulation.simulated_groups import decided_member_ids
from millrace_support.simulation.simulated_operator import SimulatedOperator
from millrace_support.simulation.simulation import Outcome, end_tasks, logged
from millrace_support.simulation.virtual_time import VirtualClock, VirtualTimeLoop
from millrace_support.simulation.workloads.drawn import TOPIC
from millrace_support.simulation.workloads.transaction_judge import TransactionJudge
from millrace_support.simulation.workloads.transactional_producers import TransactionalProducer

FAULTS_S, STARTS_S = 7.0, 1.0
LOOK_S = 0.25
DONE_WITHIN_S = 90.0
SWITCH_AFTER_S = (2.0, 5.0)
GROW_AFTER_S = (0.5, 4.0)
INSTANCES = (500, 501)
SWITCHER, ASKER, ENDER = 510, 511, 512
SOURCE_WRITERS, TARGET_WRITERS = 100, 200
TRANSACTORS = ((300, "one"), (301, "other"))
TARGET_TRANSACTORS = ((400, "one"), (401, "other"))


class MirrorSimulation:
    """Both clusters, their clients, the mirror and the faults of one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(f"mirror {seed}")  # noqa: S311  it decides faults, no secrets
        self.loop = VirtualTimeLoop(self.chance)
        self.clock = VirtualClock(self.loop)
        self.settings = MirrorSettings.drawn(self.chance, seed)
        self.mishaps = Mishaps(seed, self.settings.upheaval)
        self.anomalies: list[str] = []
        self.history: list[str] = []
        self.network = Network(self.loop, self.chance, slowest_s=0.02)
        self.source = self._cluster("source", FIRST_SOURCE_BROKER)
        self.target = self._cluster("target", FIRST_TARGET_BROKER)
        if self.settings.is_followed:
            for topic in self.settings.mirrored_topics:
                self.target.configs[topic] |= {"mirror.source": MIRROR_NAME}
        judge = FollowJudge if self.settings.is_followed else CopyJudge
        self.judge: FollowJudge | CopyJudge = judge(self.source, self.target, self.settings, self.mishaps)
        self.written = {cluster.name: Written() for cluster in (self.source, self.target)}
        kind = FollowingInstance if self.settings.is_followed else CopyingInstance
        self.instances: list[Instance] = [kind(self._mirror_world(), one) for one in INSTANCES]
        self._asker = TargetClient(self.target, ASKER, "asker", "asker")
        self._is_over = False
        self._numbers = count(1)
        self._writing: list[asyncio.Task[None]] = []
        self._transactors: list[tuple[SimulatedCluster, TransactionalProducer]] = []
        self._target_transactions = TransactionJudge(
            self.target.client_world(self._numbers, lambda: True).anomaly_of(
                TopicPartition(TRANSACTION_TOPIC, 0), TopicPartition(OFFSETS_TOPIC, 0)
            ),
            self.target.promises.is_void,
        )

    def _cluster(self, name: str, first_broker: int) -> SimulatedCluster:
        settings = self.settings.source if name == "source" else self.settings.target
        ids = SOURCE_IDS if name == "source" else TARGET_IDS
        wanted = {topic: ids[topic] for topic in self.settings.mirrored_topics}
        if self.settings.transactions or not self.settings.is_followed:
            wanted |= {topic: INTERNAL_IDS[topic] for topic in (OFFSETS_TOPIC, TRANSACTION_TOPIC)}
        if not self.settings.is_followed and name == "target":
            wanted |= {MAP_TOPIC: INTERNAL_IDS[MAP_TOPIC]}
        return SimulatedCluster(
            self, name, settings, placed(wanted, settings, first_broker, self.settings.source.partitions)
        )

    def _mirror_world(self) -> MirrorWorld:
        return MirrorWorld(
            self.loop, self.chance, self.settings, self.source, self.target,
            self.mirrored, self._stopped, self.note, self.mishaps, self.source.judge.anomaly,
        )  # fmt: skip

    def mirrored(self) -> list[TopicPartition]:
        """Returns the partitions that both clusters have."""
        return [key for key in self.source.replicas if key.topic in SOURCE_IDS and key in self.target.replicas]

    def note(self, text: str) -> None:
        """Adds a line to the history."""
        self.history.append(f"{self.loop.time():8.3f}  {text}")

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs a task, whose errors are anomalies."""
        task = self.loop.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.source.judge.anomaly(f"a task fails: {task.exception()!r}")

    def _stopped(self, instance: Instance, key: TopicPartition, stop: Stop) -> None:
        self.note(f"instance {instance.machine} stops {key}: {stop.reason}")
        self.judge.stopped(key, stop.reason)

    def unexpected(self, _: object, context: dict[str, Any]) -> None:
        """Makes an anomaly of an error that nobody has taken."""
        if "exception" in context:
            self.source.judge.anomaly(f"{context['message']}: {context['exception']!r}")

    def run(self) -> None:
        """Plays the whole history."""
        self.loop.set_exception_handler(self.unexpected)
        asyncio.set_event_loop(None)
        try:
            self.loop.run_until_complete(self._play())
        finally:
            self.loop.run_until_complete(end_tasks())
            self.loop.close()

    async def _play(self) -> None:
        for cluster in (self.source, self.target):
            cluster.start()
        await asyncio.sleep(STARTS_S)
        self.note(f"{self.settings}")
        self._begin_writing(self.source, SOURCE_WRITERS)
        self._begin_transactions(self.source, TRANSACTORS, TransactionJudge(lambda _: None, lambda _: True))
        if self.settings.is_followed:
            self._begin_transactions(self.target, TARGET_TRANSACTORS, self._target_transactions)
        for instance in self.instances:
            instance.start()
        self.spawn(self._look())
        if self.settings.grows and not self.settings.switches_over:
            self.spawn(self._grow())
        switched = self.spawn(self._switch_over()) if self.settings.switches_over else None
        await play_faults(self, FAULTS_S)
        self.note("all heals")
        await self._heal()
        if switched is not None:
            await switched
        await play_upheaval(self)
        self._is_over = True
        await asyncio.gather(*self._writing, return_exceptions=True)
        await self._end_what_is_open()
        self.note("nothing is written any more")
        if await self._is_done():
            self._check()

    def _begin_writing(self, cluster: SimulatedCluster, first: int) -> None:
        keys, is_over, written = partial(self._keys_of, cluster), lambda: self._is_over, self.written[cluster.name]
        writers = [
            Writer(cluster, first, keys, written, is_over),
            *(
                Writer(cluster, first + number, keys, written, is_over, producer_id=producer_id)
                for number, producer_id in enumerate(PRODUCER_IDS[: self.chance.randint(1, 2)], 1)
            ),
        ]
        self._writing += [self.spawn(one.live()) for one in writers]

    def _begin_transactions(
        self, cluster: SimulatedCluster, transactors: Iterable[tuple[int, str]], judge: TransactionJudge
    ) -> None:
        """Lets producers write in transactions; those of a target that follows are refused until a switch-over."""
        if self.settings.transactions:
            world = cluster.client_world(self._numbers, lambda: self._is_over)
            for machine, name in transactors:
                one = TransactionalProducer(world, machine, name, self._keys_of(cluster), judge)
                self._transactors.append((cluster, one))
                self._writing.append(self.spawn(one.live()))

    def _keys_of(self, cluster: SimulatedCluster) -> list[TopicPartition]:
        return [key for key in cluster.replicas if key.topic in SOURCE_IDS and key in self.source.replicas]

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.judge.look()

    async def _grow(self) -> None:
        await asyncio.sleep(self.chance.uniform(*GROW_AFTER_S))
        self.source.add_partition(TOPIC)
        await asyncio.sleep(self.chance.uniform(*GROW_AFTER_S))
        self.target.add_partition(TOPIC)

    async def _switch_over(self) -> None:
        """Ends the mirroring, as the command does, and lets others write to the target."""
        await asyncio.sleep(self.chance.uniform(*SWITCH_AFTER_S))
        self.note("switch-over")
        assert isinstance(self.judge, FollowJudge)
        for key in self.mirrored():
            self.judge.look()
            self.judge.ending(key)
            self.judge.ends[key] = await end_mirroring(self.target, SWITCHER, key)
            self.note(f"the mirroring into {key} has ended at offset {self.judge.ends[key]}")
            if self.settings.upheaval is Upheaval.STRUCK:
                self.spawn(strike(self, key))
        for topic in self.settings.mirrored_topics:
            self.target.configure(topic, mirror_source=None)
        self._begin_writing(self.target, TARGET_WRITERS)

    async def _heal(self) -> None:
        self.network.heal_all()
        await asyncio.sleep(LONGEST_SHUTDOWN_S + 0.5)
        for cluster in (self.source, self.target):
            cluster.heal()
            self.spawn(SimulatedOperator(cast("Any", cluster)).live())
        for instance in self.instances:
            instance.resume()
            instance.start()

    async def _end_what_is_open(self) -> None:
        """Has a last instance of each transactional id end what is open in a cluster of which a clock was ahead.

        A transaction that began in its coordinator's future has no timeout for hours, as in Apache Kafka. An instance
        of the mirror that runs ends its own.
        """
        for cluster, transactor in self._transactors:
            if cluster.latest.ahead_ms > 0:
                await transactor.end_what_is_open()
        for name in (name for one in self.instances for name in one.left_ids if self.target.latest.ahead_ms > 0):
            last = TargetClient(self.target, ENDER, name, name)
            with suppress(MillraceError):  # a transaction that stays open is an anomaly of its own
                await last.begin()
            last.close()

    async def _is_done(self) -> bool:
        deadline = self.loop.time() + DONE_WITHIN_S
        while self.loop.time() < deadline:
            await asyncio.sleep(0.5)
            if self.source.is_whole() and self.target.is_whole():
                waiting = [str(key) for key in self.mirrored() if not await self._is_mirrored(key)]
                if not waiting:
                    self.note("all is mirrored")
                    return True
        what = [f"{key}: {self.end(self.source, key)}, {self.end(self.target, key)}" for key in self.mirrored()]
        self.source.judge.anomaly(f"not all is mirrored {DONE_WITHIN_S:.0f} s after the faults have ended: {what}")
        return False

    @staticmethod
    def end(cluster: SimulatedCluster, key: TopicPartition) -> int | None:
        """Returns where the log of a partition's leader ends; None where there is none."""
        log = cluster.log_of(key)
        return None if log is None else int(log.log_end_offset)

    async def _is_mirrored(self, key: TopicPartition) -> bool:
        """Returns whether a partition is at the source's end for it, or nobody mirrors it any more, and says why."""
        if isinstance(self.judge, FollowJudge):
            return self.judge.is_done(key, len(self.instances))
        if self.judge.is_void(key) or any(one.has_stopped(key) for one in self.instances):
            return True
        if key in self.judge.histories:
            return False
        try:
            progress = await self._asker.progress(key)
        except MillraceError:
            return False
        return progress.offset == self.judge.end(key)

    def _check(self) -> None:
        self.judge.look()
        for cluster in (self.source, self.target):
            cluster.compare_replicas()
            self._check_written(cluster)
        for key in self.mirrored():
            self.judge.check(key)
        self._target_transactions.end(
            history for key, history in self.target.judge.histories.items() if not key.topic.startswith("__")
        )

    def _check_written(self, cluster: SimulatedCluster) -> None:
        """Looks whether what was acknowledged is there once, and nobody was refused."""
        written = self.written[cluster.name]
        is_as_it_was = not (cluster is self.source and self.judge.histories)
        if is_as_it_was and not any(map(cluster.promises.is_void, cluster.replicas)):
            for refusal in written.refusals:
                cluster.judge.anomaly(f"{cluster.name}: {refusal}")
        for key, acknowledged in written.acknowledged.items():
            is_another = cluster is self.source and key in self.judge.histories
            if is_another or cluster.promises.is_void(key) or "cleanup.policy" in cluster.configs[key.topic]:
                continue
            found = [record.value for record in cluster.judge.histories[key].records.values()]
            there = set(found)
            if lost := acknowledged - there:
                cluster.judge.anomaly(f"{cluster.name}: {key}: what was acknowledged is lost: {sorted(lost)}")
            if twice := [one for one in written.sent[key] if found.count(one) > 1]:
                cluster.judge.anomaly(f"{cluster.name}: {key}: what was written once is there twice: {twice}")


def play(seed: int, level: int | None = None) -> Outcome:
    """Plays the history of a seed; with a level of `logging`, what is logged from that level on is in the history."""
    simulation = MirrorSimulation(seed)
    with ExitStack() as around:
        around.enter_context(logged(simulation.source.judge.anomaly, simulation.note, level))
        around.enter_context(light_processes())
        around.enter_context(decided_member_ids(simulation.chance))
        simulation.run()
    acknowledged = sum(len(one) for written in simulation.written.values() for one in written.acknowledged.values())
    return Outcome(seed, simulation.anomalies, simulation.history, acknowledged)


if __name__ == "__main__":
    shown = play(int(sys.argv[1]), logging.getLevelNamesMapping()[sys.argv[2].upper()] if sys.argv[2:] else None)
    print(*shown.history, *shown.anomalies, sep="\n")  # noqa: T201
