"""The ConsumerConnector against Apache Kafka 3.9 with ZooKeeper: leaders that move, offsets that Kafka's tool sees."""

import pytest
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from millrace.client import Admin, Cluster, SyncProducer
from millrace.client.consumer import ConsumerConnector, Partition
from millrace.client.consumer.group_offsets import describe_zookeeper_group, open_session
from millrace.errors import SetupError
from millrace.records.record import NewRecord
from millrace_benchmarks.kafka_broker import KafkaBroker, find_kafka
from millrace_support.await_brokers import await_brokers, await_coordinators
from millrace_support.kafka_tools import PATIENT_GROUPS

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PROPERTIES = {"zookeeper.session.timeout.ms": "6000", "offsets.topic.num.partitions": "1"}
TOPIC = "events"
PARTITIONS = 4


@pytest.fixture(scope="module")
def kafka():
    try:
        return find_kafka("3.9")
    except SetupError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def connect(zookeeper):
    return f"{zookeeper.address}/kafka_connector"


@pytest.fixture(scope="module")
def brokers(kafka, connect, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kafka")
    settings = {"zookeeper": connect, "properties": PROPERTIES}
    with (
        KafkaBroker(kafka, folder / "1", broker_id=1, **settings) as first,
        KafkaBroker(kafka, folder / "2", broker_id=2, **settings) as second,
    ):
        await_brokers({1, 2}, first, second)
        with Cluster(first.bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, PARTITIONS, 2)
        await_coordinators(first)
        yield first, second


def fill(broker):
    with Cluster(broker.bootstrap) as cluster:
        for number in range(PARTITIONS):
            SyncProducer(cluster).send(TOPIC, number, [NewRecord(b"x")] * 5)


@retry(retry=retry_if_result(lambda moved: not moved), stop=stop_after_delay(120), wait=wait_fixed(0.1))
def await_leader(broker, broker_id):
    """Waits until one broker leads all partitions: the controller learns of a death by the end of a session."""
    with Cluster(broker.bootstrap) as cluster:
        partitions = cluster.metadata([TOPIC]).topic(TOPIC).partitions.values()
    return {partition.leader for partition in partitions} == {broker_id}


def join(connect, group, **properties):
    given = {name.replace("_", "."): value for name, value in properties.items()}
    defaults = {"group.id": group, "zookeeper.connect": connect, "auto.offset.reset": "smallest"}
    bounds = {"consumer.timeout.ms": "120000", "rebalance.max.retries": "20", "zookeeper.session.timeout.ms": "30000"}
    return ConsumerConnector(defaults | bounds | given)


def read(connector, count):
    (stream,) = connector.create_message_streams({TOPIC: 1})[TOPIC]
    return stream, [next(stream) for _ in range(count)]


def test_offsets_in_the_coordinator_are_seen_by_kafkas_tool(kafka, brokers, connect):
    fill(brokers[0])
    with join(connect, "in-kafka", offsets_storage="kafka", dual_commit_enabled="false") as connector:
        _, messages = read(connector, 5 * PARTITIONS)
    assert {one.partition for one in messages} == set(range(PARTITIONS))
    described = ("--describe", "--group", "in-kafka")
    shown = kafka.run(GROUPS, "--bootstrap-server", brokers[0].bootstrap, *PATIENT_GROUPS, *described)
    rows = [line.split() for line in shown.splitlines() if line.startswith("in-kafka")]
    assert sorted((row[2], row[3], row[5]) for row in rows) == [(str(number), "5", "0") for number in range(PARTITIONS)]


def test_leaders_that_move_are_followed(brokers, connect):
    with join(connect, "in-zookeeper") as connector:
        stream, messages = read(connector, 5)
        brokers[1].kill()
        await_leader(brokers[0], 1)
        fill(brokers[0])
        seen = {(one.partition, one.offset) for one in messages}
        while len({one for one in seen if one[1] >= 5}) < 5 * PARTITIONS:
            message = next(stream)
            seen.add((message.partition, message.offset))
        assert len(seen) == 10 * PARTITIONS
    session = open_session(connect)
    try:
        offsets = describe_zookeeper_group(session, "in-zookeeper").offsets
    finally:
        session.close()
    assert offsets == {Partition(TOPIC, number): 10 for number in range(PARTITIONS)}
