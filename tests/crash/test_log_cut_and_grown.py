"""A log that a crash has cut and that has grown again: whoever read the lost records is told where they end."""

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.client.sync_producer import SyncProducer
from millrace.records.batch import walk
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_support.broker_properties import LASTING_SESSION
from millrace_support.waiting import until
from millrace_support.zookeeper_sessions import end_session

CUT_AT, READ = 10, 20


class CrashingBroker(BrokerProcess):
    """A broker whose session with ZooKeeper ends when it is killed, and at no other time."""

    def __init__(self, folder, zookeeper):
        self.zookeeper = zookeeper
        properties = LASTING_SESSION if zookeeper else {}
        super().__init__(folder / "one", more_data_dirs=[folder / "two"], zookeeper=zookeeper, properties=properties)

    def kill(self):
        status = super().kill()
        if self.zookeeper:
            end_session(self.zookeeper, 1)
        return status


@pytest.fixture(params=["standalone", "zookeeper"])
def broker(request, tmp_path):
    address = None
    if request.param == "zookeeper":
        address = f"{request.getfixturevalue('zookeeper').address}/{tmp_path.name}"
    with CrashingBroker(tmp_path, address) as process:
        yield process


def send(broker, partition, count):
    with Cluster(broker.bootstrap) as cluster:
        producer = SyncProducer(cluster)
        for number in range(count):
            producer.send("events", partition, [NewRecord(b"%d" % number)])


def cut(broker, partition):
    """Cuts the log at `CUT_AT`, as a power cut may."""
    (segment,) = broker.data_dir.parent.glob(f"*/events-{partition}/*.log")
    batches = list(walk(segment.read_bytes()))
    with segment.open("r+b") as file:
        file.truncate(batches[CUT_AT][0])
    for checkpoint in broker.data_dir.parent.glob("*/recovery-point-offset-checkpoint"):
        checkpoint.unlink()


def restart_after(broker, partition=None):
    broker.kill()
    if partition is not None:
        cut(broker, partition)
    broker.start()


def epochs(broker):
    """Returns, for each partition, the leader's epoch and where epochs 0 to 3 end.

    A leader learns its epoch before the metadata shows it, so both are asked until they agree.
    """
    return until(
        lambda: epochs_now(broker),
        lambda found: all(epoch == max(known for known, _ in ends) for epoch, ends in found.values()),
    )


def epochs_now(broker):
    with Cluster(broker.bootstrap) as cluster:
        consumer = SimpleConsumer(cluster)
        leaders = cluster.metadata(["events"]).topic("events").partitions
        return {
            index: (leaders[index].leader_epoch, [tuple(consumer.epoch_end("events", index, one)) for one in range(4)])
            for index in (0, 1)
        }


def test_the_epoch_rises_with_each_crash_and_tells_where_the_log_was_cut(broker):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 2)
    for partition in (0, 1):
        send(broker, partition, READ)
    unknown = (-1, -1)
    assert epochs(broker) == {index: (0, [(0, 20), unknown, unknown, unknown]) for index in (0, 1)}
    restart_after(broker, partition=0)
    assert epochs(broker) == {
        0: (1, [(0, 10), (1, 10), unknown, unknown]),
        1: (1, [(0, 20), (1, 20), unknown, unknown]),
    }
    restart_after(broker)  # nothing was written in epoch 1
    send(broker, 0, 15)
    assert epochs(broker) == {
        0: (2, [(0, 10), (0, 10), (2, 25), unknown]),
        1: (2, [(0, 20), (0, 20), (2, 20), unknown]),
    }


def test_a_clean_restart_begins_an_epoch_only_in_a_cluster(broker, request):
    """The controller of a cluster elects a leader again, because it can't tell how the broker ended."""
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 2)
    send(broker, 0, READ)
    broker.restart()
    is_cluster = request.node.callspec.params["broker"] == "zookeeper"
    unknown = (-1, -1)
    assert epochs(broker)[0] == (int(is_cluster), [(0, 20), (1, 20) if is_cluster else unknown, unknown, unknown])


def test_librdkafka_sees_that_what_it_read_is_gone(broker):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 2)
    for partition in (0, 1):
        send(broker, partition, READ)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition("events", index, 0) for index in (0, 1)])
        assert sorted((one.partition(), one.offset()) for one in read(consumer, 2 * READ)) == [
            (index, offset) for index in (0, 1) for offset in range(READ)
        ]
        restart_after(broker, partition=0)
        for partition in (0, 1):
            send(broker, partition, 15)
        errors, records = [], []
        while not errors or len(records) < 15:
            message = consumer.poll(60)
            assert message is not None
            (errors if message.error() else records).append(message)
        assert [(one.partition(), one.error().code()) for one in errors] == [(0, KafkaError._AUTO_OFFSET_RESET)]
        assert "truncation" in errors[0].error().str()
        assert [(one.partition(), one.offset()) for one in records] == [(1, offset) for offset in range(20, 35)]
    finally:
        consumer.close()


def read(consumer, count):
    messages = []
    while len(messages) < count:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None, message.error()
        messages.append(message)
    return messages
