"""A cluster of five brokers under random faults: `play(seed)` returns its history and what was wrong.

Each seed draws its own settings and its own mix of faults (`swarm/`), and which clients it has (`workloads/`). Only
replicas in sync are elected. Producers write with acks=all and acks=1, without retries and with distinct values. For a
while there are faults (`faults/`); then everything heals, and the cluster has to come back into sync. Meanwhile members
of groups commit offsets, leave and die; in the end their groups have to settle.

In half of the seeds disks and power are lost at any time, and so may be records of which nothing is promised any more
(`promises`). In the others nothing may be lost: the power goes only where every write is flushed, and a disk is wiped
only while all else is well, and nothing else fails before its broker is out of the in-sync replicas.

    PYTHONPATH=tests/support .venv/bin/python -m millrace_support.simulation.simulation 4711 [info]

prints the history of a seed, and with a level also what is logged (docs/simulation.md).
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from random import Random
from typing import Any, NamedTuple

from millrace.errors import MillraceError
from millrace.zk import codec, paths
from millrace_broker.storage import TopicPartition
from millrace_support.model_zookeeper import ModelZooKeeper
from millrace_support.simulation.assignments import Assignments, TopicIds
from millrace_support.simulation.faults.breaker import Breaker
from millrace_support.simulation.faults.playing import kinds_of, play_faults
from millrace_support.simulation.group_members import ClassicMember, ConsumerMember, Kind
from millrace_support.simulation.judge import Judge
from millrace_support.simulation.leaderless import Leaderless
from millrace_support.simulation.light_processes import light_processes
from millrace_support.simulation.message_bytes import checked_bytes
from millrace_support.simulation.network import Network
from millrace_support.simulation.promises import Promises
from millrace_support.simulation.releases.former_reigns import FormerReigns
from millrace_support.simulation.releases.releases import change_release, is_former, light_former_processes
from millrace_support.simulation.simulated_broker import LONGEST_SHUTDOWN_S, SimulatedBroker, World
from millrace_support.simulation.simulated_groups import Consumed, GroupWorld, SimulatedGroup, decided_member_ids
from millrace_support.simulation.simulated_operator import SimulatedOperator
from millrace_support.simulation.swarm.mix import Mix
from millrace_support.simulation.swarm.settings import BROKERS, Settings, former_brokers
from millrace_support.simulation.virtual_time import SetClock, VirtualClock, VirtualTimeLoop
from millrace_support.simulation.workloads.client_world import ClientWorld
from millrace_support.simulation.workloads.clients import Clients
from millrace_support.simulation.workloads.drawn import (
    OFFSETS,
    RENEWED_TOPIC,
    TOPIC,
    TOPIC_ID,
    TRANSACTIONS,
    Workloads,
    configs_of,
    topics_of,
)

KINDS: tuple[tuple[Kind, ...], ...] = ((ClassicMember,), (ConsumerMember,), (ClassicMember, ConsumerMember))
FIRST_MEMBER, MEMBERS = 200, 3
COMPARED = 4  # of so many seeds, one compares what arrives with what was sent, which takes an eighth of its time
FAULTS_S = 20.0
WRITTEN_ON_S = 2.5  # how long producers go on once everything works again
HEALED_WITHIN_S = 120.0
HEALED_WITHIN_DELAYS = 120  # and so many times the network's longest delay, with which in-sync replicas come and go


class Outcome(NamedTuple):
    """What a simulation has shown; `acknowledged` counts the writes that were answered with success."""

    seed: int
    anomalies: list[str]
    history: list[str]
    acknowledged: int


class Simulation:
    """The cluster, the clients and the faults of one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)  # noqa: S311  it decides faults, no secrets
        self.loop = VirtualTimeLoop(self.chance)
        self.clock = VirtualClock(self.loop)
        self.workloads = Workloads.drawn(self.chance)
        self.former = former_brokers(seed)
        has_two_releases = self.former is not None
        self.settings = Settings.drawn(self.chance, has_two_releases=has_two_releases)
        self.mix = Mix.drawn(self.chance, kinds_of(self.settings, has_two_releases=has_two_releases))
        self.topics = self.settings.placed(topics_of(self.workloads), self.chance)
        self.zookeeper = ModelZooKeeper()
        self._create_topics()
        self.replicas = Assignments(self.zookeeper)
        self.topic_ids = TopicIds(self.zookeeper, self.replicas)
        self.latest = SetClock(self.loop)
        self.promises = Promises(self.zookeeper, self.replicas, self.settings.min_isr)
        self.judge = Judge(self.replicas, self.latest, self.workloads, self.settings, self.promises)
        self.history: list[str] = []
        self.network = Network(self.loop, self.chance, slowest_s=self.settings.slowest_s)
        brokers: dict[int, SimulatedBroker] = {}
        self.world = World(
            self.loop, self.chance, self.network, self.zookeeper, self.settings,
            configs_of(self.workloads), brokers, self._look_at, self.judge.anomaly,
        )  # fmt: skip
        for broker in BROKERS:
            brokers[broker] = SimulatedBroker(self.world, broker)
            if self.former is not None and broker in self.former:
                change_release(brokers[broker])
        self.brokers = brokers
        self.reigns = None if self.former is None else FormerReigns(self.zookeeper, brokers, self.loop)
        self.excused_topics: set[str] = set()
        self.groups = self._new_groups()
        self._is_over = False
        self._leaderless = Leaderless(self)
        self.clients = Clients(self._client_world(), self.workloads)

    def _create_topics(self) -> None:
        for path in paths.PERSISTENT:
            self.zookeeper.put(path, b"")
        for topic, assignment in self.topics.items():
            self.zookeeper.put(paths.topic(topic), codec.encode_topic(assignment))

    def run(self) -> None:
        """Plays the whole history."""
        self.loop.set_exception_handler(self._unexpected)
        asyncio.set_event_loop(None)
        try:
            self.loop.run_until_complete(self._play())
        finally:
            self.loop.run_until_complete(end_tasks())
            self.loop.close()

    async def _play(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        await asyncio.sleep(2)
        for text in (f"workloads: {self.workloads}", self.settings, self.mix):
            self.note(f"{text}")
        if self.former is not None:
            self.note(f"brokers {sorted(self.former)} begin with the former release")
        self.clients.begin()
        for group in self.groups:
            group.begin()
        await play_faults(Breaker(self, self.mix.longest_s), self.mix, FAULTS_S)
        self.note("all heals")
        await self._heal()
        self._operator = self.loop.create_task(SimulatedOperator(self).live())
        self._is_over = True
        await self.clients.end(has_set_clocks="set_clock" in self.mix.weights)
        if not await self._settles():
            return
        for group in self.groups:
            group.end()
        if await self._is_at_rest():
            self._look_once_more()
            self.clients.check_all()
            for key, replicas in self._demanded():
                self.judge.compare(key, {one: self.brokers[one].logs.logs()[key] for one in replicas})
            self._look_for_deleted_logs()

    def _new_groups(self) -> list[SimulatedGroup]:
        """Returns a group of members that use the classic protocol, one of those that use the other one, or both."""
        world = GroupWorld(
            self.loop, self.chance, self.network, tuple(self.brokers), self.note, self.judge.anomaly,
            partial(self.promises.is_void, OFFSETS),
        )  # fmt: skip
        consumed = Consumed(TOPIC, TOPIC_ID, [key.partition for key in self.replicas if key.topic == TOPIC])
        state = partial(self.state_of, OFFSETS)
        return [
            SimulatedGroup(world, kind, consumed, state, range(first, first + MEMBERS))
            for kind, first in zip(self.chance.choice(KINDS), count(FIRST_MEMBER, MEMBERS), strict=False)
        ]

    def _client_world(self) -> ClientWorld:
        return ClientWorld(
            self.loop, self.clock, self.chance, self.network, self.judge, self.brokers, self.replicas,
            self.topic_ids, self.state_of, count(1),
            self.note, lambda: self._is_over,
        )  # fmt: skip

    def note(self, text: str) -> None:
        """Adds a line to the history."""
        self.history.append(f"{self.loop.time():8.3f}  {text}")

    def state_of(self, key: TopicPartition) -> codec.PartitionState | None:
        """Returns the state of a partition as ZooKeeper has it."""
        node = self.zookeeper.nodes.get(paths.partition_state(*key))
        return None if node is None else codec.decode_partition_state(node.data)

    def controller(self) -> SimulatedBroker | None:
        """Returns the controller as ZooKeeper names it; None where there is none."""
        node = self.zookeeper.nodes.get(paths.CONTROLLER)
        return None if node is None else self.brokers[codec.decode_controller(node.data)]

    def version_of(self, key: TopicPartition) -> int | None:
        """Returns the version of a partition's state in ZooKeeper, which each change raises."""
        node = self.zookeeper.nodes.get(paths.partition_state(*key))
        return None if node is None else node.version

    def _look_at(self, broker: SimulatedBroker) -> None:
        self._leaderless.look()
        for key, partition in broker.replicas.partitions.items():
            if partition.topic_id == self.topic_ids.get(key.topic):
                self.judge.look_at_leader(broker.id, broker.starts, key, partition)
        for key in self.judge.retention:
            if (log := broker.logs.logs().get(key)) is not None:
                self.judge.look_at_log(broker.id, broker.starts, key, log)

    def _look_once_more(self) -> None:
        """Looks at what brokers did without a request, and what retention leaves, as chance may have passed over it."""
        for broker in self.brokers.values():
            self._look_at(broker)
        for broker in self.brokers.values():
            for _ in broker.logs.retention():
                pass
            self._look_at(broker)

    def _look_for_deleted_logs(self) -> None:
        """Looks whether logs of deleted topics are left; those of moved replicas may be, where brokers were down.

        These may lack an id: a full disk can have kept it from being written. Only one topic is ever deleted, and of it
        the former release may leave a log without an id.
        """
        for broker in self.brokers.values():
            for key in broker.logs.logs():
                topic_id = broker.logs.topic_id(key)
                is_told = topic_id is not None or (key.topic == RENEWED_TOPIC and self.former is None)
                if is_told and key.topic not in self.excused_topics and topic_id != self.topic_ids.get(key.topic):
                    self.judge.anomaly(f"{key}: broker {broker.id} still has the log of a deleted topic")

    def _unexpected(self, _: object, context: dict[str, Any]) -> None:
        if "exception" in context:  # a pending task of a dead process has none
            self.judge.anomaly(f"{context['message']}: {context['exception']!r}")

    # The end.

    async def _heal(self) -> None:
        self.network.heal_all()
        await asyncio.sleep(LONGEST_SHUTDOWN_S + 0.5)
        for broker in self.brokers.values():
            broker.fs.capacity_bytes = None
            if self._stays_unsynced(broker) or self._stays_undeleted(broker):
                self.note(f"broker {broker.id} is killed, and starts again")
                broker.die()
            if not broker.is_running:
                broker.start()
            elif broker.is_paused:
                broker.resume()
            else:
                broker.reconnect(broker.session)
        await asyncio.sleep(WRITTEN_ON_S)

    def _stays_unsynced(self, broker: SimulatedBroker) -> bool:
        """Returns whether a broker may never sync what a full disk has left unsynced, as 0.1.0 until its next start."""
        return is_former(broker) and broker.is_running and self.settings.is_flushing and "fill" in self.mix.weights

    def _stays_undeleted(self, broker: SimulatedBroker) -> bool:
        """Returns whether a broker may keep a deleted topic's log: 0.1.0's controller asks again at registrations only.

        One that has lost ZooKeeper can't tell which topic has the name, and deletes no log.
        """
        controller, deleted = self.controller(), {*self.zookeeper.children(paths.DELETE_TOPICS)}
        is_asked_once = controller is not None and is_former(controller)
        return broker.is_running and is_asked_once and any(key.topic in deleted for key in broker.logs.logs())

    async def _is_over_in_time(self, what: str, holds: Callable[[], bool], found: Callable[[], object]) -> bool:
        """Waits until everything is as it should be, and returns whether it is in time."""
        within_s = HEALED_WITHIN_S + HEALED_WITHIN_DELAYS * self.settings.slowest_s
        deadline = self.loop.time() + within_s
        while self.loop.time() < deadline:
            if holds():
                self.note(what)
                return True
            await asyncio.sleep(1)
        self.judge.anomaly(f"not {what} {within_s:.0f} s after the faults have ended: {found()}")
        return False

    async def _settles(self) -> bool:
        """Waits until all groups have settled, then until all members have read their offsets again."""
        for what in ("settled", "settled again"):
            for group in self.groups:
                group.stay()
            if not await self._is_over_in_time(what, self._are_settled, lambda: ", ".join(map(str, self.groups))):
                return False
        return True

    def _are_settled(self) -> bool:
        return all(group.is_settled for group in self.groups)

    async def _is_at_rest(self) -> bool:
        """Waits until all replicas are sound and in sync, no transaction is open, and readers have read everything."""
        for broker in self.brokers.values():
            broker.healing.begin_last_round()
        return await self._is_over_in_time(
            "in sync again",
            lambda: self._are_topics_whole() and self._are_logs_sound() and self.clients.have_read_all(),
            lambda: [
                *map(self.state_of, self.replicas),
                *(broker.logs.damage() for broker in self.brokers.values()),
                *map(str, self.clients.readers),
            ],
        )

    def _are_logs_sound(self) -> bool:
        """Returns whether a round of each broker's scrubber has found nothing, and no damage is known or reported."""
        brokers = self.brokers.values()
        is_known = bool(self.zookeeper.children(paths.DAMAGE)) or any(one.logs.damaged() for one in brokers)
        return not is_known and all(one.healing.is_sound for one in brokers)

    def _are_topics_whole(self) -> bool:
        return (
            not self.replicas.are_changing
            and self.topic_ids.keys() == self.topics.keys()
            and all(self._is_whole(key) for key, _ in self._demanded())
        )

    def _demanded(self) -> list[tuple[TopicPartition, tuple[int, ...]]]:
        """Returns the partitions that must be whole in the end, with their replicas."""
        return [(key, replicas) for key, replicas in self.replicas.items() if key.topic not in self.excused_topics]

    def _is_whole(self, key: TopicPartition) -> bool:
        state = self.state_of(key)
        if state is None or state.leader < 0 or set(state.isr) != set(self.replicas[key]):
            return False
        leader = self.brokers[state.leader].replicas.partitions.get(key)
        if leader is None:
            return False
        may_stay_open = self.promises.is_void(key) or self.promises.is_void(TRANSACTIONS)  # a transaction without end
        stable = leader.high_watermark if may_stay_open else leader.last_stable_offset
        logs = [self.brokers[one].logs.logs().get(key) for one in self.replicas[key]]
        ends = {-1 if log is None else log.log_end_offset for log in logs}
        return ends == {leader.high_watermark} == {stable}


async def end_tasks() -> None:
    """Ends all tasks of the loop but this one."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Trace(logging.Handler):
    """Adds what brokers and controllers log to the history of a simulation."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(f"    {record.module}: {record.getMessage()}")


class _Unexpected(logging.Handler):
    """Finds an anomaly in each error that is logged as it was not expected, so that the process goes on."""

    def __init__(self, anomaly: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._anomaly = anomaly

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, MillraceError):
            self._anomaly(f"{record.module}: {record.getMessage()}: {error!r}")


@contextmanager
def logged(anomaly: Callable[[str], None], note: Callable[[str], None], level: int | None) -> Iterator[None]:
    """Lets unexpected errors be anomalies, and with a level notes what is logged from that level on."""
    root, level_before = logging.getLogger(), logging.getLogger().level
    handlers: list[logging.Handler] = [_Unexpected(anomaly)]
    if level is None:
        logging.disable(logging.WARNING)
    else:
        root.setLevel(level)
        handlers.append(_Trace(note))
    for handler in handlers:
        root.addHandler(handler)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        for handler in handlers:
            root.removeHandler(handler)
        root.setLevel(level_before)


def play(seed: int, level: int | None = None) -> Outcome:
    """Plays the history of a seed; with a level of `logging`, what is logged from that level on is in the history."""
    simulation = Simulation(seed)
    with ExitStack() as around:
        around.enter_context(logged(simulation.judge.anomaly, simulation.note, level))
        around.enter_context(light_processes())
        if seed % COMPARED == 0:
            around.enter_context(checked_bytes(simulation.judge.anomaly))
        around.enter_context(decided_member_ids(simulation.chance))
        if simulation.former is not None:
            around.enter_context(light_former_processes(simulation.chance))
        simulation.run()
    return Outcome(seed, simulation.judge.anomalies, simulation.history, simulation.clients.acknowledged)


if __name__ == "__main__":
    shown = play(int(sys.argv[1]), logging.getLevelNamesMapping()[sys.argv[2].upper()] if sys.argv[2:] else None)
    print(*shown.history, *shown.anomalies, sep="\n")  # noqa: T201
