"""The clients of a simulation beside the members of groups: which there are for the workloads of a seed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from millrace.client.fetched import IsolationLevel
from millrace.internal_topics import INTERNAL_TOPICS
from millrace_support.simulation.workloads.client_world import ClientWorld
from millrace_support.simulation.workloads.drawn import (
    COMPACTED_TOPIC,
    LIMITED_TOPIC,
    OFFSETS,
    TOPIC,
    TRANSACTIONS,
    Workloads,
)
from millrace_support.simulation.workloads.producers import Producer, RenewingProducer, keyed_record, timed_record
from millrace_support.simulation.workloads.readers import Reader
from millrace_support.simulation.workloads.record_deleters import RecordDeleter
from millrace_support.simulation.workloads.transaction_judge import TransactionJudge
from millrace_support.simulation.workloads.transactional_producers import TransactionalProducer

FIRST_PRODUCER, LIMITED_PRODUCER, COMPACTED_PRODUCER, DELETER, FIRST_READER = 100, 110, 111, 112, 300
RENEWED_PRODUCER = 113
PRODUCERS = 2
TRANSACTORS = ((400, "one"), (401, "one"), (402, "other"), (403, "other"))  # machines and their transactional ids


class Clients:
    """All clients of a seed. `readers` go on until the end of the simulation."""

    def __init__(self, world: ClientWorld, workloads: Workloads) -> None:
        self._world = world
        plain, limited, compacted = (
            [key for key in world.replicas if key.topic == topic] for topic in (TOPIC, LIMITED_TOPIC, COMPACTED_TOPIC)
        )
        self._producers = [Producer(world, FIRST_PRODUCER + number, plain) for number in range(PRODUCERS)]
        if limited:
            self._producers.append(Producer(world, LIMITED_PRODUCER, limited, timed_record(world)))
        if compacted:
            self._producers.append(Producer(world, COMPACTED_PRODUCER, compacted, keyed_record(world)))
        if workloads.renewal:
            self._producers.append(RenewingProducer(world, RENEWED_PRODUCER, ()))
        self._deleters = [RecordDeleter(world, DELETER, judge) for judge in world.judge.retention.values()]
        read = [*plain, *limited, *compacted] if workloads.reads else []
        self.readers = [
            Reader(world, FIRST_READER + number, key, isolation)
            for number, (key, isolation) in enumerate((key, isolation) for key in read for isolation in IsolationLevel)
        ]
        self._transactions = TransactionJudge(world.anomaly_of(TRANSACTIONS, OFFSETS), world.judge.promises.is_void)
        self._transactors = [
            TransactionalProducer(world, machine, transactional_id, [*plain, *compacted], self._transactions)
            for machine, transactional_id in TRANSACTORS
            if workloads.transactions
        ]
        self._writing: list[asyncio.Task[None]] = []

    @property
    def acknowledged(self) -> int:
        """Returns how many writes were answered with success."""
        return sum(one.acknowledged for one in self._producers)

    def begin(self) -> None:
        """Lets all clients live."""
        writing: tuple[Producer | TransactionalProducer | RecordDeleter, ...] = (
            *self._producers,
            *self._transactors,
            *self._deleters,
        )
        self._writing = [self._begun(one.live()) for one in writing]
        for reader in self.readers:
            self._begun(reader.live())

    def _begun(self, life: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._world.loop.create_task(life)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._world.judge.anomaly(f"a client fails: {task.exception()!r}")

    async def end(self, *, has_set_clocks: bool) -> None:
        """Waits until nothing is written any more.

        A transaction that began in a coordinator's future, by a clock that was ahead of its own, has no timeout for
        hours, in Apache Kafka, too, which compares times of day. The next instance ends it.
        """
        await asyncio.gather(*self._writing, return_exceptions=True)
        for one in self._transactors if has_set_clocks else ():
            await one.end_what_is_open()
        for one in self._transactors:
            await one.ask_for_offset()

    def have_read_all(self) -> bool:
        """Returns whether the readers are at the ends of their partitions."""
        return all(reader.is_misled or reader.position == self._end_of(reader) for reader in self.readers)

    def _end_of(self, reader: Reader) -> int | None:
        leader = self._world.leader(reader.key)
        partition = None if leader is None else self._world.brokers[leader[0]].replicas.partitions.get(reader.key)
        return None if partition is None else partition.high_watermark

    def check_all(self) -> None:
        """Looks at what was read."""
        for reader in self.readers:
            reader.check_all()
        histories = [one for key, one in self._world.judge.histories.items() if key.topic not in INTERNAL_TOPICS]
        self._transactions.end(histories)
