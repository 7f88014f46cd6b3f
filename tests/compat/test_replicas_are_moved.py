"""Our commands move replicas and elect leaders on three brokers, Millrace's and Kafka's, and Kafka's own tools agree.

Brokers fetch few bytes at a time, so that a throttled move lasts.
"""

import json
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_support.await_brokers import await_brokers
from millrace_support.kafka_tools import KafkaTools
from millrace_support.waiting import until

PROPERTIES = {"replica.fetch.max.bytes": "20000", "auto.leader.rebalance.enable": "false"}
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
SLOW, FAST = "10000", "100000000"
TIMEOUT_S = 240


@pytest.fixture(scope="module")
def kafka_of_256_mb(kafka):
    flags = (flag for flag in kafka.java_flags if not flag.startswith("-Xmx"))
    return replace(kafka, java_flags=(*flags, "-Xmx256m"))


@pytest.fixture(scope="module", params=["millrace", "kafka"])
def brokers(request, kafka_of_256_mb, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    with EmbeddedZooKeeper(folder / "zookeeper") as zookeeper, ThreadPoolExecutor(3) as pool:

        def start(number):
            properties = {**PROPERTIES, "broker.rack": f"rack-{number}"}
            data, coordinates = folder / str(number), {"zookeeper": zookeeper.address, "broker_id": number}
            if request.param == "millrace":
                return BrokerProcess(data, properties=properties, **coordinates)
            return KafkaBroker(kafka_of_256_mb, data, properties=properties, **coordinates)

        started = dict(zip((1, 2, 3), pool.map(start, (1, 2, 3)), strict=True))
        await_brokers({1, 2, 3}, *started.values())
        yield started
        list(pool.map(type(started[1]).stop, started.values()))


@pytest.fixture(scope="module")
def bootstrap(brokers):
    return ",".join(broker.bootstrap for broker in brokers.values())


@pytest.fixture(scope="module")
def tool(kafka_of_256_mb, bootstrap):
    return KafkaTools(kafka_of_256_mb, bootstrap).run


@pytest.fixture
def millrace(warm_millrace, bootstrap):
    """Runs `millrace`; what it prints."""

    def run(*arguments, status=0):
        command = [warm_millrace, *arguments, "--bootstrap", bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    return run


@pytest.fixture
def topic(request, bootstrap, millrace):
    """A topic of four partitions, each of 400 kB, with one replica on broker 1."""
    name = re.sub(r"\W", "-", request.node.name)[:40]
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(name, 4, 1)
    millrace("topics", "reassign", name, "--brokers", "1")
    with Cluster(bootstrap) as cluster:
        for partition in range(4):
            for _ in range(40):
                SyncProducer(cluster).send(name, partition, [NewRecord(b"x" * 10_000)])
    yield name
    with Cluster(bootstrap) as cluster:
        Admin(cluster).delete_topic(name)


def partitions(millrace, topic):
    return json.loads(millrace("topics", "describe", topic, "--json"))["partitions"]


def described_by_kafka(tool, topic):
    """(leader, replicas) of each partition, as kafka-topics tells them."""
    rows = re.findall(
        r"Partition: \d+\s+Leader: (\S+)\s+Replicas: (\S+)", tool("kafka-topics", "--describe", "--topic", topic)
    )
    return [(int(leader), [int(one) for one in replicas.split(",")]) for leader, replicas in rows]


def await_no_throttle(millrace, *entity):
    until(lambda: "throttled" not in millrace("configs", "describe", *entity))


def await_drained(millrace, broker):
    """Waits until a broker has no leader and no replica, and has deleted the logs."""

    def is_drained():
        drained = json.loads(millrace("brokers", "describe", broker, "--json"))
        return (drained["leaders"], drained["replicas"], drained["bytes"]) == (0, 0, 0)

    until(is_drained)


def is_spread(found):
    """Returns whether each broker has all partitions in sync, and leads one or two of the four."""
    leads = sorted(one["leader"] for one in found) in ([1, 1, 2, 3], [1, 2, 2, 3], [1, 2, 3, 3])
    return leads and all(
        sorted(one["replicas"]) == sorted(one["isr"]) == [1, 2, 3] and one["state"] == [] for one in found
    )


def test_a_topic_grows_from_one_replica_to_three(topic, millrace, tool, tmp_path):
    grow = ("topics", "reassign", topic, "--replication-factor", "3", "--throttle", FAST)
    plan = json.loads(millrace(*grow, "--dry-run", "--json"))
    assert plan["bytes"] >= 8 * 400_000
    assert plan["duration_s"] >= plan["bytes"] / int(FAST)
    assert [one["from"] for one in plan["partitions"]] == [[1]] * 4
    assert [one["replicas"] for one in partitions(millrace, topic)] == [[1]] * 4, "a dry run changes nothing"

    assert "moved 4 partition(s)" in millrace(*grow)
    until(lambda: is_spread(partitions(millrace, topic)))
    found = partitions(millrace, topic)
    until(lambda: described_by_kafka(tool, topic) == [(one["leader"], one["replicas"]) for one in found])
    await_no_throttle(millrace, "--topic", topic)
    await_no_throttle(millrace, "--broker", "2")

    (tmp_path / "plan.json").write_text(json.dumps(plan))
    verified = tool("kafka-reassign-partitions", "--verify", "--reassignment-json-file", str(tmp_path / "plan.json"))
    assert verified.count("is completed") == 4
    assert millrace("topics", "reassign", "--from", str(tmp_path / "plan.json")) == "nothing to move\n"
    assert millrace(*grow) == "nothing to move\n"
    refused = millrace("brokers", "drain", "1", status=1)
    assert re.search(rf"\nmillrace topics reassign .*\b{topic}\b.* --replication-factor 2\n", refused)


def test_a_throttled_move_is_cancelled(topic, millrace, tool):
    millrace("topics", "reassign", topic, "--brokers", "2,3", "--throttle", SLOW, "--no-wait")

    def throttled():
        described = json.loads(millrace("configs", "describe", "--topic", topic, "--json"))
        return {one["property"]: one["value"] for one in described if one["property"] in THROTTLED}

    until(lambda: len(throttled()) == len(THROTTLED))
    lists = throttled()
    assert set(lists[THROTTLED[0]].split(",")) == {f"{index}:1" for index in range(4)}
    assert {one.split(":")[1] for one in lists[THROTTLED[1]].split(",")} == {"2", "3"}
    until(lambda: SLOW in millrace("configs", "describe", "--broker", "3"))
    assert topic in tool("kafka-reassign-partitions", "--list")
    until(lambda: any(one["state"] == ["reassigning"] for one in partitions(millrace, topic)))
    moving = [one for one in partitions(millrace, topic) if one["state"] == ["reassigning"]]

    cancelled = json.loads(millrace("topics", "reassign", topic, "--cancel", "--json"))["cancelled"]
    assert {one["partition"] for one in cancelled} <= {one["partition"] for one in moving}
    assert all(one["replicas"] == [1] for one in cancelled)
    assert "No partition reassignments found" in tool("kafka-reassign-partitions", "--list")
    await_no_throttle(millrace, "--topic", topic)
    await_no_throttle(millrace, "--broker", "3")
    stayed = {one["partition"] for one in cancelled}
    until(lambda: all(one["replicas"] == [1] for one in partitions(millrace, topic) if one["partition"] in stayed))
    assert millrace("topics", "reassign", topic, "--cancel") == "nothing is being moved\n"


def test_a_drain_that_is_interrupted_goes_on(topic, bootstrap, millrace, tool):
    drain = [
        sys.executable,
        "-m",
        "millrace_ops",
        "brokers",
        "drain",
        "1",
        "--throttle",
        SLOW,
        "--bootstrap",
        bootstrap,
    ]
    with subprocess.Popen(drain, stdout=-1, stderr=-1, text=True) as process:
        assert "0 of " in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert "the same command watches it again" in process.communicate(timeout=TIMEOUT_S)[1]
        assert process.returncode == 130
    assert topic in tool("kafka-reassign-partitions", "--list")
    assert "it can be stopped for good" in millrace("brokers", "drain", "1", "--throttle", FAST)
    until(lambda: all(replicas in ([2], [3]) for _, replicas in described_by_kafka(tool, topic)))
    assert "No partition reassignments found" in tool("kafka-reassign-partitions", "--list")
    await_no_throttle(millrace, "--topic", topic)
    await_no_throttle(millrace, "--broker", "1")
    await_drained(millrace, "1")


def test_a_broker_leaves(topic, millrace, tool):
    """Without a throttle, which lets the cluster go as fast as it can."""
    millrace("topics", "reassign", topic, "--replication-factor", "2")
    plan = json.loads(millrace("brokers", "drain", "1", "--dry-run", "--json"))
    assert {one["topic"] for one in plan["partitions"]} >= {topic}
    assert "it can be stopped for good" in millrace("brokers", "drain", "1")
    until(lambda: all(sorted(replicas) == [2, 3] for _, replicas in described_by_kafka(tool, topic)))
    await_drained(millrace, "1")
    assert millrace("brokers", "drain", "1").startswith("nothing to move")


def test_leaders_are_elected_and_lost_replicas_are_shown(topic, brokers, millrace, tool):
    millrace("topics", "reassign", topic, "--brokers", "2,3", "--replication-factor", "2")

    def first_replicas():
        return {one["partition"]: one["replicas"][0] for one in partitions(millrace, topic)}

    until(lambda: sorted(first_replicas().values()) == [2, 2, 3, 3])
    preferred = first_replicas()

    brokers[3].stop()
    await_brokers({1, 2}, brokers[1], brokers[2])

    def shown():
        return json.loads(millrace("topics", "describe", topic, "--under-replicated", "--json"))

    until(lambda: [one["isr"] for one in shown()] == [[2]] * 4)
    assert {tuple(one["state"]) for one in shown()} == {("under-replicated", "at-min-isr")}
    listed = {one["broker"]: one for one in json.loads(millrace("brokers", "list", "--json"))}
    assert listed[3]["address"] is None
    assert listed[3]["out_of_sync"] == listed[2]["under_replicated"] == 4
    refused = millrace("brokers", "elect", "--topic", topic, status=1)
    assert len(refused.splitlines()) == 2, refused

    brokers[2].stop()
    until(lambda: len(json.loads(millrace("topics", "describe", topic, "--unavailable", "--json"))) == 4)
    assert "has no leader at present" in millrace(
        "topics", "reassign", topic, "--brokers", "1", "--replication-factor", "1", status=1
    )
    brokers[3].start()
    await_brokers({1, 3}, brokers[1])
    elected = json.loads(millrace("brokers", "elect", "--topic", topic, "--unclean", "--yes", "--json"))
    assert [(one["result"], one["leader"]) for one in elected] == [("elected", 3)] * 4

    brokers[2].start()
    await_brokers({1, 2, 3}, brokers[1])
    until(lambda: json.loads(millrace("topics", "describe", topic, "--under-replicated", "--json")) == [])
    elected = json.loads(millrace("brokers", "elect", "--all", "--json"))
    assert {one["partition"]: one["leader"] for one in elected if one["topic"] == topic} == {
        index: 2 for index, leader in preferred.items() if leader == 2
    }
    until(lambda: {index: leader for index, (leader, _) in enumerate(described_by_kafka(tool, topic))} == preferred)
    assert "elected" not in tool("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions"), (
        "none is left"
    )
