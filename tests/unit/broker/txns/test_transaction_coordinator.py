"""The transaction coordinator on real logs: where it is, loading, lagging replicas, time, listing, offsets."""

import asyncio

from millrace.errors import ErrorCode
from millrace.records.record import BatchProducer
from millrace_broker.groups import commits
from millrace_broker.groups.commits import Commit
from millrace_broker.groups.group import Committer
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.admission import ClientSupport, TransactionalWrite
from millrace_broker.txns.state import Producer, TransactionState
from millrace_broker.txns.transaction import InitProducer
from millrace_broker.txns.transaction_coordinator import Filter, find_transaction, list_transactions
from millrace_support.transaction_home import EVENTS, MINUTE_MS, OFFSETS, STATES, Home

SOURCE = TopicPartition("source", 0)


def test_an_id_of_another_partition_is_not_coordinated_here(play):
    async def scene(home):
        assert (await home.txns.init_producer("t", InitProducer(1))).error is ErrorCode.NOT_COORDINATOR
        assert await home.add(Producer(1, 0)) is ErrorCode.NOT_COORDINATOR
        assert await home.end(Producer(1, 0)) is ErrorCode.NOT_COORDINATOR
        assert home.txns.verify("t", Producer(1, 0), [EVENTS]) == {EVENTS: ErrorCode.NOT_COORDINATOR}
        assert find_transaction(home.txns, "t") is ErrorCode.NOT_COORDINATOR

    play(scene, led=(EVENTS,))


def test_what_can_not_be_an_id_is_refused(play):
    async def scene(home):
        for name in ("", "x" * 2**15):
            assert (await home.txns.init_producer(name, InitProducer(1))).error is ErrorCode.INVALID_REQUEST
        for timeout_ms in (0, -1, 900_001):
            refused = await home.txns.init_producer("t", InitProducer(timeout_ms))
            assert refused.error is ErrorCode.INVALID_TRANSACTION_TIMEOUT

    play(scene)


def test_while_it_is_loaded_clients_are_told_to_come_again(play, tmp_path):
    async def first(home):
        producer = await home.init()
        for number in range(20):
            assert not await home.add(producer, TopicPartition("events", 0), TopicPartition("other", number))
        return producer

    producer = play(first)

    async def second():
        home = Home(tmp_path)
        assert (await home.txns.init_producer("t", InitProducer(1))).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert list_transactions(home.txns, Filter(), 0)[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await home.loaded()
        assert await home.add(producer) is ErrorCode.NONE
        assert home.state() is TransactionState.ONGOING
        home.close()

    asyncio.run(second())


def test_the_last_record_is_stored_again_until_it_is_taken(play):
    async def scene(home):
        producer = await home.init()
        await home.add(producer)
        home.replicas.lag = True
        ended = asyncio.ensure_future(home.end(producer))
        await asyncio.sleep(0)
        home.replicas.lag = False
        home.replicas.refused = [STATES]
        home.replicas.catch_up()
        assert await ended is ErrorCode.NONE
        assert home.state() is TransactionState.PREPARE_COMMIT
        home.replicas.refused = ()
        home.run_timers()
        assert home.state() is TransactionState.COMPLETE_COMMIT

    play(scene)


def test_replicas_that_lag_behind_keep_everyone_waiting(play):
    async def scene(home):
        producer = await home.init()
        home.replicas.lag = True
        adding = home.txns.add_partitions("t", producer, [EVENTS], 2)
        assert not adding.done()
        write = TransactionalWrite("t", producer, ClientSupport.EPOCH_BUMP)
        partitions = {EVENTS: home.replicas.partition(EVENTS)}
        verification = home.admission.admit(write, partitions)
        assert await verification.errors() == {EVENTS: ErrorCode.CONCURRENT_TRANSACTIONS}
        verification = home.admission.admit(write, partitions)
        home.replicas.catch_up()
        assert (await adding).error is ErrorCode.NONE
        assert await verification.errors() == {EVENTS: ErrorCode.NONE}
        assert home.admission.admit(write, partitions) == {EVENTS: ErrorCode.NONE}

    play(scene)


def test_a_write_that_fails_is_told(play):
    async def scene(home):
        producer = await home.init()
        home.replicas.refused = [STATES]
        assert await home.add(producer) is ErrorCode.NOT_COORDINATOR
        home.replicas.refused = ()
        assert await home.add(producer) is ErrorCode.NONE

    play(scene)


def test_a_transaction_that_takes_too_long_is_aborted(play):
    async def scene(home):
        producer = await home.init()
        await home.add(producer)
        home.produce(producer)
        assert await home.txns.abort_timed_out() == 0
        home.clock.advance(MINUTE_MS + 1)
        assert await home.txns.abort_timed_out() == 1
        assert (home.state(), home.is_stable) == (TransactionState.COMPLETE_ABORT, True)
        assert await home.end(producer) is ErrorCode.PRODUCER_FENCED

    play(scene)


def test_requests_go_between_those_that_are_aborted(play):
    async def scene(home):
        names = ("first", "second", "third")
        for name in names:
            await home.add(await home.init(name), name=name)
        home.clock.advance(MINUTE_MS + 1)
        aborting, still_open = asyncio.ensure_future(home.txns.abort_timed_out()), set()
        while not aborting.done():
            await asyncio.sleep(0)
            still_open.add(sum(home.state(name) is TransactionState.ONGOING for name in names))
        assert (await aborting, still_open) == (3, {0, 1, 2})

    play(scene)


def test_ids_that_are_not_used_are_forgotten(play):
    async def scene(home):
        busy, _ = await home.init("busy"), await home.init("idle")
        await home.add(busy, name="busy")
        home.clock.advance(home.txns.config.transactional_id_expiration_ms)
        assert await home.txns.expire_transactional_ids() == 1
        assert find_transaction(home.txns, "idle") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert home.state("busy") is TransactionState.ONGOING

    async def afterwards(home):
        assert [one.transactional_id for one in home.txns.transactions()] == ["busy"]

    play(scene)
    play(afterwards)


def test_listing_by_state_id_duration_and_pattern(play):
    async def scene(home):
        for name in ("a-1", "a-2", "b-1"):
            producer = await home.init(name)
        await home.add(producer, name="b-1")
        home.clock.advance(1000)

        def listed(**wanted):
            error, found = list_transactions(home.txns, Filter(**wanted), home.txns.now_ms())
            return error or sorted(one.transactional_id for one in found)

        assert listed() == ["a-1", "a-2", "b-1"]
        assert listed(states=["Ongoing"]) == ["b-1"]
        assert listed(states=["ongoing"]) == []
        assert listed(producer_ids=[producer.producer_id]) == ["b-1"]
        assert listed(pattern="a-.") == ["a-1", "a-2"]
        assert listed(pattern="a") == []
        assert listed(pattern="(") is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert "b-1" in listed(duration_ms=999)
        assert "b-1" not in listed(duration_ms=1000)

    play(scene)


def test_a_coordinator_that_stays_one_while_it_is_loaded_is_loaded_once(play):
    async def first(home):
        await home.init()

    async def second(home):
        home.lead(STATES, leader_epoch=1)
        (loading,) = home.txns.led._loading
        home.lead(STATES, leader_epoch=2)
        assert home.txns.led._loading == {loading}
        assert await home.init_error() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await home.loaded()
        assert home.state() is TransactionState.EMPTY

    play(first)
    play(second, led=(EVENTS, OFFSETS))


def test_offsets_count_when_their_transaction_commits(play):
    async def commit(home, producer, offset):
        producer = BatchProducer(*producer, 0)
        committer = Committer(is_transactional=True)
        errors = await commits.commit_in_transaction(home.groups, "g", committer, [Commit(SOURCE, offset)], producer)
        return errors[SOURCE]

    def fetch(home, *, stable):
        _, (one,) = commits.fetch(home.groups, "g", [SOURCE], require_stable=stable)
        return one.error or one.offset

    async def scene(home):
        first, second = await home.init("first"), await home.init("second")
        for producer, name in ((first, "first"), (second, "second")):
            await home.add(producer, OFFSETS, name=name)
        assert await commit(home, first, 1) is ErrorCode.NONE
        assert await commit(home, second, 2) is ErrorCode.NONE
        assert (fetch(home, stable=False), fetch(home, stable=True)) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        await home.end(second, name="second")
        assert fetch(home, stable=True) == 2
        await home.end(first, name="first")
        assert fetch(home, stable=True) == 2  # which came later into the log
        await home.add(first, OFFSETS, name="first")
        await commit(home, first, 3)
        await commits.commit(home.groups, "g", Committer(), [Commit(SOURCE, 4)])
        await home.end(first, name="first")
        assert fetch(home, stable=True) == 4  # of no transaction, and later
        await home.add(first, OFFSETS, name="first")
        await commit(home, first, 5)

    async def fenced(home):
        assert (fetch(home, stable=False), fetch(home, stable=True)) == (4, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        error, _ = await home.txns.init_producer("first", InitProducer(MINUTE_MS))
        assert error is ErrorCode.CONCURRENT_TRANSACTIONS
        await asyncio.sleep(0)  # as above
        assert fetch(home, stable=True) == 4  # the fifth is aborted

    play(scene)
    play(fenced)
