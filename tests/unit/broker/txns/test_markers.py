"""Markers end a transaction in each of its partitions, whoever leads the partition and whoever coordinates by then."""

import asyncio
from dataclasses import replace

from millrace.errors import BrokerUnreachableError, ErrorCode, ZooKeeperError
from millrace_broker.cluster.metadata_cache import DeletionLookup
from millrace_broker.replication.roles import Leadership
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.markers import Marker
from millrace_broker.txns.state import TransactionState
from millrace_broker.txns.transaction import End, InitProducer
from millrace_support.transaction_home import EVENTS, MINUTE_MS, OFFSETS, PRODUCER, STATES
from millrace_support.until import until


def test_the_answer_comes_first_and_the_markers_before_any_other_request(play):
    async def scene(home):
        producer = await home.init()
        await home.add(producer)
        home.produce(producer)
        ending = home.txns.end("t", End(producer, True, 0))
        assert ending.done()
        assert (home.state(), home.is_stable) == (TransactionState.PREPARE_COMMIT, False)
        await asyncio.sleep(0)
        assert (home.state(), home.is_stable) == (TransactionState.COMPLETE_COMMIT, True)

    play(scene)


def test_a_marker_that_can_not_be_written_now_is_written_later(play):
    async def scene(home):
        producer = await home.init()
        await home.add(producer)
        home.produce(producer)
        home.replicas.refused = [EVENTS]
        assert await home.end(producer) is ErrorCode.NONE
        assert await home.add(producer) is ErrorCode.CONCURRENT_TRANSACTIONS
        home.run_timers()
        assert (home.state(), home.is_stable) == (TransactionState.PREPARE_COMMIT, False)
        home.replicas.refused = ()
        home.run_timers()
        assert (home.state(), home.is_stable) == (TransactionState.COMPLETE_COMMIT, True)

    play(scene)


def test_a_decision_is_carried_out_by_whoever_takes_over(play):
    async def decide(home):
        producer = await home.init()
        await home.add(producer)
        home.produce(producer)
        home.replicas.refused = [EVENTS]
        await home.end(producer, is_commit=False)

    async def take_over(home):
        assert home.state() is TransactionState.PREPARE_ABORT
        home.lead(EVENTS)
        home.run_timers()
        assert (home.state(), home.is_stable) == (TransactionState.COMPLETE_ABORT, True)

    play(decide)
    play(take_over, led=(STATES, OFFSETS))


def test_a_partition_that_is_gone_needs_no_marker(play):
    async def scene(home):
        producer = await home.init()
        gone = TopicPartition("gone", 0)
        await home.add(producer, EVENTS, gone)
        assert await home.end(producer) is ErrorCode.NONE
        await until(lambda: home.state() is TransactionState.COMPLETE_COMMIT)

    play(scene)


def test_a_partition_that_the_view_lacks_is_waited_for(play):
    """A broker that coordinates right after its start may not have been told of all partitions."""

    async def scene(home):
        producer = await home.init()
        await home.add(producer)
        home.produce(producer)
        told = home.metadata.image
        untold = replace(told, topics={name: one for name, one in told.topics.items() if name != EVENTS.topic})
        home.metadata.update(untold)
        home.replicas.resign(EVENTS)
        home.created = {EVENTS}
        assert await home.end(producer) is ErrorCode.NONE
        for _ in range(2):
            await until(lambda: home.timers)
            assert home.state() is TransactionState.PREPARE_COMMIT
            home.run_timers()
        home.metadata.update(told)
        home.lead(EVENTS)
        await until(lambda: home.timers)
        home.run_timers()
        assert (home.state(), home.is_stable) == (TransactionState.COMPLETE_COMMIT, True)

    play(scene)


def test_a_partition_is_not_deleted_while_zookeeper_does_not_say_so(play):
    async def scene(home):
        def no_answer(_topic, _index):
            raise ZooKeeperError("the connection is lost")

        answers = []
        DeletionLookup(home.metadata, no_answer).ask(TopicPartition("gone", 0), answers.append)
        await until(lambda: answers == [False])
        DeletionLookup(home.metadata, home.has_partition).ask(TopicPartition("gone", 0), answers.append)
        await until(lambda: answers == [False, True])

    play(scene)


def test_a_marker_follows_its_partition_from_leader_to_leader(play):
    async def scene(home):
        producer = await home.init()
        await home.add(producer)
        home.move(EVENTS, 2)
        assert await home.end(producer) is ErrorCode.NONE
        (broker_id, (key, marker), answer) = home.elsewhere.asked.pop()
        assert (broker_id, key, marker) == (2, EVENTS, Marker(producer, True, 0))
        answer.set_result(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        home.move(EVENTS, 3)
        await asyncio.sleep(0)
        home.run_timers()
        assert home.elsewhere.asked[0][0] == 3
        home.elsewhere.asked.pop()[2].set_exception(BrokerUnreachableError("gone"))
        home.move(EVENTS, 1)
        await asyncio.sleep(0)
        assert home.state() is TransactionState.PREPARE_COMMIT
        home.lead(EVENTS)
        home.run_timers()
        assert home.state() is TransactionState.COMPLETE_COMMIT

    play(scene, led=(STATES, OFFSETS))


def test_a_coordinator_that_moves_answers_at_once_and_sends_no_marker_again(play):
    async def scene(home):
        producer = await home.init()
        await home.add(producer)
        home.move(EVENTS, 2)
        assert await home.end(producer) is ErrorCode.NONE
        home.replicas.lag = True
        adding = home.txns.add_partitions("t", producer, [OFFSETS], 0)
        assert adding.result().error is ErrorCode.CONCURRENT_TRANSACTIONS
        initializing = asyncio.ensure_future(home.txns.init_producer("other", InitProducer(MINUTE_MS)))
        await until(lambda: len(home.replicas.purgatory) == 1)
        home.txns.led.resigned(STATES)
        home.replicas.resign(STATES)
        assert (await initializing).error is ErrorCode.NOT_COORDINATOR
        assert (await home.init_error()) is ErrorCode.NOT_COORDINATOR
        home.elsewhere.asked.pop()[2].set_result(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        await asyncio.sleep(0)
        home.run_timers()
        assert home.elsewhere.asked == []

    play(scene, led=(STATES, OFFSETS))


def test_a_coordinator_that_moves_away_and_back_sends_the_markers_under_its_new_epoch(play):
    async def scene(home):
        producer = await home.init()
        await home.add(producer)
        home.move(EVENTS, 2)
        assert await home.end(producer) is ErrorCode.NONE
        assert home.elsewhere.asked.pop()[1] == (EVENTS, Marker(producer, True, 0))
        home.txns.led.resigned(STATES)
        topic_id = home.topics[STATES.topic].topic_id
        home.replicas.follow(STATES, topic_id, {}, leader=2, leader_epoch=1)
        assert await home.init_error() is ErrorCode.NOT_COORDINATOR
        home.lead(STATES, leader_epoch=2)
        await home.loaded()
        ((_, asked, answer),) = home.elsewhere.asked
        assert asked == (EVENTS, Marker(producer, True, 2))
        answer.set_result(ErrorCode.NONE)
        await until(lambda: home.state() is TransactionState.COMPLETE_COMMIT)

    play(scene, led=(STATES, OFFSETS))


def test_a_coordinator_that_stays_one_in_a_newer_epoch_keeps_its_transactions(play):
    """Its log was not cut, so what waits for the replicas goes on; markers have the new epoch."""

    async def scene(home):
        producer = await home.init()
        await home.add(producer)
        home.produce(producer)
        shard = home.txns.led.of_partition(0)
        home.replicas.lag = True
        ending = asyncio.ensure_future(home.end(producer))
        await asyncio.sleep(0)
        assert not ending.done()
        home.replicas.lag = False
        home.lead(STATES, leader_epoch=3)
        assert await ending is ErrorCode.NONE
        assert home.txns.led.of_partition(0) is shard
        assert home.state() is TransactionState.COMPLETE_COMMIT
        entry = home.replicas.partition(EVENTS).log.producers.entries[producer.producer_id]
        assert entry.coordinator_epoch == 3

    play(scene)


def test_too_few_in_sync_take_no_marker(play):
    """The coordinator tries again until enough are in sync, or another broker leads."""

    async def scene(home):
        partition = home.replicas.partition(EVENTS)
        home.replicas.lead(EVENTS, partition.topic_id, {"min.insync.replicas": "2"}, Leadership(1, 0, (1, 2), (1,)))
        errors = []
        home.txns.markers.local.write(EVENTS, Marker(PRODUCER, False, 0), errors.append)
        assert errors == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert partition.log.log_end_offset == 0

    play(scene)
