"""Three real brokers and topics with a replica on each: records outlive a broker, and brokers come back."""

import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from millrace.addresses import parse_address
from millrace.client import Admin, Cluster, Groups, SyncProducer
from millrace.client.groups import GroupOffset
from millrace.client.replicas import Reassignments
from millrace.records.record import NewRecord
from millrace_support.broker_clusters import PATIENT, broker_cluster
from millrace_support.waiting import awaited

EVENTS = "events"
ALL = (1, 2, 3)


@pytest.fixture
def brokers(tmp_path, zookeeper):
    properties = {"min.insync.replicas": "2", **PATIENT}
    with broker_cluster(tmp_path, zookeeper.address, properties=properties) as started:
        yield started


def create(brokers, name=EVENTS, partitions=1):
    with Cluster(brokers.bootstrap) as cluster:
        Admin(cluster).create_topic(name, partitions, replication_factor=3)
    for index in range(partitions):
        brokers.until(lambda one: len(one.isr) == 3, name, index)


def produce(brokers, first, count, topic=EVENTS, partition=0):
    """Sends numbers with acks=all, and returns those that were acknowledged; all of them, in this test."""
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all", "enable.idempotence": True})
    failed = []
    for number in range(first, first + count):
        producer.produce(
            topic, b"%d" % number, partition=partition, on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(120) == 0
    assert failed == []


def consume(brokers, count, topic=EVENTS, partition=0):
    consumer = Consumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []

    def look():
        for message in consumer.consume(count, 0.2):
            if message.error():
                raise KafkaException(message.error())
            found.append(int(message.value()))
        return found if len(found) >= count else None

    awaited(look, f"{count} records are read")
    consumer.close()
    return found


def test_every_replica_has_the_same_bytes(brokers):
    create(brokers)
    produce(brokers, 0, 2000)
    assert consume(brokers, 2000) == list(range(2000))
    assert len(brokers.equal_logs(EVENTS)) > 2000


def test_records_outlive_the_leader_which_comes_back_as_a_follower(brokers):
    create(brokers)
    produce(brokers, 0, 500)
    first = brokers.partition(EVENTS).leader
    brokers.crash(first)
    elected = brokers.until(lambda one: one.leader not in (first, -1), EVENTS)
    produce(brokers, 500, 500)
    assert consume(brokers, 1000) == list(range(1000))
    brokers.brokers[first].start()
    back = brokers.until(lambda one: len(one.isr) == 3, EVENTS)
    assert back.leader_epoch >= elected.leader_epoch
    brokers.equal_logs(EVENTS)


def test_clients_wait_until_the_session_of_a_dead_broker_has_ended(tmp_path, zookeeper):
    """The broker leads a partition, coordinates a group and is the controller; its session outlasts ten attempts."""
    properties = PATIENT | {"offsets.topic.replication.factor": "3", "zookeeper.session.timeout.ms": "8000"}
    with ExitStack() as opened:
        brokers = opened.enter_context(broker_cluster(tmp_path, zookeeper.address, properties=properties))
        create(brokers, partitions=3)
        dead = brokers.controller()
        led = next(index for index in range(3) if brokers.partition(EVENTS, index).leader == dead)
        own = [opened.enter_context(Cluster(brokers.bootstrap, timeout_s=120)) for _ in range(3)]
        producer, groups, admin = SyncProducer(own[0]), Groups(own[1]), Admin(own[2])
        address = parse_address(brokers.brokers[dead].bootstrap)
        group = next(one for one in map(str, count()) if own[1].on_coordinator(one, lambda to: to.address) == address)
        assert producer.send(EVENTS, led, [NewRecord(b"before")]) == 0
        groups.commit(group, {(EVENTS, led): GroupOffset(1, "")})
        brokers.brokers[dead].kill()
        with ThreadPoolExecutor() as pool:
            sent = pool.submit(producer.send, EVENTS, led, [NewRecord(b"after")])
            committed = pool.submit(groups.offsets, group)
            created = pool.submit(admin.create_topic, "later", 1, 2)
        assert sent.result() == 1
        assert committed.result()[EVENTS, led].offset == 1
        assert created.result() is None


def test_a_broker_that_stops_hands_its_partitions_over(brokers):
    create(brokers, partitions=3)
    produce(brokers, 0, 100)
    stopped = brokers.partition(EVENTS).leader
    assert brokers.brokers[stopped].stop() == 0
    assert brokers.until(lambda one: one.leader not in (stopped, -1), EVENTS).isr != ()
    produce(brokers, 100, 100)
    assert consume(brokers, 200) == list(range(200))


def test_brokers_that_all_stop_do_not_wait_for_one_another(tmp_path, zookeeper):
    properties = {"controlled.shutdown.retry.backoff.ms": "600000", **PATIENT}
    with broker_cluster(tmp_path, zookeeper.address, properties=properties) as brokers:
        create(brokers, partitions=3)
        for each in brokers.brokers.values():
            each.send_signal(signal.SIGTERM)
        assert [each.stop() for each in brokers.brokers.values()] == [0, 0, 0]


def test_the_controller_dies_and_another_broker_goes_on(brokers):
    create(brokers)
    controller = brokers.controller()
    brokers.crash(controller)
    awaited(lambda: True if brokers.controller() != controller else None, "another controller")
    brokers.until(lambda one: one.leader not in (controller, -1), EVENTS)
    produce(brokers, 0, 100)
    with Cluster(brokers.bootstrap) as cluster:
        Admin(cluster).create_topic("later", 4, replication_factor=2)
    assert consume(brokers, 100) == list(range(100))


def test_too_few_in_sync_replicas_refuse_and_take_records_again(brokers):
    create(brokers)
    leader = brokers.partition(EVENTS).leader
    others = [each for each in ALL if each != leader]
    for each in others:
        brokers.crash(each)
    brokers.until(lambda one: one.isr == (leader,), EVENTS)
    producer = Producer(
        {"bootstrap.servers": brokers.brokers[leader].bootstrap, "acks": "all", "message.timeout.ms": 3000}
    )
    errors = []
    producer.produce(EVENTS, b"lost", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert errors[0] is not None
    brokers.brokers[others[0]].start()
    brokers.until(lambda one: len(one.isr) == 2, EVENTS)
    produce(brokers, 0, 50)
    assert consume(brokers, 50) == list(range(50))


def test_a_deleted_topic_goes_from_every_broker(brokers):
    create(brokers, partitions=2)
    produce(brokers, 0, 10)
    with Cluster(brokers.bootstrap) as cluster:
        Admin(cluster).delete_topic(EVENTS)

    def gone():
        left = [
            one
            for each in brokers.brokers.values()
            for one in each.data_dir.glob(f"{EVENTS}-*")
            if "delete" not in one.name
        ]
        return True if not left else None

    assert awaited(gone, "no broker has a folder of the topic")


def test_a_replica_is_deleted_that_was_moved_while_its_broker_was_down(brokers):
    """The controller that has moved it has ended, too, when the broker is back."""
    create(brokers)
    controller = brokers.controller()
    away, third = (each for each in ALL if each != controller)
    brokers.crash(away)
    with brokers.connect(brokers.brokers[third]) as cluster:
        assert Reassignments(cluster).alter({(EVENTS, 0): (controller, third)}) == {}
    brokers.until(lambda one: sorted(one.replicas) == sorted((controller, third)), EVENTS)
    brokers.crash(controller)
    for each in (controller, away):
        brokers.brokers[each].start()
    folder = brokers.brokers[away].data_dir / f"{EVENTS}-0"
    assert awaited(lambda: not folder.exists() or None, "the replica is gone")


def test_a_wiped_replica_is_filled_again(brokers):
    create(brokers)
    produce(brokers, 0, 1000)
    follower = next(each for each in ALL if each != brokers.partition(EVENTS).leader)
    brokers.crash(follower)
    shutil.rmtree(brokers.brokers[follower].data_dir)
    brokers.brokers[follower].start()
    brokers.until(lambda one: len(one.isr) == 3, EVENTS)
    brokers.equal_logs(EVENTS)
    assert consume(brokers, 1000) == list(range(1000))


def test_a_wiped_replica_that_comes_back_before_all_others_does_not_lead(brokers):
    """Nobody saw it go, so what ZooKeeper says of who is in sync is older than its disk."""
    create(brokers)
    produce(brokers, 0, 1000)
    wiped = brokers.controller()
    brokers.crash(*ALL)
    shutil.rmtree(brokers.brokers[wiped].data_dir)
    brokers.brokers[wiped].start()
    awaited(lambda: True if brokers.controller() == wiped else None, "it is the controller")
    brokers.until(lambda one: wiped not in one.isr and one.leader not in ALL, EVENTS)
    for each in ALL:
        if each != wiped:
            brokers.brokers[each].start()
    brokers.until(lambda one: len(one.isr) == 3, EVENTS)
    brokers.equal_logs(EVENTS)
    assert consume(brokers, 1000) == list(range(1000))
