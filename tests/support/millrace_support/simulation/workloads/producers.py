"""A producer of a simulation: it writes distinct values with acks=all and acks=1, and never again what has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from millrace.client.producer.link import encode_produce_head, encode_topics
from millrace.errors import ErrorCode, MillraceError
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.api import ApiKey
from millrace.wire.messages import PRODUCE
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.client_links import ClientLinks
from millrace_support.simulation.workloads.client_world import ClientWorld
from millrace_support.simulation.workloads.drawn import RENEWED_TOPIC

PRODUCE_VERSION = 8
PRODUCE_TIMEOUT_S, PRODUCE_WAIT_MS = 4.0, 3000
TOMBSTONES = 0.2
PAUSES_S = (0.05, 0.5, 1.5)


def plain_record(value: int) -> NewRecord:
    """Returns a record without a key and a time."""
    return NewRecord(b"%d" % value)


def timed_record(world: ClientWorld) -> Callable[[int], NewRecord]:
    """Returns a maker of records that have a time, and some bytes, so that a log grows out of its limits."""
    return lambda value: NewRecord(b"%d" % value + bytes(50), timestamp_ms=world.clock.now_ms())


def keyed_record(world: ClientWorld) -> Callable[[int], NewRecord]:
    """Returns a maker of records with keys, of which some are tombstones."""

    def new_record(value: int) -> NewRecord:
        text = None if world.chance.random() < TOMBSTONES else b"%d of %d" % (next(world.numbers), value)
        return NewRecord(text, world.new_key(), world.clock.now_ms())

    return new_record


class Producer:
    """The producer on a machine, which writes to partitions; `new_record` makes a record of the number of a write."""

    def __init__(
        self,
        world: ClientWorld,
        machine: int,
        partitions: Sequence[TopicPartition],
        new_record: Callable[[int], NewRecord] = plain_record,
    ) -> None:
        self.acknowledged = 0
        self._world = world
        self._links = ClientLinks(world.network, machine, PRODUCE_TIMEOUT_S)
        self._partitions = partitions
        self._new_record = new_record

    async def live(self) -> None:
        """Writes until the faults are over."""
        world = self._world
        while not world.is_over():
            key = self._next_partition()
            leader = None if key is None else world.leader(key)
            if key is not None and leader is not None:
                await self._write(key, leader[0])
            await asyncio.sleep(world.chance.choice(PAUSES_S))

    def _next_partition(self) -> TopicPartition | None:
        return self._world.chance.choice(self._partitions)

    async def _write(self, key: TopicPartition, leader: int) -> None:
        world = self._world
        sent_zxid = world.judge.promises.now_zxid
        value, acks = next(world.numbers), world.chance.choice([-1, -1, -1, 1])
        batch = encode_batch([self._new_record(value) for _ in range(world.chance.randint(1, 3))])
        world.judge.writes(key, batch)
        topic_id = world.topic_ids.get(key.topic)
        holders = [one for one, broker in world.brokers.items() if broker.open_log(key) is not None]
        written = [(*key, batch)]
        message = encode_produce_head(acks, PRODUCE_WAIT_MS, written) + b"".join(encode_topics(written))
        try:
            link = await self._links.to(leader)
            body = await link.exchange(ApiKey.PRODUCE, PRODUCE_VERSION, message)
        except MillraceError:
            return
        (produced,) = PRODUCE.decode_response(PRODUCE_VERSION, body).responses[0].partition_responses
        answer, offset = ErrorCode(produced.error_code).name, produced.base_offset
        world.note(f"value {value} to {key} at {leader}, acks {acks}: {answer}, offset {offset}")
        if topic_id is None or world.topic_ids.get(key.topic) != topic_id:
            return  # the topic was deleted meanwhile
        if produced.error_code == ErrorCode.NONE and acks == -1:
            self.acknowledged += 1
            was_struck = partial(world.judge.promises.was_struck, since_zxid=sent_zxid)
            replicas = {*world.replicas[key], *holders}  # those that a reassignment removes count until they hear of it
            logs = [None if was_struck(one) else world.brokers[one].open_log(key) for one in replicas]
            world.judge.acknowledges(key, offset, batch, world.replicas.factor(key), logs)


class RenewingProducer(Producer):
    """The producer that writes to whatever partitions the topic has that is deleted and created again."""

    def _next_partition(self) -> TopicPartition | None:
        partitions = [key for key in self._world.replicas if key.topic == RENEWED_TOPIC]
        return self._world.chance.choice(partitions) if partitions else None
