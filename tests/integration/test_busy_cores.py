"""Three brokers on cores that are never idle: none of them is taken for ended, and no partition gets another leader.

Each core has two busy loops of plain priority; more loops, which get hardly any time, are runnable, so that the load
average is ten. Producers with acks=all and a consumer group go on meanwhile. A round is over when each producer and the
group have done so many records. Broker epochs, the controller's and the leaders' are read from ZooKeeper.
"""

import os
import statistics
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

import confluent_kafka
import pytest

from millrace.client import Admin, Cluster
from millrace.lifeline import cut_lifeline, start_with_lifeline
from millrace.zk import codec, paths
from millrace.zk.operations import Delete
from millrace_support.broker_clusters import broker_cluster
from millrace_support.waiting import awaited
from millrace_support.zookeeper_sessions import started

TOPIC, PARTITIONS = "events", 6
# A broker's own defaults, where those of test clusters are shorter.
PROPERTIES = {
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "zookeeper.session.timeout.ms": "18000",
    "replica.lag.time.max.ms": "30000",
    "replica.fetch.wait.max.ms": "500",
}
LOAD, LOOPS_A_CORE = 10, 2
LOOP = [sys.executable, "-c", "while True: pass"]
PRODUCERS, RECORDS, PAUSE_S = 2, 80, 0.02
PATIENCE_S = 300.0
SIGNS = ("has ended", "are gone", "is the controller no more")


@contextmanager
def busy_cores():
    """Keeps the cores that this process may use busy; yields the loops."""
    plain = LOOPS_A_CORE * len(os.sched_getaffinity(0))
    commands = [LOOP] * plain + [["nice", "-n", "19", *LOOP]] * max(0, LOAD - plain)
    with ExitStack() as stack:
        loops = []
        for command in commands:
            loops.append(start_with_lifeline(command))
            stack.callback(cut_lifeline, loops[-1])
        yield loops


class Load:
    """Threads that produce and consume, and what they have done; `longest_s` is of a send with acks=all."""

    def __init__(self, bootstrap):
        self._bootstrap = bootstrap
        self._stopping, self._changed = threading.Event(), threading.Condition()
        self._threads = [threading.Thread(target=self._run, args=(self._produce, each)) for each in range(PRODUCERS)]
        self._threads.append(threading.Thread(target=self._run, args=(self._consume, "group")))
        self.done = dict.fromkeys([*range(PRODUCERS), "group"], 0)
        self.failures, self.longest_s, self.rebalances = [], 0.0, 0

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def await_more(self, records):
        """Waits until each producer has sent so many records more, and the group has read as many."""
        with self._changed:
            wanted = {each: number + records for each, number in self.done.items()}
            self._changed.wait_for(lambda: self.failures or self._have(wanted), PATIENCE_S)
            assert self.failures == []
            assert self._have(wanted), f"no progress: {self.done}, wanted {wanted}"

    def _have(self, wanted):
        return all(self.done[each] >= number for each, number in wanted.items())

    def _run(self, work, each):
        try:
            work(each)
        except Exception as error:
            with self._changed:
                self.failures.append(repr(error))
                self._changed.notify_all()
            raise

    def _note(self, each, took_s=0.0):
        with self._changed:
            self.done[each] += 1
            self.longest_s = max(self.longest_s, took_s)
            self._changed.notify_all()

    def _produce(self, each):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0}
        )
        told = []
        while not self._stopping.wait(PAUSE_S):
            began = time.monotonic()
            producer.produce(TOPIC, b"%d" % each, on_delivery=lambda error, _: told.append(error))
            producer.flush(PATIENCE_S)
            assert told == [None]
            told.clear()
            self._note(each, time.monotonic() - began)

    def _consume(self, each):
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": each, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([TOPIC], on_assign=self._note_rebalance)
        while not self._stopping.is_set():
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None
                self._note(each)
        consumer.close()

    def _note_rebalance(self, *_):
        self.rebalances += 1


def terms(session):
    """Returns what another broker epoch, controller or leader would change, and the in-sync replicas beside it."""
    watched = [paths.broker(int(each)) for each in session.children(paths.BROKER_IDS)] + [paths.CONTROLLER]
    epochs = {path: node and node.created_zxid for path, node in zip(watched, session.nodes(watched), strict=True)}
    partitions = [
        paths.partition_state(topic, int(index))
        for topic in session.children(paths.TOPICS)
        for index in session.children(paths.partitions(topic))
    ]
    states = [codec.decode_partition_state(node.data) for node in session.nodes(partitions)]
    leaders = {path: (one.leader, one.leader_epoch) for path, one in zip(partitions, states, strict=True)}
    return epochs | leaders, [one.isr for one in states]


@pytest.fixture
def brokers(tmp_path, zookeeper):
    with broker_cluster(tmp_path, zookeeper.address, properties=PROPERTIES) as started_brokers:
        with Cluster(started_brokers.bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, PARTITIONS, replication_factor=3)
        started_brokers.until_known(TOPIC)
        yield started_brokers


def test_a_broker_that_registers_again_has_another_term(brokers):
    with started(brokers.zookeeper) as session:
        before, _ = terms(session)
        assert session.transact([Delete(paths.broker(2))]) is None
        awaited(lambda: session.exists(paths.broker(2)) or None, "it registers again")
        after, _ = terms(session)
    assert before[paths.broker(2)] != after[paths.broker(2)]
    assert before[paths.broker(1)] == after[paths.broker(1)]


@pytest.mark.timeout(5400)
@pytest.mark.soak(rounds=8, minutes=60)
def test_none_is_taken_for_ended(brokers, rounds, record_property):
    loads, incomplete, began = [], 0, time.monotonic()
    with started(brokers.zookeeper, session_timeout_ms=60_000) as session, Load(brokers.bootstrap) as load:
        load.await_more(1)  # the group's own topic is there from now on
        brokers.all_in_sync()
        before, _ = terms(session)
        with busy_cores() as loops:
            for _ in rounds:
                load.await_more(RECORDS)
                found, in_sync = terms(session)
                assert found == before
                loads.append(os.getloadavg()[0])
                incomplete += any(len(one) < len(brokers.brokers) for one in in_sync)
            assert [loop.poll() for loop in loops] == [None] * len(loops)
    logs = "".join(broker.read_log() for broker in brokers.brokers.values())
    assert [line for line in logs.splitlines() if any(sign in line for sign in SIGNS)] == []
    record_property("seconds", round(time.monotonic() - began))
    for name, value in (("min", min(loads)), ("median", statistics.median(loads)), ("max", max(loads))):
        record_property(f"load average {name}", round(value, 1))
    record_property("looks", len(loads))
    record_property("looks with a replica out of sync", incomplete)
    record_property("records sent", sum(load.done[each] for each in range(PRODUCERS)))
    record_property("longest send with acks=all, s", round(load.longest_s, 2))
    record_property("rebalances", load.rebalances)
