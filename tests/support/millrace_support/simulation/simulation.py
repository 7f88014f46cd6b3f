"""A cluster of five brokers under random faults: `play(seed)` returns its history and what was wrong.

Two partitions of three replicas each, min.insync.replicas=2, elections only of replicas in sync. Producers write with
acks=all and acks=1, without retries and with distinct values. For a while brokers are killed, sleep, lose ZooKeeper,
each other, their disks' contents or their power, or are taken for ended though they live; then everything heals, and
the cluster has to come back into sync. Meanwhile members of groups commit offsets, leave and die; in the end their
groups have to settle.

The power goes only where every write is flushed: with an unflushed log, the last replica in sync may lose what it had
acknowledged, which ZooKeeper mode can't prevent (KIP-966). For the same reason a disk is wiped only while all else is
well, and nothing else fails before its broker is out of the in-sync replicas.

    PYTHONPATH=tests/support .venv/bin/python -m millrace_support.simulation.simulation 4711 [info]

prints the history of a seed, and with a level also what is logged (docs/simulation.md).
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from millrace.client.producer.link import encode_produce_head, encode_topics
from millrace.errors import ErrorCode, MillraceError
from millrace.internal_topics import OFFSETS_TOPIC
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.api import ApiKey
from millrace.wire.messages import PRODUCE
from millrace.zk import codec, paths
from millrace_broker.storage import TopicPartition
from millrace_support.model_zookeeper import ModelZooKeeper
from millrace_support.simulation.client_links import ClientLinks
from millrace_support.simulation.faults import Faults
from millrace_support.simulation.group_members import ClassicMember, ConsumerMember, Kind
from millrace_support.simulation.judge import Judge
from millrace_support.simulation.light_processes import light_processes
from millrace_support.simulation.network import Network
from millrace_support.simulation.simulated_broker import LONGEST_SHUTDOWN_S, SimulatedBroker, World
from millrace_support.simulation.simulated_groups import Consumed, GroupWorld, SimulatedGroup, decided_member_ids
from millrace_support.simulation.virtual_time import VirtualClock, VirtualTimeLoop

TOPIC, TOPIC_ID = "t", UUID(int=7)
TOPICS = {
    TOPIC: codec.TopicAssignment(topic_id=TOPIC_ID, replicas=((1, 2, 3), (3, 4, 5))),
    OFFSETS_TOPIC: codec.TopicAssignment(topic_id=UUID(int=8), replicas=((2, 3, 4),)),
}
REPLICAS = {
    TopicPartition(topic, index): replicas
    for topic, assignment in TOPICS.items()
    for index, replicas in enumerate(assignment.replicas)
}
PARTITIONS = tuple(REPLICAS)
COMMITTED_TO = TopicPartition(OFFSETS_TOPIC, 0)
WRITTEN_TO = tuple(key for key in REPLICAS if key.topic == TOPIC)
KINDS: tuple[tuple[Kind, ...], ...] = ((ClassicMember,), (ConsumerMember,), (ClassicMember, ConsumerMember))
FIRST_PRODUCER, FIRST_MEMBER, MEMBERS = 100, 200, 3
FAULTS_S = 20.0
WRITTEN_ON_S = 2.5  # how long producers go on once everything works again
HEALED_WITHIN_S = 60.0
PRODUCERS = 2
SLOWEST_S = (0.02, 0.3, 1.0)  # of a network; where it is slow, replicas are rarely the same
PRODUCE_VERSION = 8
PRODUCE_TIMEOUT_S, PRODUCE_WAIT_MS = 4.0, 3000
LOG = {
    "min.insync.replicas": "2", "log.segment.bytes": "2000", "log.index.interval.bytes": "500",
    "log.retention.ms": "-1",
}  # fmt: skip


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
        self.judge = Judge()
        self.history: list[str] = []
        self.zookeeper = ModelZooKeeper()
        self.network = Network(self.loop, self.chance, slowest_s=self.chance.choice(SLOWEST_S))
        self.is_flushing = self.chance.random() < 0.5
        brokers: dict[int, SimulatedBroker] = {}
        log_defaults = LOG | ({"log.flush.interval.messages": "1"} if self.is_flushing else {})
        self.world = World(
            self.loop, self.clock, self.chance, self.network, self.zookeeper, log_defaults, brokers,
            self._look_at, self.judge.anomaly,
        )  # fmt: skip
        for broker in range(1, 6):
            brokers[broker] = SimulatedBroker(self.world, broker)
        self.brokers = brokers
        self.groups = self._new_groups()
        self._is_over = False
        self._written = self._acknowledged = 0

    def run(self) -> None:
        """Plays the whole history."""
        self.loop.set_exception_handler(self._unexpected)
        asyncio.set_event_loop(None)
        try:
            self.loop.run_until_complete(self._play())
        finally:
            self.loop.run_until_complete(_end_tasks())
            self.loop.close()

    async def _play(self) -> None:
        for path in paths.PERSISTENT:
            self.zookeeper.put(path, b"")
        for topic, assignment in TOPICS.items():
            self.zookeeper.put(paths.topic(topic), codec.encode_topic(assignment))
        for broker in self.brokers.values():
            broker.start()
        await asyncio.sleep(2)
        clients = [self.loop.create_task(self._produce(FIRST_PRODUCER + number)) for number in range(PRODUCERS)]
        for group in self.groups:
            group.begin()
        await Faults(self, PARTITIONS).play(FAULTS_S)
        self.note("all heals")
        await self._heal()
        self._is_over = True
        await asyncio.gather(*clients)
        if not await self._settles():
            return
        for group in self.groups:
            group.end()
        if await self._is_in_sync():
            for key, replicas in REPLICAS.items():
                self.judge.compare(key, {one: self.brokers[one].logs.logs()[key] for one in replicas})

    def _new_groups(self) -> list[SimulatedGroup]:
        """Returns a group of members that use the classic protocol, one of those that use the other one, or both."""
        world = GroupWorld(self.loop, self.chance, self.network, tuple(self.brokers), self.note, self.judge.anomaly)
        consumed = Consumed(TOPIC, TOPIC_ID, [key.partition for key in WRITTEN_TO])
        state = partial(self.state_of, COMMITTED_TO)
        return [
            SimulatedGroup(world, kind, consumed, state, range(first, first + MEMBERS))
            for kind, first in zip(self.chance.choice(KINDS), count(FIRST_MEMBER, MEMBERS), strict=False)
        ]

    def note(self, text: str) -> None:
        """Adds a line to the history."""
        self.history.append(f"{self.loop.time():8.3f}  {text}")

    def state_of(self, key: TopicPartition) -> codec.PartitionState | None:
        """Returns the state of a partition as ZooKeeper has it."""
        node = self.zookeeper.nodes.get(paths.partition_state(*key))
        return None if node is None else codec.decode_partition_state(node.data)

    def version_of(self, key: TopicPartition) -> int | None:
        """Returns the version of a partition's state in ZooKeeper, which each change raises."""
        node = self.zookeeper.nodes.get(paths.partition_state(*key))
        return None if node is None else node.version

    def _look_at(self, broker: SimulatedBroker) -> None:
        for key, partition in broker.replicas.partitions.items():
            self.judge.look_at_leader(broker.id, broker.starts, key, partition)

    def _unexpected(self, _: object, context: dict[str, Any]) -> None:
        if "exception" in context:  # a pending task of a dead process has none
            self.judge.anomaly(f"{context['message']}: {context['exception']!r}")

    # Clients.

    async def _produce(self, machine: int) -> None:
        """Writes until the faults are over."""
        links = ClientLinks(self.network, machine, PRODUCE_TIMEOUT_S)
        while not self._is_over:
            key = self.chance.choice(WRITTEN_TO)
            state = self.state_of(key)
            if state is not None and state.leader >= 0:
                await self._write(links, key, state.leader)
            await asyncio.sleep(self.chance.choice((0.05, 0.5, 1.5)))

    async def _write(self, links: ClientLinks, key: TopicPartition, leader: int) -> None:
        self._written += 1
        value = self._written
        acks = self.chance.choice([-1, -1, -1, 1])
        records = [NewRecord(b"%d" % value)] * self.chance.randint(1, 3)
        batch = encode_batch(records)
        written = [(*key, batch)]
        message = encode_produce_head(acks, PRODUCE_WAIT_MS, written) + b"".join(encode_topics(written))
        try:
            link = await links.to(leader)
            body = await link.exchange(ApiKey.PRODUCE, PRODUCE_VERSION, message)
        except MillraceError:
            return
        (produced,) = PRODUCE.decode_response(PRODUCE_VERSION, body).responses[0].partition_responses
        answer = ErrorCode(produced.error_code).name
        offset = produced.base_offset
        self.note(f"value {value} to {key.partition} at {leader}, acks {acks}: {answer}, offset {offset}")
        if produced.error_code == ErrorCode.NONE and acks == -1:
            self._acknowledged += 1
            self.judge.acknowledges(key, offset, batch, [self.brokers[one].open_log(key) for one in REPLICAS[key]])

    # The end.

    async def _heal(self) -> None:
        self.network.heal_all()
        await asyncio.sleep(LONGEST_SHUTDOWN_S + 0.5)
        for broker in self.brokers.values():
            broker.fs.capacity_bytes = None
            if not broker.is_running:
                broker.start()
            elif broker.is_paused:
                broker.resume()
            else:
                broker.reconnect(broker.session)
        await asyncio.sleep(WRITTEN_ON_S)

    async def _is_over_in_time(self, what: str, holds: Callable[[], bool], found: Callable[[], object]) -> bool:
        """Waits until everything is as it should be, and returns whether it is in time."""
        deadline = self.loop.time() + HEALED_WITHIN_S
        while self.loop.time() < deadline:
            if holds():
                self.note(what)
                return True
            await asyncio.sleep(1)
        self.judge.anomaly(f"not {what} {HEALED_WITHIN_S:.0f} s after the faults have ended: {found()}")
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

    async def _is_in_sync(self) -> bool:
        """Waits until all replicas are in sync."""
        return await self._is_over_in_time(
            "in sync again", lambda: all(map(self._is_whole, REPLICAS)), lambda: [*map(self.state_of, REPLICAS)]
        )

    def _is_whole(self, key: TopicPartition) -> bool:
        state = self.state_of(key)
        if state is None or state.leader < 0 or set(state.isr) != set(REPLICAS[key]):
            return False
        leader = self.brokers[state.leader].replicas.partitions.get(key)
        logs = [self.brokers[one].logs.logs().get(key) for one in REPLICAS[key]]
        ends = {-1 if log is None else log.log_end_offset for log in logs}
        return leader is not None and ends == {leader.high_watermark}


async def _end_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Trace(logging.Handler):
    """Adds what brokers and controllers log to the history of a simulation."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        self._simulation.note(f"    {record.module}: {record.getMessage()}")


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
def _logging(simulation: Simulation, level: int | None) -> Iterator[None]:
    """Lets unexpected errors be anomalies, and with a level notes what is logged from that level on."""
    root, level_before = logging.getLogger(), logging.getLogger().level
    handlers: list[logging.Handler] = [_Unexpected(simulation.judge.anomaly)]
    if level is None:
        logging.disable(logging.WARNING)
    else:
        root.setLevel(level)
        handlers.append(_Trace(simulation))
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
    with _logging(simulation, level), light_processes(), decided_member_ids(simulation.chance):
        simulation.run()
    return Outcome(seed, simulation.judge.anomalies, simulation.history, simulation._acknowledged)  # noqa: SLF001


if __name__ == "__main__":
    shown = play(int(sys.argv[1]), logging.getLevelNamesMapping()[sys.argv[2].upper()] if sys.argv[2:] else None)
    print(*shown.history, *shown.anomalies, sep="\n")  # noqa: T201
