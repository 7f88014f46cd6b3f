"""Brokers whose process ends without a word: others lead before its session with ZooKeeper has ended."""

import signal
import statistics
from uuid import uuid4

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.client.replicas import ElectionType, elect_leaders
from millrace.records.record import NewRecord
from millrace.zk import paths
from millrace_benchmarks.cluster import millrace_cluster
from millrace_benchmarks.failover import fail_over
from millrace_ops.replicas.cluster_health import look_at_cluster
from millrace_support.broker_clusters import PATIENT, broker_cluster
from millrace_support.waiting import awaited
from millrace_support.zookeeper_sessions import started

TOPIC = "events"
ALL = {1, 2, 3}
ENDED = "the process of broker"
SESSION_MS, LED = 60_000, 30


@pytest.fixture
def brokers(tmp_path, zookeeper):
    properties = {"min.insync.replicas": "2", **PATIENT}
    with broker_cluster(tmp_path, zookeeper.address, properties=properties) as started_brokers:
        with Cluster(started_brokers.bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, 3, replication_factor=3)
        for index in range(3):
            started_brokers.until(lambda one: set(one.isr) == ALL, TOPIC, index)
        yield started_brokers


def led_by(brokers, broker):
    return next(index for index in range(3) if brokers.partition(TOPIC, index).leader == broker)


def send(brokers, index, value):
    with Cluster(brokers.bootstrap) as cluster:
        SyncProducer(cluster).send(TOPIC, index, [NewRecord(value)])


def read_logs(brokers):
    return "".join(one.read_log() for one in brokers.brokers.values())


@pytest.mark.parametrize("is_controller", [False, True])
def test_others_lead_and_the_broker_can_start_again_at_once(brokers, is_controller):
    """Each round kills another broker; what was acknowledged before is in all logs at the end."""
    for number in range(3):
        controller = brokers.controller()
        killed = controller if is_controller else min(ALL - {controller})
        index = led_by(brokers, killed)
        send(brokers, index, b"before %d" % number)
        brokers.brokers[killed].kill()
        brokers.until(lambda one: one.leader not in {-1, killed}, TOPIC, index)  # noqa: B023
        send(brokers, index, b"after %d" % number)
        assert f"{ENDED} {killed}" in read_logs(brokers)
        brokers.brokers[killed].start()
        for each in range(3):
            brokers.until(lambda one: set(one.isr) == ALL, TOPIC, each)
        with Cluster(brokers.bootstrap) as cluster:
            elect_leaders(cluster, ElectionType.PREFERRED, None)
        brokers.until(lambda one: one.leader == one.replicas[0], TOPIC, index)
    logs = b"".join(brokers.equal_logs(TOPIC, index) for index in range(3))
    assert all(b"%s %d" % (when, number) in logs for when in (b"before", b"after") for number in range(3))


@pytest.mark.timeout(1800)
@pytest.mark.soak(rounds=2, soak_rounds=20)
def test_all_partitions_of_a_leader_have_others_long_before_its_session_ends(
    tmp_path, zookeeper, rounds, record_property
):
    with millrace_cluster(tmp_path, f"{zookeeper.address}/{uuid4().hex}", SESSION_MS) as cluster:
        cluster.create_topic(TOPIC, LED)
        seconds = [fail_over(cluster, TOPIC, signal.SIGKILL)["after the signal"] for _ in rounds]
    assert max(seconds) < SESSION_MS / 1000
    record_property("median, s", round(statistics.median(seconds), 2))
    record_property("longest, s", round(max(seconds), 2))


def test_a_process_that_hangs_is_not_taken_for_ended(brokers):
    """Its kernel still takes connections; it may go on at any time."""
    controller = brokers.controller()
    asleep = min(ALL - {controller})
    index = led_by(brokers, asleep)
    brokers.brokers[asleep].send_signal(signal.SIGSTOP)
    killed = (ALL - {controller, asleep}).pop()
    brokers.brokers[killed].kill()
    awaited(lambda: f"{ENDED} {killed}" in read_logs(brokers) or None, "the other's end is noticed")
    assert f"{ENDED} {asleep}" not in read_logs(brokers)
    with started(brokers.zookeeper) as session:
        assert session.exists(paths.broker(asleep))
    with Cluster(brokers.brokers[controller].bootstrap, timeout_s=5) as cluster:
        assert list(look_at_cluster(cluster).silent) == [asleep], "what is registered and hangs is not called well"
    brokers.brokers[asleep].send_signal(signal.SIGCONT)
    brokers.brokers[killed].start()
    brokers.until(lambda one: set(one.isr) == ALL, TOPIC, index)
    send(brokers, index, b"by all")


def test_a_broker_that_stops_is_not_taken_for_ended(brokers):
    """The controller stops, too, whose successor has not been told that it was about to."""
    for _ in range(2):
        controller = brokers.controller()
        brokers.brokers[controller].stop()
        for index in range(3):
            brokers.until(lambda one: one.leader not in {-1, controller}, TOPIC, index)  # noqa: B023
        brokers.brokers[controller].start()
        for index in range(3):
            brokers.until(lambda one: set(one.isr) == ALL, TOPIC, index)
    assert ENDED not in read_logs(brokers)
