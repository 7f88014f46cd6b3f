"""Producer ids: each is given once, by however many brokers, restarts and power cuts."""

import asyncio
import gc
import warnings
from collections import Counter
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from uuid import uuid4

import pytest

from millrace.config import MAX_LONG
from millrace.errors import ErrorCode, ProducerIdsExhaustedError, StorageError
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace_broker.cluster.local_store import LocalStore
from millrace_broker.cluster.producer_ids import BLOCK_SIZE, ProducerIds, encode_block, next_block
from millrace_broker.handlers import transactions
from millrace_broker.handlers.api import Request
from millrace_broker.replication.isr_tables import IsrTables
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.roles import Leadership
from millrace_broker.storage import LogManager, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, PowerCutError

EVENTS = TopicPartition("events", 0)


def test_the_document_is_kafkas():
    assert encode_block(1, range(1000)) == b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'


def test_blocks_follow_each_other_and_lie_above_what_logs_know():
    first = next_block(None, 0)
    second = next_block(encode_block(1, first), 0)
    assert (first, second) == (range(1000), range(1000, 2000))
    assert next_block(encode_block(1, second), 7777) == range(7777, 8777)
    assert next_block(b"", 0) == range(1000)  # Kafka makes the node empty


def test_the_last_ids_are_not_given_twice():
    with pytest.raises(ProducerIdsExhaustedError):
        next_block(encode_block(1, range(MAX_LONG - 5, MAX_LONG)), 0)
    for document in (b"{}", b"7", b"not json", b'{"block_end":"x"}'):
        with pytest.raises(StorageError):
            next_block(document, 0)


def test_an_id_that_a_client_made_up_does_not_use_up_all_others():
    logs = LogManager(CrashFileSystem(), ManualClock(), ["/data"], {}, "cluster", 1)
    logs.start()
    replicas = ReplicaManager(logs, Purgatory(lambda delay, work: None), IsrTables(1, ManualClock()))
    replicas.lead(EVENTS, uuid4(), {}, Leadership.alone(1))
    for producer_id in (41, MAX_LONG - 1):
        batch = encode_batch([NewRecord(b"value")], producer=BatchProducer(producer_id, 0, 0))
        replicas.append(EVENTS, batch)
    assert replicas.first_free_producer_id() == 42


def test_ids_of_logs_without_a_role_are_not_given_either():
    logs = LogManager(CrashFileSystem(), ManualClock(), ["/data"], {}, "cluster", 1)
    logs.start()
    replicas = ReplicaManager(logs, Purgatory(lambda delay, work: None), IsrTables(1, ManualClock()))
    log = logs.create(EVENTS, uuid4(), {})
    log.append(encode_batch([NewRecord(b"value")], producer=BatchProducer(41, 0, 0)), leader_epoch=0)
    assert (list(replicas.partitions), replicas.first_free_producer_id()) == ([], 42)


def test_many_who_ask_at_once_get_different_ids():
    reserved = []

    def reserve(at_least):
        start = max(BLOCK_SIZE * len(reserved), at_least)
        reserved.append(start)
        return range(start, start + 10)

    async def take_all():
        ids = ProducerIds(reserve, lambda: 500)
        return await asyncio.gather(*(ids.take() for _ in range(35)))

    taken = asyncio.run(take_all())
    assert len(set(taken)) == 35
    assert min(taken) == 500
    assert reserved == [500, 1000, 2000, 3000]


def test_ids_below_a_number_are_not_given_any_more():
    reserved = []

    def reserve(at_least):
        reserved.append(at_least)
        return range(at_least, at_least + 10)

    async def take_and_skip():
        ids = ProducerIds(reserve, lambda: 5)
        before = await ids.take()
        await ids.skip_to(700)
        return before, await ids.take()

    assert asyncio.run(take_and_skip()) == (5, 700)
    assert reserved == [5, 700]


def test_a_reservation_that_fails_is_tried_again():
    answers = iter([StorageError("full"), range(5)])

    def reserve(at_least):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def take_twice():
        ids = ProducerIds(reserve, lambda: 0)
        with pytest.raises(StorageError):
            await ids.take()
        return await ids.take()

    assert asyncio.run(take_twice()) == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageError("full"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ProducerIdsExhaustedError("none"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_client_tries_again_where_that_may_help(error, code):
    def reserve(at_least):
        raise error

    async def ask():
        fields = {"transactional_id": None, "transaction_timeout": 0, "producer_id": -1, "producer_epoch": -1}
        body = encode(ApiKey.INIT_PRODUCER_ID, 4, Direction.REQUEST, fields)
        services = SimpleNamespace(producer_ids=ProducerIds(reserve, lambda: 0), errors=Counter(), authorizer=None)
        return await transactions.init_producer_id(services, Request(4, "client", memoryview(body)))

    answer = decode(ApiKey.INIT_PRODUCER_ID, 4, Direction.RESPONSE, b"".join(asyncio.run(ask())))
    assert (answer.error_code, answer.producer_id) == (code, -1)


@pytest.mark.parametrize("transactional_id", [None, "one"])
def test_a_client_that_is_gone_at_once_leaves_nothing_behind(transactional_id):
    """The answer is cancelled before the work on it has begun; a coroutine that nobody awaits is an error here."""
    begun = []

    async def work(*_):
        begun.append(True)

    async def ask():
        fields = {
            "transactional_id": transactional_id, "transaction_timeout": 1, "producer_id": -1, "producer_epoch": -1,
        }  # fmt: skip
        body = encode(ApiKey.INIT_PRODUCER_ID, 4, Direction.REQUEST, fields)
        services = SimpleNamespace(
            producer_ids=SimpleNamespace(take=work),
            txns=SimpleNamespace(init_producer=work),
            errors=Counter(),
            authorizer=None,
        )
        answer = transactions.init_producer_id(services, Request(4, "client", memoryview(body)))
        answer.cancel()
        with suppress(asyncio.CancelledError):
            await answer

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        asyncio.run(ask())
        gc.collect()
    assert ([str(one.message) for one in found], begun) == ([], [])


def test_a_power_cut_at_any_operation_gives_no_block_twice():
    for operation in range(1, 100):
        fs = CrashFileSystem()
        fs.mkdir("/data")
        fs.fsync_dir("/")
        store = LocalStore(fs, "/data")
        store.start(lambda _: None)
        starts = [store.reserve_producer_ids(1, 0).start]
        fs.cut_power_at(fs.operations + operation)
        try:
            starts += [store.reserve_producer_ids(1, 0).start]
        except PowerCutError:
            survivor = LocalStore(fs.after_cut(Random(operation)), "/data")
            starts += [survivor.reserve_producer_ids(1, 0).start]
            assert len(set(starts)) == 2
        else:
            assert operation > 3
            return
    pytest.fail("the power was never left on")
