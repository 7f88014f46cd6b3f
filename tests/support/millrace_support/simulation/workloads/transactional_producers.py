"""A transactional producer of a simulation: transactions over several partitions, with offsets of a group, and fences.

Some of its instances speak as clients before KIP-890 do: they add partitions to a transaction themselves. The others
leave that to the leaders, and get another epoch with the end of each transaction. An instance ends a transaction, or
dies in it, or sleeps beyond its timeout. The producers of two machines share a transactional id, so that each instance
fences one of the other machine, which does not know it yet. What an instance is not told it asks again, as clients do:
a batch with the same sequence, the same end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millrace.errors import ErrorCode, MillraceError
from millrace.internal_topics import OFFSETS_TOPIC
from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace.wire.messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    OFFSET_FETCH,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.client_links import ClientLinks
from millrace_support.simulation.workloads.client_world import ClientWorld
from millrace_support.simulation.workloads.transaction_judge import Attempt, TransactionJudge, value_of

if TYPE_CHECKING:
    from millrace.wire.messages.find_coordinator import FindCoordinatorRequestFields

TIMEOUT_S, PATIENCE_S, PAUSE_S = 4.0, 12.0, 0.2
LAST_PATIENCE_S = (
    60.0  # in the end, when replicas have a lot to fetch, or a partition waits for the operator's election
)
TRANSACTION_TIMEOUT_MS = (2_000, 8_000)
LIFE, WRITES = (1, 4), (1, 4)  # transactions of an instance, and batches of a transaction
DIES, SLEEPS, COMMITS, SENDS_OFFSETS, REPEATS = 0.1, 0.1, 0.75, 0.4, 0.1
ASLEEP_S, AWAY_S = (1.0, 10.0), (0.1, 6.0)
OF_GROUPS, OF_TRANSACTIONS = 0, 1
COMMITTED_TO = TopicPartition(OFFSETS_TOPIC, 0)
ELSEWHERE = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
AGAIN = ELSEWHERE | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}  # fmt: skip


class EndedError(Exception):
    """The instance can't go on: it is fenced, or something has failed for too long."""


class TransactionalProducer:
    """The producer on a machine, whose instances have one transactional id after the other."""

    def __init__(
        self,
        world: ClientWorld,
        machine: int,
        transactional_id: str,
        partitions: Sequence[TopicPartition],
        judge: TransactionJudge,
    ) -> None:
        self._world = world
        self._chance = world.chance
        self._links = ClientLinks(world.network, machine, TIMEOUT_S, f"transactional-{machine}")
        self._name = f"{transactional_id} at {machine}"
        self._id = transactional_id
        self._group = f"of-{transactional_id}"
        self._partitions = partitions
        self._judge = judge
        self._coordinators: dict[int, int] = {}
        self._is_new = False
        self._patience_s = PATIENCE_S
        self._instance = 0
        self._producer = (-1, -1)
        self._sequences: Counter[TopicPartition] = Counter()

    async def live(self) -> None:
        """Begins instances until the faults are over."""
        while not self._world.is_over():
            await asyncio.sleep(self._chance.uniform(*AWAY_S))
            self._is_new = self._chance.random() < 0.5
            try:
                await self._begin()
                for _ in range(self._chance.randint(*LIFE)):
                    await self._transaction()
            except EndedError as error:
                self._world.note(f"{self._name} ends: {error}")

    async def end_what_is_open(self) -> None:
        """Begins a last instance, whose begin aborts what a former one has left open.

        None may be able to where the state of transactions is lost, or their offsets: the coordinator does not know of
        an offset that waits for its transaction's end, so nobody ends it, as in Apache Kafka.
        """
        self._is_new, self._patience_s = False, LAST_PATIENCE_S
        try:
            await self._begin()
        except EndedError as error:
            self._judge.anomaly(f"{self._id}: no instance can begin at the end: {error}")

    async def ask_for_offset(self) -> None:
        """Asks for the group's offset, when nobody commits one any more."""
        self._patience_s = LAST_PATIENCE_S
        try:
            self._judge.last_offsets[self._id] = await self._committed_offset()
        except EndedError as error:
            self._judge.anomaly(f"{self._id}: the group's offset is not told at the end: {error}")

    # What is asked again until it is answered.

    async def _ask(self, kind: int, api: Any, version: int, fields: Any, error_of: Any) -> Any:
        """Returns the answer of a coordinator, asked again while it may say something else later."""
        deadline = self._world.loop.time() + self._patience_s
        while self._world.loop.time() < deadline:
            try:
                link = await self._links.to(await self._coordinator(kind))
                answer = await link.request(api, version, fields)
                error = ErrorCode(error_of(answer))
                if error not in AGAIN:
                    return answer
                if error in ELSEWHERE:
                    self._coordinators.pop(kind, None)
            except MillraceError:
                self._coordinators.pop(kind, None)
            await asyncio.sleep(PAUSE_S)
        raise EndedError(f"{api.key.name} is not answered")

    async def _coordinator(self, kind: int) -> int:
        if kind not in self._coordinators:
            link = await self._links.to(self._chance.choice(tuple(self._world.brokers)))
            key = self._id if kind == OF_TRANSACTIONS else self._group
            fields: FindCoordinatorRequestFields = {"key_type": kind, "coordinator_keys": [key]}
            (found,) = (await link.request(FIND_COORDINATOR, 6, fields)).coordinators
            if found.error_code != ErrorCode.NONE:
                raise MillraceError(f"no coordinator: {found.error_code}")
            self._coordinators[kind] = found.node_id
        return self._coordinators[kind]

    async def _succeed(self, kind: int, api: Any, version: int, fields: Any, error_of: Any) -> Any:
        answer = await self._ask(kind, api, version, fields, error_of)
        error = ErrorCode(error_of(answer))
        if error != ErrorCode.NONE:
            raise EndedError(f"{api.key.name} is answered {error.name}")
        return answer

    def _fields(self, **more: Any) -> dict[str, Any]:
        producer_id, epoch = self._producer
        return {"transactional_id": self._id, "producer_id": producer_id, "producer_epoch": epoch, **more}

    def _take(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != self._producer:
            self._producer = (producer_id, epoch)
            self._sequences.clear()

    # An instance.

    async def _begin(self) -> None:
        """Fences the instance before, and asks which offsets that has committed."""
        fields = {"transactional_id": self._id, "transaction_timeout": self._chance.randint(*TRANSACTION_TIMEOUT_MS)}
        given = await self._succeed(OF_TRANSACTIONS, INIT_PRODUCER_ID, 4, fields, lambda one: one.error_code)
        self._instance = self._judge.begins(self._id, given.producer_id, given.producer_epoch)
        self._take(given.producer_id, given.producer_epoch)
        self._world.note(f"{self._name} begins as {self._producer}, {'new' if self._is_new else 'old'}")
        self._judge.told_offset(self._id, await self._committed_offset())

    async def _committed_offset(self) -> int:
        """Returns the offset that the group has committed, as the leader of its partition tells it.

        A former leader whose replica was moved away while it slept hears from nobody that it leads no more, as in
        Apache Kafka, and tells what it knew.
        """
        deadline = self._world.loop.time() + self._patience_s
        while self._world.loop.time() < deadline:
            leader = self._world.leader(COMMITTED_TO)
            offset = await self._told_offset()
            if leader and leader == self._world.leader(COMMITTED_TO) and leader[0] == self._coordinators.get(OF_GROUPS):
                return offset
            self._coordinators.pop(OF_GROUPS, None)
            await asyncio.sleep(PAUSE_S)
        raise EndedError("no leader tells the group's offset")

    async def _told_offset(self) -> int:
        """Returns the group's offset as a coordinator tells it, once no transaction is about to commit one."""
        key = self._partitions[0]
        topics = [{"name": key.topic, "partition_indexes": [key.partition]}]
        fields = {"groups": [{"group_id": self._group, "topics": topics}], "require_stable": True}

        def error_of(answer: Any) -> int:
            (group,) = answer.groups
            return int(group.error_code or group.topics[0].partitions[0].error_code)

        answer = await self._succeed(OF_GROUPS, OFFSET_FETCH, 9, fields, error_of)
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)

    async def _transaction(self) -> None:
        chance, attempt = self._chance, self._judge.attempt(self._id, self._instance, next(self._world.numbers))
        joined = chance.sample(self._partitions, chance.randint(1, len(self._partitions)))
        try:
            if not self._is_new:
                await self._add_partitions(joined)
            for _ in range(chance.randint(*WRITES)):
                await self._write(attempt, chance.choice(joined))
            self._die_or_live()
            if chance.random() < SENDS_OFFSETS:
                await self._send_offsets(attempt)
        except EndedError:
            if chance.random() < 0.5:
                await self._end(attempt, is_commit=False)
            raise
        await self._end(attempt, is_commit=chance.random() < COMMITS)

    def _die_or_live(self) -> None:
        if self._chance.random() < DIES:
            raise EndedError("it dies")

    async def _sleep(self) -> None:
        if not self._world.is_over() and self._chance.random() < SLEEPS:
            await asyncio.sleep(self._chance.uniform(*ASLEEP_S))

    async def _add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        topics: dict[str, list[int]] = {}
        for key in partitions:
            topics.setdefault(key.topic, []).append(key.partition)
        producer_id, epoch = self._producer
        fields = {
            "v3_and_below_transactional_id": self._id,
            "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": [{"name": name, "partitions": indexes} for name, indexes in topics.items()],
        }

        def error_of(answer: Any) -> int:
            errors = (
                one.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            )
            return int(next((error for error in errors if error), ErrorCode.NONE))

        await self._succeed(OF_TRANSACTIONS, ADD_PARTITIONS_TO_TXN, 3, fields, error_of)

    async def _write(self, attempt: Attempt, key: TopicPartition) -> None:
        """Writes a batch, again and again with the same sequence until it is acknowledged."""
        await self._sleep()
        values = [value_of(attempt.number, next(self._world.numbers)) for _ in range(self._chance.randint(1, 3))]
        records = [NewRecord(value, self._world.new_key(), self._world.clock.now_ms()) for value in values]
        producer = BatchProducer(*self._producer, self._sequences[key])
        batch = encode_batch(records, producer=producer, flags=TRANSACTIONAL_FLAG)
        self._world.judge.writes(key, batch)
        attempt.sends(key, values)
        await self._written(key, batch)
        if self._chance.random() < REPEATS:  # as where the answer is lost
            await self._written(key, batch)
        attempt.acknowledges(key, values)
        self._sequences[key] += len(values)

    async def _written(self, key: TopicPartition, batch: bytes) -> None:
        data = [{"name": key.topic, "partition_data": [{"index": key.partition, "records": batch}]}]
        fields: Any = {"transactional_id": self._id, "acks": -1, "timeout": 3_000, "topic_data": data}
        deadline = self._world.loop.time() + self._patience_s
        while self._world.loop.time() < deadline:
            leader = self._world.leader(key)
            try:
                if leader is not None:
                    link = await self._links.to(leader[0])
                    answer: Any = await link.request(PRODUCE, 12 if self._is_new else 11, fields)
                    error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
                    if error == ErrorCode.NONE:
                        return
                    if error not in AGAIN:
                        raise EndedError(f"a batch for {key} is answered {error.name}")
            except MillraceError:
                pass  # the connection broke: the batch may be written
            await asyncio.sleep(PAUSE_S)
        raise EndedError(f"a batch for {key} is not answered")

    async def _send_offsets(self, attempt: Attempt) -> None:
        """Commits the transaction's number as the offset of the group."""
        await self._sleep()
        if not self._is_new:
            await self._succeed(
                OF_TRANSACTIONS, ADD_OFFSETS_TO_TXN, 3, self._fields(group_id=self._group), lambda one: one.error_code
            )
        key = self._partitions[0]
        one = {"partition_index": key.partition, "committed_offset": attempt.number, "committed_metadata": ""}
        fields = self._fields(group_id=self._group, topics=[{"name": key.topic, "partitions": [one]}])
        await self._succeed(
            OF_GROUPS,
            TXN_OFFSET_COMMIT,
            5 if self._is_new else 3,
            fields,
            lambda answer: answer.topics[0].partitions[0].error_code,
        )
        attempt.has_offset = True

    async def _end(self, attempt: Attempt, *, is_commit: bool) -> None:
        await self._sleep()
        if not attempt.has_begun:
            return
        attempt.asks_to_end(is_commit=is_commit)
        fields = self._fields(committed=is_commit)
        answer = await self._ask(OF_TRANSACTIONS, END_TXN, 5 if self._is_new else 3, fields, lambda one: one.error_code)
        error = ErrorCode(answer.error_code)
        attempt.is_told(error)
        self._world.note(
            f"{self._name} {'commits' if is_commit else 'aborts'} transaction {attempt.number}: {error.name}"
        )
        if error != ErrorCode.NONE:
            raise EndedError(f"the end is answered {error.name}")
        if self._is_new:
            self._take(answer.producer_id, answer.producer_epoch)
