"""The transaction coordinator finds an id's partition of `__transaction_state`, and has those that this broker leads.

Until a led partition is read, and what is read is committed, requests for its transactional ids are answered
COORDINATOR_LOAD_IN_PROGRESS; when another broker leads it, NOT_COORDINATOR. Producers write to other partitions, and
markers go there, upon what a coordinator knows: the next leader must know that, too.

Runs on the event loop. A request returns a future of its `Result`; with one replica it is done at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from millrace.clock import Clock
from millrace.errors import ErrorCode, InvalidRegularExpressionError
from millrace.internal_topics import TRANSACTION_TOPIC
from millrace.records.batch import NO_PRODUCER_ID
from millrace_broker.cluster.coordinator_topic import CoordinatorTopic
from millrace_broker.cluster.metadata_cache import DeletionLookup, MetadataCache
from millrace_broker.cluster.producer_ids import ProducerIds
from millrace_broker.cluster.topic_manager import TopicManager
from millrace_broker.metrics import TransactionCounts
from millrace_broker.patterns import compiled
from millrace_broker.properties.coordinator_config import TransactionConfig
from millrace_broker.replication.purgatory import CallLater, CallSoon
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.shards import LedShards
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.markers import MarkerSender
from millrace_broker.txns.shard import Shard
from millrace_broker.txns.state import STATE_NAMES, Producer
from millrace_broker.txns.transaction import Effects, End, InitProducer, Result, Transaction, new_transaction

logger = logging.getLogger(__name__)
MAX_ID_BYTES = 2**15 - 1  # a key of the topic holds no more
Request = Callable[[Transaction, "asyncio.Future[Result]", int], Effects]


class TransactionCoordinator:
    """Coordinates the transactional ids whose partitions of `__transaction_state` this broker leads.

    Args:
        config: the properties of transactions.
        replicas: the partitions that this broker leads; states are written to and read from these.
        metadata: has the current metadata image.
        topics: creates the topic of states.
        markers: ends transactions in partitions, of this broker and of others.
        deletions: tells whether a partition in which a transaction can't be ended is deleted.
        broker_id: the id of this broker.
        producer_ids: gives fresh producer ids.
        clock: gives timestamps.
        call_later: sets timers, as an event loop does.
        call_soon: calls a function once the response has left, as an event loop does.
    """

    def __init__(
        self,
        config: TransactionConfig,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        topics: TopicManager,
        markers: MarkerSender,
        *,
        deletions: DeletionLookup,
        broker_id: int,
        producer_ids: ProducerIds,
        clock: Clock,
        call_later: CallLater,
        call_soon: CallSoon,
    ) -> None:
        self.config = config
        self.metadata = metadata
        self.markers = markers
        self._deletions = deletions
        self.counts = TransactionCounts()
        self.topic = CoordinatorTopic(
            TRANSACTION_TOPIC,
            metadata,
            topics,
            partitions=config.transaction_state_log_num_partitions,
            replication_factor=config.transaction_state_log_replication_factor,
            config=topic_config(config),
        )
        self._replicas = replicas
        self._broker_id = broker_id
        self._producer_ids = producer_ids
        self._clock = clock
        self._call_later = call_later
        self._call_soon = call_soon
        self.led = LedShards(
            TRANSACTION_TOPIC,
            replicas,
            self._new_shard,
            clock=clock,
            load_buffer_bytes=config.transaction_state_log_load_buffer_size,
            when_loaded=self._loaded,
            acts_elsewhere=True,
        )

    def shard(self, transactional_id: str) -> Shard | ErrorCode:
        """Returns a transactional id's shard; an error where the id is invalid or the shard not here or loading."""
        if not transactional_id or len(transactional_id.encode()) > MAX_ID_BYTES:
            return ErrorCode.INVALID_REQUEST
        shard = self.led.of_partition(self.topic.partition_of(transactional_id))
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        return shard if shard.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def shards(self) -> list[Shard] | ErrorCode:
        """Returns all shards; COORDINATOR_LOAD_IN_PROGRESS while one is being loaded."""
        shards = self.led.all()
        if all(shard.is_loaded for shard in shards):
            return shards
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def now_ms(self) -> int:
        """Returns the wall clock's time in milliseconds."""
        return self._clock.now_ms()

    def other_coordinator(self, transactional_id: str) -> int | None:
        """Returns the id of another broker that coordinates a transactional id; None where this one or none does."""
        index = self.topic.partition_of(transactional_id)
        leader = self.metadata.leader_of(TopicPartition(TRANSACTION_TOPIC, index))
        if leader is None or leader < 0 or leader == self._broker_id or self.led.of_partition(index) is not None:
            return None
        return leader

    def first_free_producer_id(self) -> int:
        """Returns the producer id above all that the transactions here have; 0 without any."""
        known = (max(one.metadata.producer_id, one.metadata.next_producer_id) for one in self.transactions())
        return max(known, default=-1) + 1

    # Requests.

    async def init_producer(self, transactional_id: str, request: InitProducer) -> Result:
        """Returns the result of InitProducerId; raises if it needs a fresh producer id and there is none."""
        if not transactional_id:
            return Result(ErrorCode.INVALID_REQUEST)
        if not 0 < request.timeout_ms <= self.config.transaction_max_timeout_ms:
            return Result(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        shard = self.shard(transactional_id)
        if isinstance(shard, ErrorCode):
            return Result(shard)
        known = shard.transactions.get(transactional_id)
        is_fresh_id_needed = known is None or known.needs_producer_id(request)
        fresh_id = await self._producer_ids.take() if is_fresh_id_needed else NO_PRODUCER_ID
        if shard.is_closed:
            return Result(ErrorCode.NOT_COORDINATOR)
        if transactional_id not in shard.transactions and is_fresh_id_needed:
            made = new_transaction(transactional_id, fresh_id, request.timeout_ms, shard.now_ms())
            shard.transactions[transactional_id] = made
        return await self._ask(
            transactional_id,
            lambda transaction, ticket, now_ms: transaction.init_producer(ticket, request, fresh_id, now_ms),
        )

    def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition], client_version: int
    ) -> asyncio.Future[Result]:
        """Adds partitions for AddPartitionsToTxn or AddOffsetsToTxn; the future gets the result once that is stored."""
        return self._ask(
            transactional_id,
            lambda transaction, ticket, now_ms: transaction.add_partitions(
                ticket, producer, partitions, client_version, now_ms
            ),
        )

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns for each partition NONE if the producer may write to it now, or the error (KIP-890)."""
        transaction = self.find(transactional_id)
        if isinstance(transaction, ErrorCode):
            return dict.fromkeys(partitions, transaction)
        return transaction.verify(producer, partitions)

    def end(self, transactional_id: str, request: End) -> asyncio.Future[Result]:
        """Commits or aborts; the future gets the result once that is stored, or raises if no fresh id can be had."""
        known = self.find(transactional_id)
        if isinstance(known, Transaction) and known.needs_producer_id(request):
            return asyncio.ensure_future(self._end_with_next_id(transactional_id, request))
        return self._end(transactional_id, request, NO_PRODUCER_ID)

    async def _end_with_next_id(self, transactional_id: str, request: End) -> Result:
        return await self._end(transactional_id, request, await self._producer_ids.take())

    def _end(self, transactional_id: str, request: End, fresh_id: int) -> asyncio.Future[Result]:
        return self._ask(
            transactional_id, lambda transaction, ticket, now_ms: transaction.end(ticket, request, fresh_id, now_ms)
        )

    def find(self, transactional_id: str) -> Transaction | ErrorCode:
        """Returns the transaction with an id; an error where it is unknown or not coordinated here."""
        shard = self.shard(transactional_id)
        return shard if isinstance(shard, ErrorCode) else shard.find(transactional_id)

    def _ask(self, transactional_id: str, request: Request) -> asyncio.Future[Result]:
        ticket: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        shard = self.shard(transactional_id)
        if isinstance(shard, ErrorCode):
            ticket.set_result(Result(shard))
        elif isinstance(transaction := shard.find(transactional_id), ErrorCode):
            ticket.set_result(Result(transaction))
        else:
            shard.perform(transaction, request(transaction, ticket, shard.now_ms()))
        return ticket

    # Leading.

    def _new_shard(self, topic_partition: TopicPartition) -> Shard:
        return Shard(
            topic_partition,
            self._replicas,
            self.markers,
            self._deletions,
            clock=self._clock,
            call_later=self._call_later,
            call_soon=self._call_soon,
            counts=self.counts,
        )

    def _loaded(self, shard: Shard, seconds: float) -> None:
        count = len(shard.transactions)
        self.counts.partitions_loaded += 1
        self.counts.ids_loaded += count
        self.counts.load_seconds += seconds
        logger.info("%s: loaded %d transactional ids", shard.topic_partition, count)

    # Housekeeping.

    async def abort_timed_out(self) -> int:
        """Aborts the transactions open for longer than their timeout; returns how many."""
        return await self._in_turn(Shard.abort_timed_out)

    async def expire_transactional_ids(self) -> int:
        """Removes the ids unused for `transactional.id.expiration.ms`; returns how many."""
        return await self._in_turn(lambda shard: shard.expire(self.config.transactional_id_expiration_ms))

    async def _in_turn(self, work: Callable[[Shard], Iterator[Transaction]]) -> int:
        """Runs the iterator that `work` makes of each shard, with breaks for requests; returns the number of steps."""
        steps = 0
        for shard in self.led.loaded():
            for _ in work(shard):
                steps += 1
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        return steps

    def transactions(self) -> Iterator[Transaction]:
        """Yields all transactions of the loaded shards; any thread may ask."""
        for shard in self.led.loaded():
            yield from shard.transactions.copy().values()


def topic_config(config: TransactionConfig) -> dict[str, str]:
    """Returns the properties of the topic `__transaction_state`, the same as in Kafka."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config.transaction_state_log_min_isr),
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }


NO_DURATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The filter of a ListTransactions request. A field that is empty, or -1, lets all pass.

    The pattern, a regular expression in RE2's syntax, has to match the whole transactional id.
    """

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    duration_ms: int = NO_DURATION
    pattern: str | None = None

    @property
    def unknown_states(self) -> list[str]:
        """The names in `states` that are no transaction state."""
        return [name for name in self.states if name not in STATE_NAMES]


def list_transactions(
    coordinator: TransactionCoordinator, wanted: Filter, now_ms: int
) -> tuple[ErrorCode, list[Transaction]]:
    """Returns (NONE, the transactions that pass the filter), or (an error, an empty list)."""
    shards = coordinator.shards()
    if isinstance(shards, ErrorCode):
        return shards, []
    found = [one for shard in shards for one in shard.transactions.values() if _passes(one, wanted, now_ms)]
    if not wanted.pattern:
        return ErrorCode.NONE, found
    try:
        pattern = compiled(wanted.pattern, "TransactionalIdPattern")
    except InvalidRegularExpressionError as error:
        return error.code, []
    return ErrorCode.NONE, [one for one in found if pattern.fullmatch(one.transactional_id)]


def _passes(transaction: Transaction, wanted: Filter, now_ms: int) -> bool:
    kept = transaction.metadata
    return (
        (not wanted.producer_ids or kept.producer_id in wanted.producer_ids)
        and (not wanted.states or str(kept.state) in wanted.states)
        and (wanted.duration_ms < 0 or now_ms - kept.start_timestamp_ms > wanted.duration_ms)
    )


def find_transaction(coordinator: TransactionCoordinator, transactional_id: str) -> Transaction | ErrorCode:
    """Returns the transaction with an id; TRANSACTIONAL_ID_NOT_FOUND or another error where it is not here."""
    found = coordinator.find(transactional_id)
    return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if found is ErrorCode.INVALID_PRODUCER_ID_MAPPING else found
