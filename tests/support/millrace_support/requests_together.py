"""Produce requests that a broker handles together, or one by one: what it answers, and what its disk has then.

A `Sender` makes the requests, so that two brokers get the same bytes. A `ProducingBroker` has the real handler,
coordinator of transactions and log, on a disk in memory and a clock that stands still until a test moves it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from millrace.config import MAX_INT
from millrace.errors import ErrorCode, WireError
from millrace.records.batch import HEADER_BYTES, TIMESTAMP_TYPE_FLAG, TRANSACTIONAL_FLAG
from millrace.records.compression import Codec
from millrace.records.message_set import encode_message_set
from millrace.records.record import NO_PRODUCER, BatchProducer, NewRecord, Record, encode_batch
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, encode
from millrace_broker.handlers import k00_produce
from millrace_broker.handlers.api import InOrder, Request, Services
from millrace_broker.replication.roles import Leadership
from millrace_broker.txns.state import Producer
from millrace_broker.txns.transaction import InitProducer
from millrace_support.broker_with_followers import until
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.transaction_home import EVENTS, MINUTE_MS, OFFSETS, STATES, Home

FIRST_VERSION_OF_BATCHES, FIRST_VERSION_WITH_TOPIC_IDS = 3, 13
TRANSACTIONAL_ID = "t"
IDEMPOTENT_IDS = (7000, 8000)
FIRST_SEQUENCE = MAX_INT - 4  # sequences begin again at 0 on the way
DATA_DIR = "/data"
EPOCH = 3
WORKERS = ThreadPoolExecutor(1)


class Sent(NamedTuple):
    """One batch that a request brings: what it has, and what is wrong with it.

    producer: -1 for none, an id of `IDEMPOTENT_IDS`, or 0 for the producer of the transaction.
    age_ms: how old the records are; None for records without a time.
    step: from the sequence that is expected: 0, or a repetition or gap.
    """

    producer: int = -1
    values: Sequence[int] = (5,)
    has_keys: bool = True
    age_ms: int | None = 0
    codec: Codec = Codec.NONE
    step: int = 0
    damage: str = ""


class Wanted(NamedTuple):
    """One request: its acks and, for each partition that it names, the batch that it brings."""

    acks: int
    partitions: Sequence[tuple[str, int, Sent]]


class Sender:
    """Makes the bytes of requests; each producer goes on from what it sent last, or wrongly."""

    def __init__(self) -> None:
        self.transactional = Producer(-1, -1)
        self._expected: dict[tuple[int, int], int] = {}

    def request(self, version: int, wanted: Wanted, now_ms: int, topic_ids: Mapping[str, Any]) -> bytes:
        """Returns the body of a request, which has a transactional id where a batch is of the transaction."""
        name = TRANSACTIONAL_ID if any(sent.producer == 0 for *_, sent in wanted.partitions) else None
        partitions = [(topic, index, self._records(version, sent, now_ms)) for topic, index, sent in wanted.partitions]
        uses_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        topics = [
            {
                "name": "" if uses_ids else topic,
                "topic_id": topic_ids.get(topic) if uses_ids else None,
                "partition_data": [{"index": index, "records": records}],
            }
            for topic, index, records in partitions
        ]
        fields = {"transactional_id": name, "acks": wanted.acks, "timeout": 60_000, "topic_data": topics}
        return encode(ApiKey.PRODUCE, version, Direction.REQUEST, fields)

    def _records(self, version: int, sent: Sent, now_ms: int) -> bytes:
        timestamp_ms = -1 if sent.age_ms is None else now_ms - sent.age_ms
        key = b"key" if sent.has_keys else None
        if version < FIRST_VERSION_OF_BATCHES:
            messages = [Record(0, timestamp_ms, key, bytes(size), ()) for size in sent.values]
            return _damaged(encode_message_set(messages, magic=int(version == 2)), sent.damage)
        records = [NewRecord(bytes(size), key, timestamp_ms) for size in sent.values]
        producer, flags = self._producer(sent)
        return _damaged(encode_batch(records, producer=producer, flags=flags, codec=sent.codec), sent.damage)

    def _producer(self, sent: Sent) -> tuple[BatchProducer, int]:
        if sent.producer < 0:
            return NO_PRODUCER, 0
        producer = self.transactional if sent.producer == 0 else Producer(sent.producer, 0)
        first = 0 if sent.producer == 0 else FIRST_SEQUENCE
        sequence = (self._expected.get(producer, first) + sent.step) & MAX_INT
        self._expected[producer] = (sequence + len(sent.values)) & MAX_INT
        return BatchProducer(*producer, sequence), TRANSACTIONAL_FLAG if sent.producer == 0 else 0


def _damaged(records: bytes, damage: str) -> bytes:
    spoiled = bytearray(records)
    match damage:
        case "crc":
            spoiled[-1] ^= 1
        case "log append time" if len(spoiled) > HEADER_BYTES:
            spoiled[22] |= TIMESTAMP_TYPE_FLAG
        case "base offset":
            spoiled[7] = 5
        case "cut":
            del spoiled[-3:]
        case "tail":
            spoiled += bytes(5)
        case "twice":
            spoiled += records
        case "empty":
            spoiled.clear()
    return bytes(spoiled)


class ProducingBroker:
    """One broker that leads `EVENTS` with these settings, and with a follower that is in sync where it is asked for."""

    def __init__(self, config: Mapping[str, str], *, has_follower: bool) -> None:
        self.fs = CrashFileSystem()
        self.home = home = Home(Path(DATA_DIR), (STATES, OFFSETS), fs=self.fs)
        leadership = Leadership(EPOCH, 0, (1, 2), (1, 2)) if has_follower else Leadership.alone(1, EPOCH)
        home.replicas.lead(EVENTS, home.topics[EVENTS.topic].topic_id, config, leadership)
        self.partition = home.replicas.partition(EVENTS)
        self._in_order: InOrder[Any] = InOrder()
        self._services = cast(
            "Services",
            SimpleNamespace(
                clock=home.clock,
                metadata=home.metadata,
                replicas=home.replicas,
                broker_id=1,
                errors=Counter(),
                authorizer=None,
                admission=home.admission,
                produced_in_order=self._in_order,
                workers=WORKERS,
            ),
        )

    @property
    def topic_ids(self) -> dict[str, Any]:
        """The id of each topic."""
        return {name: topic.topic_id for name, topic in self.home.topics.items()}

    async def together(self, version: int, bodies: Sequence[bytes]) -> list[Any]:
        """Handles requests that have arrived together."""
        return await self._answers(k00_produce.handle_all(self._services, [_request(version, one) for one in bodies]))

    async def one_by_one(self, version: int, bodies: Sequence[bytes]) -> list[Any]:
        """Handles each request as if it had come alone; after an error that closes the connection no answer leaves."""
        answers: list[Any] = []
        for body in bodies:
            answers += k00_produce.handle_all(self._services, [_request(version, body)])
            await self._settled()
        ends = [number for number, answer in enumerate(answers) if isinstance(answer, WireError)]
        return await self._answers(answers[: ends[0] + 1] if ends else answers)

    async def _settled(self) -> None:
        """Waits until no request waits for the coordinator of its transaction."""
        await until(lambda: not self._in_order.is_busy(TRANSACTIONAL_ID))

    async def _answers(self, answers: Sequence[Any]) -> list[Any]:
        await self._settled()
        self._catch_up()
        return [_told(await one if isinstance(one, asyncio.Future) else one) for one in answers]

    def _catch_up(self) -> None:
        """Lets the follower have everything."""
        if self.partition.in_sync is not None:
            self.home.replicas.fetched(self.partition, 2, self.partition.log.log_end_offset)

    def stored(self) -> dict[str, Any]:
        """Returns all that the broker keeps of the partition."""
        log = self.partition.log
        return {
            "segments": [
                (each.base_offset, bytes(log.read(each.base_offset, 1 << 20, up_to_offset=each.next_offset)))
                for each in log.segments
            ],
            "end": log.log_end_offset,
            "high watermark": self.partition.high_watermark,
            "last stable offset": self.partition.last_stable_offset,
            "producers": dict(log.producers.entries),
            "epochs": log.leader_epochs.entries,
            "bytes": self.partition.appended_bytes,
        }

    async def begin(self) -> Producer:
        """Begins the transaction; one that is open is aborted."""
        await self.home.loaded()
        error = ErrorCode.CONCURRENT_TRANSACTIONS
        while error is ErrorCode.CONCURRENT_TRANSACTIONS:
            await asyncio.sleep(0)
            self._catch_up()
            error, producer = await self.home.txns.init_producer(TRANSACTIONAL_ID, InitProducer(MINUTE_MS))
        assert not error, error
        await self.home.add(producer, name=TRANSACTIONAL_ID)
        return producer

    async def end(self, producer: Producer, *, is_commit: bool) -> ErrorCode:
        """Ends the transaction, if it is open."""
        error = await self.home.end(producer, is_commit=is_commit, name=TRANSACTIONAL_ID)
        self._catch_up()
        return error


def _request(version: int, body: bytes) -> Request:
    return Request(version, "client", memoryview(body))


def _told(answer: Any) -> Any:
    if isinstance(answer, WireError):
        return type(answer), str(answer)
    return None if answer is None else b"".join(bytes(part) for part in answer)
