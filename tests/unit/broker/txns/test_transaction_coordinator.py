"""The transaction coordinator on real logs: where it is, loading, markers that wait, time, listing."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from millrace.errors import AnswerLostError, BrokerUnreachableError, ErrorCode, StorageError, ZooKeeperError
from millrace.fs import OsFileSystem
from millrace.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace_broker.cluster.deletion_lookup import DeletionLookup
from millrace_broker.cluster.local_store import LocalStore
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.producer_ids import ProducerIds
from millrace_broker.cluster.topic_manager import TopicManager
from millrace_broker.cluster.view import ClusterView, PartitionInfo, TopicInfo
from millrace_broker.groups import commits
from millrace_broker.groups.commits import Commit
from millrace_broker.groups.group import Committer
from millrace_broker.groups.group_coordinator import GroupCoordinator
from millrace_broker.properties.broker_config import BrokerConfig
from millrace_broker.properties.group_config import GroupConfig
from millrace_broker.properties.transaction_config import TransactionConfig
from millrace_broker.replication.isr_tables import IsrTables
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.roles import Leadership
from millrace_broker.storage import LogManager, TopicPartition
from millrace_broker.txns.admission import Admission
from millrace_broker.txns.marker_sender import MarkerSender
from millrace_broker.txns.markers import Marker, MarkerWriter
from millrace_broker.txns.metadata import Producer
from millrace_broker.txns.overview import Filter, find_transaction, list_transactions
from millrace_broker.txns.state import TransactionState
from millrace_broker.txns.transaction import End, InitProducer
from millrace_broker.txns.transaction_coordinator import TransactionCoordinator
from millrace_broker.txns.verification import ASK_AGAIN, ClientSupport, TransactionalWrite
from millrace_support.clock import ManualClock
from millrace_support.until import until

EVENTS = TopicPartition("events", 0)
OFFSETS, STATES = TopicPartition(OFFSETS_TOPIC, 0), TopicPartition(TRANSACTION_TOPIC, 0)
PARTITIONS = (STATES, OFFSETS, EVENTS)
SOURCE = TopicPartition("source", 0)
MINUTE_MS = 60_000
PRODUCER = Producer(1, 0)


class Replicas(ReplicaManager):
    """Followers of the states that lag behind until they are told to come, and partitions that can't be written."""

    lag = False
    refused = ()

    def append(self, topic_partition, batches):
        self.check(topic_partition)
        partition = self.partition(topic_partition)
        known = partition.high_watermark
        appended = super().append(topic_partition, batches)
        if self.lag:
            partition.high_watermark = known
        return appended

    def append_marker(self, topic_partition, *marker):
        self.check(topic_partition)
        return super().append_marker(topic_partition, *marker)

    def check(self, topic_partition):
        if topic_partition in self.refused:
            raise StorageError("the disk is gone")

    def catch_up(self):
        partition = self.partition(STATES)
        partition.high_watermark = partition.log.log_end_offset
        self.purgatory.check(STATES)


class Elsewhere:
    """Other brokers, whose answers a test gives: `asked` has (broker, what it was asked, the future of its answer)."""

    def __init__(self):
        self.asked = []

    def ask(self, broker_id, item):
        answer = asyncio.get_running_loop().create_future()
        self.asked.append((broker_id, item, answer))
        return answer


class Home:
    """One broker's transactions and groups, without its sockets; timers run when a test says so."""

    def __init__(self, folder, led=PARTITIONS, leader=1):
        self.timers = []
        self.created = set()  # partitions that ZooKeeper has, whatever the view says
        self.clock = ManualClock()
        self.logs = LogManager(OsFileSystem(), self.clock, [str(folder)], {}, "A" * 22, 1)
        self.logs.start()
        self.replicas = Replicas(self.logs, Purgatory(self.call_later), IsrTables(1, self.clock))
        self.topics = {
            key.topic: TopicInfo(key.topic, UUID(int=number), (PartitionInfo(0, leader, 0, (1,), (1,)),), {})
            for number, key in enumerate(PARTITIONS, 1)
        }
        self.metadata = MetadataCache(ClusterView("c", 1, {}, self.topics))
        store = LocalStore(OsFileSystem(), str(folder))
        manager = TopicManager(BrokerConfig.from_properties({}), store, self.metadata, lambda _: None)
        shared = {"clock": self.clock, "call_later": self.call_later}
        self.groups = GroupCoordinator(GroupConfig(), self.replicas, self.metadata, manager, **shared)
        self.elsewhere = Elsewhere()
        self.txns = TransactionCoordinator(
            TransactionConfig(transaction_state_log_load_buffer_size=200),
            self.replicas,
            self.metadata,
            manager,
            MarkerSender(MarkerWriter(self.replicas, self.groups), self.metadata, self.elsewhere, broker_id=1),
            deletions=DeletionLookup(self.metadata, self.has_partition),
            broker_id=1,
            producer_ids=ProducerIds(lambda at_least: store.reserve_producer_ids(1, at_least), lambda: 0),
            call_soon=asyncio.get_running_loop().call_soon,
            **shared,
        )
        self.admission = Admission(self.txns, self.elsewhere)
        for key in led:
            self.lead(key)

    def has_partition(self, topic, index):
        return (topic, index) in self.created

    def admit(self, support):
        """Admits a batch of `PRODUCER` in transaction `t`; returns the errors, or the verification."""
        write = TransactionalWrite("t", PRODUCER, support)
        return self.admission.admit(write, {EVENTS: self.replicas.partition(EVENTS)})

    def end_in_partition(self, producer):
        """Write a marker, as the coordinator on another broker does."""
        errors = []
        self.txns.markers.local.write(EVENTS, Marker(producer, False, 0), errors.append)
        assert errors == [ErrorCode.NONE]

    def move(self, key, leader):
        """Let the cluster's view have another leader of a topic."""
        topic = self.topics[key.topic]
        self.topics[key.topic] = replace(topic, partitions=(PartitionInfo(0, leader, 1, (leader,), (leader,)),))
        self.metadata.update(ClusterView("c", 1, {}, dict(self.topics)))

    async def init_error(self):
        return (await self.txns.init_producer("t", InitProducer(MINUTE_MS))).error

    def lead(self, key, leader_epoch=0):
        leadership = Leadership.alone(1, leader_epoch)
        self.replicas.lead(key, self.topics[key.topic].topic_id, {}, leadership)
        self.groups.led.elected(key)
        self.txns.led.elected(key)

    def call_later(self, delay_s, work):
        timer = Timer(work)
        self.timers.append(timer)
        return timer

    def run_timers(self):
        timers, self.timers = self.timers, []
        for timer in timers:
            if timer.is_set:
                timer.work()

    async def loaded(self):
        await asyncio.gather(*self.txns.led._loading, *self.groups.led._loading)
        await asyncio.sleep(0)  # what was decided is carried out

    async def init(self, name="t", **options):
        error, producer = await self.txns.init_producer(name, InitProducer(MINUTE_MS, **options))
        assert not error, error
        return producer

    async def add(self, producer, *keys, name="t", version=0):
        return (await self.txns.add_partitions(name, producer, keys or [EVENTS], version)).error

    async def end(self, producer, *, is_commit=True, name="t", version=0):
        error, _ = await self.txns.end(name, End(producer, is_commit, version))
        await asyncio.sleep(0)  # what follows the answer comes before the next request
        return error

    def produce(self, producer, sequence=0):
        producer = BatchProducer(*producer, sequence)
        self.replicas.append(EVENTS, encode_batch([NewRecord(b"v")], producer=producer, flags=TRANSACTIONAL_FLAG))

    def state(self, name="t"):
        return self.txns.find(name).state

    @property
    def is_stable(self):
        partition = self.replicas.partition(EVENTS)
        return partition.last_stable_offset == partition.high_watermark

    def close(self):
        self.groups.led.close()
        self.txns.led.close()
        self.logs.close()


class Timer:
    """A timer that has been set."""

    def __init__(self, work):
        self.work = work
        self.is_set = True

    def cancel(self):
        self.is_set = False


@pytest.fixture
def play(tmp_path):
    """Run a scene; the folder stays for the next one."""

    def run(scene, **options):
        async def whole():
            home = Home(tmp_path, **options)
            try:
                await home.loaded()
                return await asyncio.wait_for(scene(home), 30)
            finally:
                home.close()

        return asyncio.run(whole())

    return run


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
        told = home.metadata.view
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
