"""Groups and Apache Kafka's own programs: its tools against our broker, its dump of our log, its groups moved to us."""

import re
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from millrace.client import Admin, Cluster, SyncProducer
from millrace.errors import SetupError
from millrace.internal_topics import OFFSETS_TOPIC
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker, find_kafka
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_broker.cluster.coordinator_topic import partition_of
from millrace_support.coordinating_brokers import COUNTS, coordinating_brokers
from millrace_support.kafka_tools import PATIENT_GROUPS

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
DUMP = "kafka.tools.DumpLogSegments"
PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}
TIMEOUT_S = 120


def fill(bootstrap, topic, records=10):
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(topic, 2, -1)
        for partition in (0, 1):
            SyncProducer(cluster).send(topic, partition, [NewRecord(b"%d" % number) for number in range(records)])


def consumer(bootstrap, group, **settings):
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
         "enable.auto.commit": False, **settings}
    )  # fmt: skip


# A coordinator that has just started loads its groups first.
@retry(retry=retry_if_exception_type(KafkaException), stop=stop_after_delay(60), wait=wait_fixed(0.05), reraise=True)
def committed(broker, group):
    """The group's offsets of both partitions."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition("events", index) for index in (0, 1)])
    found = admin.list_consumer_group_offsets([asked])[group].result(TIMEOUT_S).topic_partitions
    return [one.offset for one in found]


@retry(retry=retry_if_exception_type(KafkaException), stop=stop_after_delay(60), wait=wait_fixed(0.05), reraise=True)
def described_by(broker, group):
    """The group as an administrator sees it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)


@pytest.fixture(scope="module", params=COUNTS)
def judged(request, tmp_path_factory, zookeeper):
    with coordinating_brokers(
        request.param, tmp_path_factory.mktemp("judged"), zookeeper.address, PROPERTIES
    ) as brokers:
        fill(brokers.bootstrap, "events")
        yield brokers


@pytest.fixture(scope="module")
def newest_kafka():
    try:
        return find_kafka("4.1", Path(__file__).parents[2] / ".peers")
    except SetupError as error:
        pytest.skip(str(error))


@pytest.fixture
def groups_tool(newest_kafka, judged):
    def run(*arguments):
        return newest_kafka.run(GROUPS, "--bootstrap-server", judged.bootstrap, *PATIENT_GROUPS, *arguments)

    return run


def columns(output, group, *names):
    """The named columns of the tool's lines about a group, sorted."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    head = next(line for line in lines if line[0] == "GROUP")
    places = [head.index(name) for name in names]
    return sorted(tuple(line[place] for place in places) for line in lines if line[0] == group)


def test_the_groups_tool_lists_describes_resets_and_deletes(groups_tool, judged):
    group = "tooled"
    member = consumer(judged.bootstrap, group)
    member.subscribe(["events"])
    assert len(member.consume(20, TIMEOUT_S)) == 20
    member.commit(offsets=[TopicPartition("events", 0, 7), TopicPartition("events", 1, 10)], asynchronous=False)
    assert group in groups_tool("--list").split()
    described = groups_tool("--describe", "--group", group)
    assert columns(described, group, "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "HOST") == [
        ("events", "0", "7", "10", "3", "/127.0.0.1"),
        ("events", "1", "10", "10", "0", "/127.0.0.1"),
    ]
    member.close()
    groups_tool("--reset-offsets", "--group", group, "--topic", "events", "--to-offset", "2", "--execute")
    assert committed(judged, group) == [2, 2]
    groups_tool("--delete-offsets", "--group", group, "--topic", "events:0")
    assert committed(judged, group) == [OFFSET_INVALID, 2]
    assert "successful" in groups_tool("--delete", "--group", group)
    assert committed(judged, group) == [OFFSET_INVALID, OFFSET_INVALID]


def test_the_console_consumer_consumes_in_a_group(newest_kafka, judged):
    output = newest_kafka.run(
        CONSOLE_CONSUMER, "--bootstrap-server", judged.bootstrap, "--topic", "events", "--group", "console",
        "--from-beginning", "--max-messages", "20", "--timeout-ms", "120000",
    )  # fmt: skip
    assert sorted(line for line in output.split() if line.isdecimal()).count("9") == 2
    assert committed(judged, "console") == [10, 10]


def test_kafka_reads_our_offsets_topic(any_kafka, tmp_path):
    with BrokerProcess(tmp_path / "ours", properties=PROPERTIES) as broker:
        fill(broker.bootstrap, "events")
        member = consumer(broker.bootstrap, "dumped", **{"group.instance.id": "static-one"})
        member.subscribe(["events"])
        assert len(member.consume(20, TIMEOUT_S)) == 20
        member.commit(offsets=[TopicPartition("events", 1, 5, metadata="a note")], asynchronous=False)
        member.close()
    folder = tmp_path / "ours" / f"{OFFSETS_TOPIC}-{partition_of('dumped', 2)}"
    (log,) = folder.glob("*.log")
    said = any_kafka.run(DUMP, "--files", str(log), "--offsets-decoder", "--print-data-log", "--deep-iteration")
    assert "isvalid: false" not in said
    records = [line for line in said.splitlines() if "dumped" in line]
    assert any("events" in line and re.search(r'offset"?[=:]5\b', line) and "a note" in line for line in records)
    assert any("consumer" in line and "range" in line and "static-one" in line for line in records)


def test_kafkas_groups_come_with_its_folder(kafka, tmp_path, zookeeper):
    connect = f"{zookeeper.address}/moved-groups"
    with KafkaBroker(kafka, tmp_path / "data", zookeeper=connect) as broker:
        fill(broker.bootstrap, "events")
        member = consumer(
            broker.bootstrap, "moved", **{"group.instance.id": "static-one", "session.timeout.ms": 300_000}
        )
        member.subscribe(["events"])
        assert len(member.consume(20, TIMEOUT_S)) == 20
        member.commit(offsets=[TopicPartition("events", 1, 5, metadata="a note")], asynchronous=False)
        member.close()  # a static member stays
    with BrokerProcess(tmp_path / "data", zookeeper=connect) as broker:
        described = described_by(broker, "moved")
        assert described.state == ConsumerGroupState.STABLE
        (member,) = described.members
        assert member.group_instance_id == "static-one"
        assert {one.partition for one in member.assignment.topic_partitions} == {0, 1}
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        asked = ConsumerGroupTopicPartitions("moved", [TopicPartition("events", 1)])
        (found,) = admin.list_consumer_group_offsets([asked])["moved"].result(TIMEOUT_S).topic_partitions
        assert (found.offset, found.metadata) == (5, "a note")
        again = consumer(broker.bootstrap, "moved", **{"group.instance.id": "static-one"})
        again.subscribe(["events"])
        assert len(again.consume(5, TIMEOUT_S)) == 5
        again.close()


def test_our_groups_go_to_kafka_with_our_folder(kafka, tmp_path):
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper:
        with BrokerProcess(tmp_path / "data", zookeeper=zookeeper.address, properties=PROPERTIES) as broker:
            fill(broker.bootstrap, "events")
            member = consumer(broker.bootstrap, "moved", **{"group.instance.id": "static-one"})
            member.subscribe(["events"])
            assert len(member.consume(20, TIMEOUT_S)) == 20
            member.commit(offsets=[TopicPartition("events", 0, 3), TopicPartition("events", 1, 5)], asynchronous=False)
            member.close()  # a static member stays
        with KafkaBroker(kafka, tmp_path / "data", zookeeper=zookeeper.address) as broker:
            assert committed(broker, "moved") == [3, 5]
            described = described_by(broker, "moved")
            assert described.state == ConsumerGroupState.STABLE
            assert [one.group_instance_id for one in described.members] == ["static-one"]
