"""Brokers found through ZooKeeper: each of the four changes that are watched, and what a producer makes of it."""

import queue

import pytest

from millrace import Producer, SimpleConsumer
from millrace.client import Admin, Cluster
from millrace.client.producer.routes import BrokerWatch
from millrace.clock import SystemClock
from millrace.errors import BrokerUnreachableError
from millrace.testing.broker import BrokerProcess
from millrace_support.await_brokers import await_brokers
from millrace_support.waiting import until

DEADLINE_S = 60
SESSION_TIMEOUT_MS = 60_000


def test_no_broker_is_registered(zookeeper):
    with pytest.raises(BrokerUnreachableError, match="no broker is registered"):
        Producer(zk_connect=f"{zookeeper.address}/nobody-here", zk_sessiontimeout_ms=SESSION_TIMEOUT_MS)


@pytest.fixture(scope="module")
def connect(zookeeper):
    return f"{zookeeper.address}/discovery"


@pytest.fixture(scope="module")
def first(connect, tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("discovery") / "1", zookeeper=connect, broker_id=1) as broker:
        yield broker


@pytest.fixture
def second(connect, tmp_path, first):
    """Yields a second broker; both know of each other; waits at the end until the first knows of its end."""
    started = []

    def start():
        started.append(BrokerProcess(tmp_path / "2", zookeeper=connect, broker_id=2))
        await_brokers({1, 2}, first, *started)
        return started[0]

    yield start
    for broker in started:
        broker.close()
    await_brokers({1}, first)


@pytest.fixture
def admin(first):
    with Cluster(first.bootstrap) as cluster:
        yield Admin(cluster)


@pytest.fixture
def changes(connect, first):
    """The live brokers, after each change that a watch tells of."""
    told = queue.Queue()
    watch = BrokerWatch(
        connect,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        on_change=lambda bootstrap: told.put(set(bootstrap.split(","))),
        clock=SystemClock(),
    )
    yield told
    watch.close()


def await_told(changes, *brokers):
    while changes.get(timeout=DEADLINE_S) != {broker.bootstrap for broker in brokers}:
        pass


def test_a_new_broker_and_a_lost_one_are_told(first, second, changes):
    broker = second()
    await_told(changes, first, broker)
    broker.stop()
    await_told(changes, first)


def test_a_new_topic_is_told(first, admin, changes):
    admin.create_topic("told", 1)
    await_told(changes, first)


def test_a_topic_that_a_broker_takes_on_is_told(first, admin, request):
    admin.create_topic("taken", 1)
    changes = request.getfixturevalue("changes")  # once the topic is there
    assert changes.empty()
    admin.create_partitions("taken", 2)
    await_told(changes, first)


@pytest.fixture
def producer(connect, first):
    """What is not watched it learns after five minutes only."""
    with Producer(zk_connect=connect, zk_sessiontimeout_ms=SESSION_TIMEOUT_MS, retry_backoff_ms=20) as producer:
        yield producer


def test_brokers_come_and_go_in_a_producers_pool(first, second, admin, producer):
    assert producer.send("before", b"v").result().offset == 0
    broker = second()
    until(lambda: len(producer._routes.brokers) == 2)
    admin.create_topic("after", 2)
    assert [producer.send("after", b"%d" % number, partition=number).result().offset for number in range(2)] == [0, 0]
    assert [len(list(one.data_dir.glob("after-*"))) for one in (first, broker)] == [1, 1]
    assert len(producer._sender._links) == 2
    broker.stop()
    until(lambda: len(producer._routes.brokers) == 1)
    until(lambda: len(producer._sender._links) == 1)
    await_brokers({1}, first)
    alone = producer.send("later", b"v").result()
    with SimpleConsumer(first.bootstrap) as consumer:
        assert [record.value for record in consumer.messages("later", alone.partition)] == [b"v"]


def test_a_producer_goes_to_the_broker_that_takes_on_its_topic(first, second, admin, producer):
    admin.create_topic("shared", 1)  # new to the producer's watch, too
    assert producer.send("shared", b"v").result().partition == 0
    broker = second()
    until(lambda: len(producer._routes.brokers) == 2)
    admin.create_partitions("shared", 2)
    until(lambda: producer.partitions("shared") == 2)
    assert producer.send("shared", b"w", partition=1).result().offset == 0
    assert {len(list(one.data_dir.glob("shared-*"))) for one in (first, broker)} == {1}
    assert len(producer._sender._links) == 2
