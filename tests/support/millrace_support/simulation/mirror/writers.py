"""Writers of the clusters of a mirror: plain ones, and idempotent ones, which send again what is not acknowledged.

An idempotent producer may have any id. Those that write to the target after a switch-over have the same ids as those of
the source, with the same epoch and sequences: a broker that took them for the ones before would find duplicates, or a
gap of sequences.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from millrace.errors import ErrorCode, MillraceError
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace.wire.messages import PRODUCE
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.client_links import ClientLinks
from millrace_support.simulation.workloads.drawn import COMPACTED_TOPIC
from millrace_support.simulation.workloads.transactional_producers import AGAIN

if TYPE_CHECKING:
    from millrace_support.simulation.mirror.cluster import SimulatedCluster

TIMEOUT_S, WAIT_MS, VERSION = 4.0, 3_000, 11
PAUSE_S, AGAIN_S = (0.02, 0.7), 0.2
MOST_RECORDS, TOMBSTONES, KEYS = 3, 0.2, 6
PRODUCER_IDS = (5_000, 50_000_000)  # far apart, as coordinators give ids above those that logs have
UNKNOWN = {ErrorCode.POLICY_VIOLATION}  # of a broker that has not heard yet that a topic is mirrored no more


class Written:
    """What the writers of one cluster have sent, and what of it was acknowledged with acks=all."""

    def __init__(self) -> None:
        self.sent: dict[TopicPartition, set[bytes]] = defaultdict(set)
        self.acknowledged: dict[TopicPartition, set[bytes]] = defaultdict(set)
        self.refusals: list[str] = []


class Writer:
    """The writer on a machine; with `producer_id` it is idempotent."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        machine: int,
        keys: Callable[[], Sequence[TopicPartition]],
        written: Written,
        is_over: Callable[[], bool],
        *,
        producer_id: int | None = None,
    ) -> None:
        self._cluster = cluster
        self._chance = cluster.chance
        self._name = f"{cluster.name} {machine}"
        self._links = ClientLinks(cluster.network, machine, TIMEOUT_S, f"writer-{machine}")
        self._keys = keys
        self._written = written
        self._is_over = is_over
        self._producer_id = producer_id
        self._numbers = Counter[TopicPartition]()
        self._sequences = Counter[TopicPartition]()

    async def live(self) -> None:
        """Writes until it is over."""
        while not self._is_over():
            if keys := self._keys():
                await self.write(self._chance.choice(keys))
            await asyncio.sleep(self._chance.uniform(*PAUSE_S))

    async def write(self, key: TopicPartition) -> None:
        """Writes a batch; an idempotent writer sends it again until it is answered, or refused for good."""
        values = [self._value(key) for _ in range(self._chance.randint(1, MOST_RECORDS))]
        records = [self._record(key, value) for value in values]
        self._written.sent[key].update(values)
        acks = -1 if self._producer_id is not None else self._chance.choice((-1, -1, 1))
        batch = encode_batch(records, producer=self._producer(key))
        error = await self._send(key, batch, acks)
        while self._producer_id is not None and (error is None or error in AGAIN | UNKNOWN):
            await asyncio.sleep(AGAIN_S)
            error = await self._send(key, batch, acks)
        if error is ErrorCode.NONE and acks == -1:
            self._written.acknowledged[key].update(values)
        if self._producer_id is not None:
            self._go_on(key, len(values), error)

    def _go_on(self, key: TopicPartition, count: int, error: ErrorCode | None) -> None:
        if error is ErrorCode.NONE:
            self._sequences[key] += count
            return
        assert error is not None
        self._written.refusals.append(f"{key} is refused to producer {self._producer_id}: {error.name}")
        self._producer_id = (self._producer_id or 0) + 1_000_000  # as another one
        self._sequences.clear()

    def _value(self, key: TopicPartition) -> bytes:
        self._numbers[key] += 1
        return f"{self._name} {key} {self._numbers[key]}".encode()

    def _record(self, key: TopicPartition, value: bytes) -> NewRecord:
        now_ms = self._cluster.latest.now_ms()
        if key.topic != COMPACTED_TOPIC:
            return NewRecord(value, timestamp_ms=now_ms)
        is_tombstone = self._producer_id is None and self._chance.random() < TOMBSTONES
        key_bytes = b"key %d" % self._chance.randrange(KEYS)
        if not is_tombstone:
            return NewRecord(value, key_bytes, now_ms)
        return NewRecord(None, key_bytes, now_ms, (("sent", value),))  # which tells it from all others

    def _producer(self, key: TopicPartition) -> Any:
        given = {} if self._producer_id is None else BatchProducer(self._producer_id, 0, self._sequences[key])
        return given or BatchProducer()

    async def _send(self, key: TopicPartition, batch: bytes, acks: int) -> ErrorCode | None:
        """Returns the answer; None where there is none."""
        leader = self._cluster.leader(key)
        if leader is None:
            return None
        data = [{"name": key.topic, "partition_data": [{"index": key.partition, "records": batch}]}]
        fields: Any = {"transactional_id": None, "acks": acks, "timeout": WAIT_MS, "topic_data": data}
        try:
            answer: Any = await (await self._links.to(leader)).request(PRODUCE, VERSION, fields)
        except MillraceError:
            return None
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)
