"""Records of a transaction are taken once its coordinator, here or on another broker, has the partition in it."""

import asyncio

import pytest

from millrace.errors import AnswerLostError, ErrorCode
from millrace_broker.txns.admission import ASK_AGAIN, ClientSupport, TransactionalWrite
from millrace_broker.txns.state import Producer
from millrace_support.transaction_home import EVENTS, PRODUCER
from millrace_support.until import until


def test_records_wait_for_the_coordinator_on_another_broker(play):
    """It is asked to verify or to add a partition that may not be in the transaction; the client is told its answer."""
    told = {
        (ClientSupport.NONE, ErrorCode.TRANSACTION_ABORTABLE): ErrorCode.INVALID_TXN_STATE,
        (ClientSupport.GENERIC_ERROR, ErrorCode.TRANSACTION_ABORTABLE): ErrorCode.TRANSACTION_ABORTABLE,
        (ClientSupport.EPOCH_BUMP, ErrorCode.PRODUCER_FENCED): ErrorCode.INVALID_PRODUCER_EPOCH,
        (ClientSupport.EPOCH_BUMP, ErrorCode.NOT_COORDINATOR): ErrorCode.NOT_COORDINATOR,
        (ClientSupport.EPOCH_BUMP, ErrorCode.NONE): ErrorCode.NONE,
    }

    async def scene(home):
        for (support, answered), expected in told.items():
            verification = home.admit(support)
            ((broker_id, question, answer),) = home.elsewhere.asked
            assert (broker_id, question) == (2, ("t", PRODUCER, (EVENTS,), support is not ClientSupport.EPOCH_BUMP))
            answer.set_result({EVENTS: answered})
            assert await verification.errors() == {EVENTS: expected}
            home.elsewhere.asked.clear()
        verification = home.admit(ClientSupport.EPOCH_BUMP)
        home.elsewhere.asked[-1][2].set_exception(AnswerLostError("gone"))
        assert await verification.errors() == {EVENTS: ASK_AGAIN}

    play(scene, led=(EVENTS,), leader=2)


def test_records_that_follow_in_a_transaction_ask_nobody(play):
    async def scene(home):
        home.produce(PRODUCER)
        assert home.admit(ClientSupport.EPOCH_BUMP) == {EVENTS: ErrorCode.NONE}
        assert home.elsewhere.asked == []

    play(scene, led=(EVENTS,), leader=2)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_marker_that_overtakes_the_coordinators_answer_voids_it(play, is_first):
    """Otherwise the batch would begin a transaction that nothing ends (KAFKA-14884)."""

    async def scene(home):
        if not is_first:
            home.end_in_partition(PRODUCER)
        verification = home.admit(ClientSupport.NONE)
        home.elsewhere.asked[-1][2].set_result({EVENTS: ErrorCode.NONE})
        home.end_in_partition(PRODUCER)
        assert await verification.errors() == {EVENTS: ASK_AGAIN}

    play(scene, led=(EVENTS,), leader=2)


def test_a_batch_waits_for_the_markers_of_the_transaction_before(play):
    """The coordinator is asked again, under another guard, for `add.partitions.to.txn.retry.backoff.max.ms`."""
    tries = 100 // 20

    async def scene(home):
        waiting = asyncio.ensure_future(home.admit(ClientSupport.EPOCH_BUMP).errors())
        for number in range(1, tries + 1):
            await until(lambda: len(home.elsewhere.asked) == number)  # noqa: B023  # called in this turn
            home.elsewhere.asked[-1][2].set_result({EVENTS: ErrorCode.CONCURRENT_TRANSACTIONS})
        await until(lambda: len(home.elsewhere.asked) == tries + 1)
        home.end_in_partition(Producer(1, 0))
        home.elsewhere.asked[-1][2].set_result({EVENTS: ErrorCode.CONCURRENT_TRANSACTIONS})
        assert await waiting == {EVENTS: ASK_AGAIN}
        waiting = asyncio.ensure_future(home.admit(ClientSupport.EPOCH_BUMP).errors())
        home.elsewhere.asked[-1][2].set_result({EVENTS: ErrorCode.CONCURRENT_TRANSACTIONS})
        home.end_in_partition(Producer(1, 0))
        await until(lambda: len(home.elsewhere.asked) == tries + 3)
        home.elsewhere.asked[-1][2].set_result({EVENTS: ErrorCode.NONE})
        assert await waiting == {EVENTS: ErrorCode.NONE}

    play(scene, led=(EVENTS,), leader=2)


def test_of_two_waiting_batches_the_second_follows_the_first(play):
    async def scene(home):
        first, second = home.admit(ClientSupport.NONE), home.admit(ClientSupport.NONE)
        for _, _, answer in home.elsewhere.asked:
            answer.set_result({EVENTS: ErrorCode.NONE})
        assert await first.errors() == {EVENTS: ErrorCode.NONE}
        home.produce(PRODUCER)
        assert await second.errors() == {EVENTS: ErrorCode.NONE}

    play(scene, led=(EVENTS,), leader=2)


def test_records_wait_for_the_replicas_of_the_coordinator(play):
    async def scene(home):
        producer = await home.init()
        home.replicas.lag = True
        write = TransactionalWrite("t", producer, ClientSupport.EPOCH_BUMP)
        verification = home.admission.admit(write, {EVENTS: home.replicas.partition(EVENTS)})
        waiting = asyncio.ensure_future(verification.errors())
        await asyncio.sleep(0)
        assert not waiting.done()
        home.replicas.catch_up()
        assert await waiting == {EVENTS: ErrorCode.NONE}

    play(scene)
