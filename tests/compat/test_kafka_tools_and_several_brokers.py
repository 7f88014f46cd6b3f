"""Apache Kafka's own command-line tools administer a cluster of three Millrace brokers.

The last test kills a broker.
"""

import json
import re
import socket
import subprocess
import threading
from contextlib import ExitStack
from functools import partial

import pytest

from millrace.addresses import parse_address
from millrace.client import Cluster, SyncProducer
from millrace.errors import SetupError
from millrace.records.record import NewRecord
from millrace_support.broker_clusters import broker_cluster
from millrace_support.kafka_tools import PATIENT_GROUPS, KafkaTools, patient_versions
from millrace_support.waiting import awaited

PROPERTIES = {
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.replication.factor": "3",
    "zookeeper.session.timeout.ms": "60000",  # a broker that is killed seems to live, and can be moved to
}
ALL = (1, 2, 3)
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def brokers(tmp_path_factory, zookeeper):
    folder = tmp_path_factory.mktemp("brokers")
    with broker_cluster(folder, zookeeper.address, ALL, PROPERTIES) as started:
        yield started
        for each in started.brokers.values():
            each.kill()  # none waits for others that could lead


@pytest.fixture(scope="module")
def tool(brokers, kafka):
    """Runs a tool; what it prints."""
    return KafkaTools(kafka, brokers.bootstrap).run


@pytest.fixture
def write(tmp_path):
    """Writes JSON to a file for a tool; its path."""

    def write(**content):
        path = tmp_path / "content.json"
        path.write_text(json.dumps({"version": 1, **content}))
        return str(path)

    return write


@pytest.fixture
def create(tool, brokers):
    """Creates a topic of which every broker has then heard: a tool may ask any of them."""

    def create(topic, *options):
        tool("kafka-topics", "--create", "--topic", topic, *options)
        brokers.until_known(topic)

    return create


def described(tool, topic):
    """(leader, replicas, in-sync replicas) of each partition."""
    pattern = r"Partition: \d+\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S+)"
    return [
        (leader, replicas, ",".join(sorted(isr.split(","))))
        for leader, replicas, isr in re.findall(pattern, tool("kafka-topics", "--describe", "--topic", topic))
    ]


def await_described(tool, topic, expected):
    """Waits until a topic is described so: any broker may be asked, and it hears of changes after the controller."""
    awaited(lambda: True if described(tool, topic) == expected else None, f"{topic} is {expected}")


def test_topics_are_spread_over_the_brokers(tool, create):
    create("spread", "--partitions", "3", "--replication-factor", "2")

    def spread():
        found = described(tool, "spread")
        are_in_sync = all(sorted(replicas.split(",")) == isr.split(",") for _, replicas, isr in found)
        return found if len(found) == 3 and are_in_sync else None

    found = awaited(spread, "three partitions with all replicas in sync")
    assert sorted(leader for leader, _, _ in found) == ["1", "2", "3"]
    create("chosen", "--replica-assignment", "1:2:3,3:1:2")
    await_described(tool, "chosen", [("1", "1,2,3", "1,2,3"), ("3", "3,1,2", "1,2,3")])
    tool(
        "kafka-topics", "--alter", "--topic", "chosen", "--partitions", "3", "--replica-assignment", "1:2:3,3:1:2,2:3:1"
    )
    awaited(lambda: described(tool, "chosen")[2:] or None, "another partition")
    for which in ("under-replicated", "under-min-isr", "unavailable"):
        none = ("kafka-topics", "--describe", f"--{which}-partitions")
        awaited(lambda none=none: True if tool(*none) == "" else None, f"no {which} partitions")
    tool("kafka-topics", "--delete", "--topic", "chosen")
    awaited(lambda: None if "chosen" in tool("kafka-topics", "--list").split() else True, "the topic is gone")


def test_configurations_of_each_broker_and_of_all(tool, create):
    change = partial(tool, "kafka-configs", "--alter", "--add-config")
    describe = partial(tool, "kafka-configs", "--describe")
    create("configured", "--partitions", "3", "--replication-factor", "3")
    change("retention.ms=70000", "--entity-type", "topics", "--entity-name", "configured")
    change("log.retention.ms=8000", "--entity-type", "brokers", "--entity-name", "2")
    change("log.retention.ms=9000", "--entity-type", "brokers", "--entity-default")

    def is_described(expected, *entity):
        awaited(lambda: True if expected in describe(*entity) else None, expected)

    is_described("retention.ms=70000", "--entity-type", "topics", "--entity-name", "configured")
    overridden = "DYNAMIC_BROKER_CONFIG:log.retention.ms=8000, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=9000"
    is_described(overridden, "--entity-type", "brokers", "--entity-name", "2")
    is_described("DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=9000", "--entity-type", "brokers", "--entity-default")
    for each in ("1", "3"):
        is_described("log.retention.ms=9000", "--all", "--entity-type", "brokers", "--entity-name", each)


def test_loggers_of_one_broker(tool):
    change = partial(tool, "kafka-configs", "--alter", "--entity-type", "broker-loggers", "--entity-name", "2")

    def described(broker):
        return tool("kafka-configs", "--describe", "--entity-type", "broker-loggers", "--entity-name", broker)

    change("--add-config", "millrace_broker.replication=DEBUG,millrace_broker.net=TRACE")
    assert "millrace_broker.replication.replica_fetcher=DEBUG sensitive=false" in described("2")
    assert "millrace_broker.replication.replica_fetcher=INFO sensitive=false" in described("1")
    change("--delete-config", "millrace_broker.replication")
    assert "millrace_broker.replication.replica_fetcher=INFO sensitive=false" in described("2")
    assert "millrace_broker.net.server=TRACE sensitive=false" in described("2")
    with pytest.raises(SetupError, match="not a log level"):
        change("--add-config", "millrace_broker.net=LOUD")
    with pytest.raises(SetupError, match="nobody"):
        change("--add-config", "nobody=INFO")


def test_records_and_groups(tool, brokers, create, write):
    create("read", "--partitions", "3", "--replication-factor", "3")
    with Cluster(brokers.bootstrap) as cluster:
        for partition in range(3):
            brokers.until(lambda one: len(one.isr) == 3, "read", partition)
            SyncProducer(cluster).send("read", partition, [NewRecord(b"v")] * 10)
    assert tool("kafka-get-offsets", "--topic", "read").split() == ["read:0:10", "read:1:10", "read:2:10"]
    offsets = [{"topic": "read", "partition": each, "offset": 4} for each in range(3)]
    assert tool("kafka-delete-records", "--offset-json-file", write(partitions=offsets)).count("low_watermark: 4") == 3
    groups = partial(tool, "kafka-consumer-groups", *PATIENT_GROUPS)
    for name in ("one", "two", "three"):  # with coordinators on several brokers
        groups("--group", name, "--topic", "read", "--reset-offsets", "--to-earliest", "--execute")
    said = groups("--describe", "--all-groups")
    assert len(re.findall(r"(?:one|two|three) +read +\d +4 +10 +6 ", said)) == 9, said
    assert groups("--list", "--state").count("Empty") == 3
    assert "successful" in groups("--delete", "--group", "one", "--group", "two", "--group", "three")


def test_replicas_are_moved_and_leaders_elected(tool, create, write):
    create("moved", "--replica-assignment", "1:2,1:2")
    plan = [{"topic": "moved", "partition": 0, "replicas": [3, 1]}, {"topic": "moved", "partition": 1, "replicas": [3]}]
    reassign = partial(tool, "kafka-reassign-partitions")
    moved = ("--reassignment-json-file", write(partitions=plan))
    await_described(tool, "moved", [("1", "1,2", "1,2")] * 2)
    assert "Successfully started partition reassignments for moved-0,moved-1" in reassign("--execute", *moved)
    await_described(tool, "moved", [("1", "3,1", "1,3"), ("3", "3", "3")])
    assert reassign("--verify", *moved).count("is completed") == 2
    expected = {1: ["moved-0"], 2: [], 3: ["moved-0", "moved-1"]}
    awaited(lambda: True if logs_of(tool, "moved") == expected else None, "logs that are not needed are deleted")
    elected = tool("kafka-leader-election", "--election-type", "preferred", "--topic", "moved", "--partition", "0")
    assert "Successfully completed leader election (PREFERRED) for partitions moved-0" in elected
    await_described(tool, "moved", [("3", "3,1", "1,3"), ("3", "3", "3")])


def logs_of(tool, topic):
    """Returns the logs of a topic by broker."""
    held = json.loads(tool("kafka-log-dirs", "--describe", "--topic-list", topic).splitlines()[-1])
    return {
        one["broker"]: sorted(each["partition"] for each in one["logDirs"][0]["partitions"]) for one in held["brokers"]
    }


def test_every_broker_serves_what_a_cluster_needs(tool, tmp_path):
    said = tool("kafka-broker-api-versions", *patient_versions(tmp_path))
    assert sorted(re.findall(r"\(id: (\d) rack: ", said)) == ["1", "2", "3"]
    for served in ("LeaderAndIsr(4): 0 to 7", "AlterPartition(56): 0 to 3", "AlterPartitionReassignments(45): 0"):
        assert said.count(served) == 3


def hang_up(listener):
    """Takes connections and closes them, until the listener is closed."""
    while True:
        try:
            listener.accept()[0].close()
        except OSError:
            return


@pytest.fixture
def hang_up_at():
    """Returns what has connections to an address closed, so that nobody sees that the process there has ended."""
    with ExitStack() as stack:

        def begin(address):
            listener = stack.enter_context(socket.create_server(address))
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            threading.Thread(target=hang_up, args=[listener], daemon=True).start()

        yield begin


def test_moves_to_a_broker_that_dies_are_cancelled(tool, brokers, create, write, *, warm_millrace, hang_up_at):
    """One by Kafka's tool, the other one by ours; the broker is registered for as long as its session lasts."""
    target = str(next(one for one in ALL if one != brokers.controller()))
    first, second = (str(one) for one in ALL if str(one) != target)
    create("stuck", "--replica-assignment", f"{first},{second}")
    create("kept", "--replica-assignment", f"{first}:{target}")
    await_described(tool, "stuck", [(first, first, first), (second, second, second)])
    await_described(tool, "kept", [(first, f"{first},{target}", ",".join(sorted((first, target))))])
    brokers.brokers[int(target)].kill()
    hang_up_at(parse_address(brokers.brokers[int(target)].bootstrap))
    with Cluster(brokers.bootstrap) as cluster:
        SyncProducer(cluster).send("kept", 0, [NewRecord(b"v")], acks=1)  # which the follower lacks

    reassign = partial(tool, "kafka-reassign-partitions")
    plan = [{"topic": "stuck", "partition": each, "replicas": [int(target)]} for each in range(2)]
    reassign("--execute", "--reassignment-json-file", write(partitions=plan))
    assert f"stuck-0: replicas: {target},{first}. adding: {target}. removing: {first}." in reassign("--list")
    cancelled = reassign("--cancel", "--preserve-throttles", "--reassignment-json-file", write(partitions=plan[:1]))
    assert "Successfully cancelled partition reassignment for: stuck-0" in cancelled
    assert "stuck-0" not in reassign("--list")
    command = [warm_millrace, "topics", "reassign", "stuck", "--cancel", "--bootstrap", brokers.bootstrap, "--json"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=TIMEOUT_S)
    [cancelled] = json.loads(done.stdout)["cancelled"]
    assert (cancelled["partition"], cancelled["replicas"]) == (1, [int(second)])
    assert "No partition reassignments found" in reassign("--list")
    await_described(tool, "stuck", [(first, first, first), (second, second, second)])
    await_described(tool, "kept", [(first, f"{first},{target}", first)])
    for which in ("under-replicated", "at-min-isr"):
        told = partial(tool, "kafka-topics", "--describe", f"--{which}-partitions")
        awaited(lambda told=told: "Topic: kept\tPartition: 0" in told() or None, f"kept is among {which} partitions")
