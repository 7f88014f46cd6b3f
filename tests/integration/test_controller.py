"""Controllers on a real ZooKeeper, and sockets that note what they send."""

import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from uuid import UUID, uuid4

import pytest
from tenacity import retry, stop_after_delay, wait_fixed

from millrace.addresses import plaintext_endpoint
from millrace.client.connection import Connection
from millrace.clock import SystemClock
from millrace.errors import ErrorCode, NotControllerError
from millrace.wire.api import ApiKey
from millrace.zk import codec, paths
from millrace.zk.operations import Delete
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_broker.cluster.metadata_image import TopicIdPartition
from millrace_broker.controller.active_controller import ControllerConfig
from millrace_broker.controller.controller import Controller
from millrace_broker.controller.elections import IsrProposal
from millrace_broker.storage import TopicPartition
from millrace_support.recording_broker import RecordingBroker
from millrace_support.zookeeper_sessions import expire, started

WAIT_S = 120
DEFAULTS = ControllerConfig()
FIRST = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)
FIRST_BY_ID = TopicIdPartition(TOPIC_ID, 0)
within_time = retry(stop=stop_after_delay(WAIT_S), wait=wait_fixed(0.05), reraise=True)
connect = partial(Connection, client_id="controller", timeout_s=WAIT_S, clock=SystemClock())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def address(server):
    return f"{server.address}/tests/{uuid4().hex}"


class Member:
    """A broker of the cluster: its socket, its session, its controller."""

    def __init__(self, address, broker_id, stack, config, registers_again=True):
        self.id = broker_id
        self.socket = stack.enter_context(RecordingBroker())
        self.session = stack.enter_context(started(address, self.zookeeper_changed))
        for path in paths.PERSISTENT:
            self.session.ensure(path)
        self.controller = Controller(self.session, broker_id, config, connect, SystemClock())
        self.epochs = []
        registration = codec.BrokerRegistration(
            endpoints=(plaintext_endpoint("127.0.0.1", self.socket.port),),
            rack=None,
            timestamp_ms=0,
            registers_again=registers_again,
        )
        data = codec.encode_broker(registration)
        self.session.register(paths.broker(broker_id), data, wait_ms=0, on_registered=self.epochs.append)

    def zookeeper_changed(self, changed):
        self.controller.zookeeper_changed(changed)

    def roles(self, key=FIRST, **wanted):
        """Returns the first role that this broker was told of a partition."""

        def is_wanted(request):
            return request.key is ApiKey.LEADER_AND_ISR and any(role_of(request, key, wanted))

        return next(role_of(self.socket.await_request(is_wanted), key, wanted))


def role_of(request, key, wanted):
    return (
        state
        for topic in request.message.topic_states
        for state in topic.partition_states
        if (topic.topic_name, state.partition_index) == key
        and all(getattr(state, name) == value for name, value in wanted.items())
    )


@contextmanager
def members(address, *broker_ids, config=DEFAULTS):
    with ExitStack() as stack:
        yield [Member(address, broker_id, stack, config) for broker_id in broker_ids]


@contextmanager
def running(*controllers):
    with ExitStack() as stack:
        for controller in controllers:
            controller.start()
            stack.callback(controller.stop)
        yield


def create_topic(session, name="t", *replicas):
    assignment = codec.TopicAssignment(topic_id=TOPIC_ID if name == "t" else uuid4(), replicas=replicas)
    session.create(paths.topic(name), codec.encode_topic(assignment))


@within_time
def await_state(session, key=FIRST, **wanted):
    state = codec.decode_partition_state(session.get(paths.partition_state(*key)))
    assert {name: getattr(state, name) for name in wanted} == wanted
    return state


@within_time
def await_active(*controllers):
    (active,) = [one for one in controllers if one.is_active]
    return active


@within_time
def await_gone(session, path):
    assert session.get(path) is None


@within_time
def await_registered_again(member, former_epoch):
    (node,) = member.session.nodes([paths.broker(member.id)])
    assert node.created_zxid > former_epoch
    assert member.epochs[-1] == node.created_zxid


def test_topics_are_led_brokers_fail_and_topics_are_deleted(address):
    with members(address, 1, 2) as (one, two), running(one.controller):
        create_topic(one.session, "t", (1, 2), (2, 1))
        await_state(one.session, leader=1, leader_epoch=0, isr=(1, 2), controller_epoch=1)
        for member in (one, two):
            role = member.roles()
            assert (role.leader, role.replicas, role.is_new) == (1, (1, 2), True)
            kinds = [request.key for request in member.socket.requests]
            assert kinds[0] is ApiKey.UPDATE_METADATA, "the live brokers come first"
            assert {request.message.broker_epoch for request in member.socket.requests} == set(member.epochs)
        two.session.close()
        await_state(one.session, TopicPartition("t", 1), leader=1, leader_epoch=1, isr=(1,))
        assert one.roles(TopicPartition("t", 1), leader=1).leader_epoch == 1
        one.session.create(paths.delete_topic("t"), b"")
        one.socket.await_request(lambda request: request.key is ApiKey.STOP_REPLICA)
        with members(address, 2):
            await_gone(one.session, paths.delete_topic("t"))
        assert one.session.tree(paths.topic("t")) == []


def test_the_next_controller_takes_over_when_one_stops(address):
    with members(address, 1, 2) as (one, two):
        one.controller.start()
        await_active(one.controller)
        with running(two.controller):
            create_topic(one.session, "t", (1, 2))
            await_state(one.session, leader=1)
            assert not two.controller.is_active
            with pytest.raises(NotControllerError):
                two.controller.asked(lambda active: active.shut_down(1, -1)).result(WAIT_S)
            one.controller.stop()
            assert await_active(two.controller) is two.controller
            two.socket.await_request(lambda request: request.message.controller_epoch == 2)
            assert two.controller.asked(lambda active: active.shut_down(1, one.epochs[0])).result(WAIT_S) == []
            await_state(two.session, leader=2, leader_epoch=1, isr=(2,), controller_epoch=2)


def test_a_controller_whose_session_expires_is_one_no_longer_and_comes_back(address):
    with members(address, 1, 2) as (one, two), running(one.controller):
        create_topic(one.session, "t", (1, 2))
        await_state(two.session, leader=1, controller_epoch=1)
        expire(address, one.session.client_id)
        one.socket.await_request(lambda request: request.message.controller_epoch == 2)
        assert await_active(one.controller) is one.controller
        former, current = one.epochs
        await_state(two.session, leader=2, leader_epoch=1, isr=(2,), controller_epoch=2)
        assert (
            one.controller.asked(lambda active: active.alter_partitions(1, former, {})).result(WAIT_S)
            is ErrorCode.STALE_BROKER_EPOCH
        )
        assert one.controller.asked(lambda active: active.alter_partitions(1, current, {})).result(WAIT_S) == {}


def test_others_lead_when_a_process_has_ended_though_its_session_goes_on(address):
    with members(address, 1, 2) as (one, two), running(one.controller):
        create_topic(one.session, "t", (2, 1))
        await_state(one.session, leader=2, isr=(2, 1))
        two.roles()
        (before,) = two.epochs
        two.socket.close()
        state = await_state(one.session, leader=1, leader_epoch=1, isr=(1,))
        assert state.controller_epoch == 1
        assert one.roles(leader=1).leader_epoch == 1
        await_registered_again(two, before)


def test_another_is_the_controller_when_the_process_of_the_former_has_ended(address):
    with members(address, 1, 2) as (one, two), running(one.controller):
        create_topic(one.session, "t", (1, 2))
        await_state(one.session, leader=1)
        with running(two.controller):
            one.roles()
            one.socket.await_connections(3)  # its own channel, its own watch, and that of the other broker
            one.controller.zookeeper_changed = lambda _: None  # it is dead, but for its session
            one.socket.close()
            await_active(two.controller)
            await_state(two.session, leader=2, leader_epoch=1, isr=(2,), controller_epoch=2)


def test_a_broker_that_does_not_register_again_keeps_its_partitions_for_as_long_as_its_session_lasts(address):
    """Apache Kafka's brokers do not; one that was taken for gone by mistake would be gone for good."""
    with ExitStack() as stack:
        one = Member(address, 1, stack, DEFAULTS)
        two = Member(address, 2, stack, DEFAULTS, registers_again=False)
        with running(one.controller):
            create_topic(one.session, "t", (2, 1))
            await_state(one.session, leader=2)
            two.roles()
            two.socket.close()
            three = Member(address, 3, stack, DEFAULTS)
            three.socket.await_request(lambda request: request.key is ApiKey.UPDATE_METADATA)
            assert await_state(one.session, leader=2).leader_epoch == 0
            two.session.close()
            await_state(one.session, leader=1, leader_epoch=1, isr=(1,))


def test_a_controller_that_slept_can_write_nothing_any_more(address):
    with members(address, 1, 2, 3) as (one, two, three), running(one.controller):
        create_topic(one.session, "t", (1, 2, 3))
        await_state(one.session, leader=1)
        asleep, awake = threading.Event(), threading.Event()

        def sleep(_active):
            asleep.set()
            awake.wait(WAIT_S)

        one.controller.asked(sleep)
        assert asleep.wait(WAIT_S)
        three.session.close()
        proposal = IsrProposal(1, 0, 0, {1: -1}, 0)
        late = one.controller.asked(lambda active: active.alter_partitions(1, one.epochs[0], {FIRST_BY_ID: proposal}))
        two.session.multi([Delete(paths.CONTROLLER)])  # as an operator moves the role
        with running(two.controller):
            await_active(two.controller)
            before = await_state(two.session, leader_epoch=1, isr=(1, 2), controller_epoch=2)
            awake.set()
            with pytest.raises(NotControllerError):
                late.result(WAIT_S)
            await_active(one.controller, two.controller)
            assert await_state(two.session) == before
            outcomes = two.controller.asked(
                lambda active: active.alter_partitions(
                    1, one.epochs[0], {FIRST_BY_ID: IsrProposal(1, 1, 1, {1: -1}, 0)}
                )
            ).result(WAIT_S)
            assert outcomes[FIRST_BY_ID].isr == (1,)


def test_a_broker_that_does_not_answer_gets_everything_later_and_in_order(address):
    with members(address, 1, 2) as (one, two):
        port = two.socket.port
        two.socket.close()
        with running(one.controller):
            create_topic(one.session, "t", (1, 2))
            assert one.roles().leader == 1, "the others do not wait for it"
            create_topic(one.session, "u", (2, 1))
            with RecordingBroker(port) as back:
                two.socket = back
                assert two.roles(TopicPartition("u", 0)).leader == 2
                kinds = [request.key for request in back.requests]
        leads, tells = ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA
        assert kinds[:2] == [tells, leads]
        assert kinds.count(leads) == 2


def test_a_leader_is_answered_and_ids_are_given(address):
    with members(address, 1, 2) as (one, two), running(one.controller):
        create_topic(one.session, "t", (1, 2))
        await_state(one.session, leader=1)
        epoch = one.epochs[0]
        outcomes = one.controller.asked(
            lambda active: active.alter_partitions(1, epoch, {FIRST_BY_ID: IsrProposal(1, 0, 0, {1: -1}, 0)})
        ).result(WAIT_S)
        assert outcomes[FIRST_BY_ID].partition_epoch == 1
        assert (
            one.controller.asked(lambda active: active.alter_partitions(1, epoch - 1, {})).result(WAIT_S)
            is ErrorCode.STALE_BROKER_EPOCH
        )
        assert one.controller.asked(lambda active: active.allocate_producer_ids(2, two.epochs[0])).result(
            WAIT_S
        ) == range(1000)
        assert one.controller.asked(lambda active: active.allocate_producer_ids(2, two.epochs[0])).result(
            WAIT_S
        ) == range(1000, 2000)


def test_leaders_go_back_to_the_first_replicas_by_themselves(address):
    often = ControllerConfig(rebalance_interval_s=0.05)
    with members(address, 1, config=often) as (one,), running(one.controller):
        create_topic(one.session, "t", (2, 1))
        await_state(one.session, leader=1, leader_epoch=0, isr=(1,))
        with members(address, 2) as (two,):
            two.roles(leader=1)
            both = {FIRST_BY_ID: IsrProposal(1, 0, 0, {1: -1, 2: -1}, 0)}
            assert one.controller.asked(lambda active: active.alter_partitions(1, one.epochs[0], both)).result(WAIT_S)[
                FIRST_BY_ID
            ].isr == (1, 2)
            await_state(one.session, leader=2, leader_epoch=1, isr=(1, 2))
