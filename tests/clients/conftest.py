"""Clients that no one here wrote, against Millrace and, to show that the tests themselves are right, Apache Kafka.

`@pytest.mark.needs("JoinGroup", …)` names the APIs that a test drives. A test whose APIs Millrace does not all serve is
not run against it, and the summary names them. `pytest -m peers tests/clients` runs all against Apache Kafka.

Tests of groups and of transactions run against three brokers as well, which keep three replicas of everything.
"""

import fcntl
import json
import os
import shutil
import subprocess
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millrace.errors import SetupError
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_benchmarks.kafka_broker import KafkaBroker, find_kafka
from millrace_broker.handlers.registry import APIS
from millrace_support.coordinating_brokers import coordinating_brokers
from millrace_support.java_programs import with_program

PEERS = Path(__file__).parents[2] / ".peers"
DRIVEN = pytest.StashKey()
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
COORDINATED = {"JoinGroup", "ConsumerGroupHeartbeat", "AddPartitionsToTxn", "DescribeTransactions"}
API_KEYS = {
    "JoinGroup": 11,
    "CreatePartitions": 37,
    "DeleteRecords": 21,
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "WriteTxnMarkers": 27,
    "TxnOffsetCommit": 28,
    "DescribeConfigs": 32,
    "AlterConfigs": 33,
    "AlterReplicaLogDirs": 34,
    "DescribeLogDirs": 35,
    "DescribeGroups": 15,
    "ListGroups": 16,
    "OffsetForLeaderEpoch": 23,
    "DeleteGroups": 42,
    "ElectLeaders": 43,
    "IncrementalAlterConfigs": 44,
    "AlterPartitionReassignments": 45,
    "ListPartitionReassignments": 46,
    "OffsetDelete": 47,
    "DescribeClientQuotas": 48,
    "AlterClientQuotas": 49,
    "DescribeUserScramCredentials": 50,
    "DescribeCluster": 60,
    "DescribeProducers": 61,
    "DescribeTransactions": 65,
    "ListTransactions": 66,
    "ConsumerGroupHeartbeat": 68,
    "ListConfigResources": 74,
    "DescribeTopicPartitions": 75,
}


class Target(NamedTuple):
    """One broker under test, or three by the address of one; metrics of a single Millrace count its requests.

    `until_known` waits until each broker has heard of a topic.
    """

    kind: str
    bootstrap: str
    admin_url: str = ""
    replicas: int = 1  # of a topic, for clients that can't leave that to the broker
    until_known: Callable[[str], None] = lambda _: None


def pytest_generate_tests(metafunc):
    if "target" in metafunc.fixturenames:
        with_kafka = "peers" in metafunc.config.option.markexpr
        kinds = ["millrace", *([pytest.param("kafka", marks=pytest.mark.peers)] if with_kafka else [])]
        needed = {api for mark in metafunc.definition.iter_markers("needs") for api in mark.args}
        if needed & COORDINATED:
            kinds.append("millrace-of-three")
        metafunc.parametrize("target", kinds, indirect=True, scope="session")


def pytest_collection_modifyitems(items):
    """Skips tests whose APIs Millrace does not serve yet."""
    for item in items:
        is_here = "[millrace" in item.name and item.path.is_relative_to(Path(__file__).parent)
        if is_here and (apis := unserved(item)):
            item.add_marker(pytest.mark.skip(reason=f"Millrace does not serve {', '.join(apis)} yet"))


def unserved(item):
    return [api for mark in item.iter_markers("needs") for api in mark.args if API_KEYS[api] not in APIS]


@pytest.fixture(scope="session")
def kafka_jars():
    """Apache Kafka's programs."""
    try:
        return find_kafka("4.1", PEERS)
    except SetupError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def target(request, tmp_path_factory):
    """Starts one broker of each kind for all these tests, whose topics and groups have names of their own."""
    place = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        jars = request.getfixturevalue("kafka_jars")
        with KafkaBroker(jars, place / "data", properties=PROPERTIES) as broker:
            yield Target("kafka", broker.bootstrap)
    elif request.param == "millrace-of-three":
        zookeeper = request.getfixturevalue("zookeeper").address
        with coordinating_brokers(3, place, zookeeper, PROPERTIES) as brokers:
            yield Target("millrace-of-three", brokers.first, replicas=3, until_known=brokers.until_known)
    else:
        with BrokerProcess(place / "data", properties=PROPERTIES) as broker:
            yield Target("millrace", broker.bootstrap, broker.admin_url)


@pytest.fixture(scope="session")
def driven(pytestconfig):
    """Returns the APIs that each client's tests have requested from Millrace, by the name of the client."""
    return pytestconfig.stash.setdefault(DRIVEN, defaultdict(set))


@pytest.fixture(autouse=True)
def _what_is_driven(request, driven):
    """Notes which APIs a test requests, by the broker's metrics."""
    target = request.getfixturevalue("target") if "target" in request.fixturenames else None
    if target is None or not target.admin_url:
        yield
        return
    before = requests_by_api(target)
    yield
    client = request.path.stem.removeprefix("test_with_")
    driven[client] |= {api for api, count in requests_by_api(target).items() if count > before.get(api, 0)}


def requests_by_api(target):
    """Returns how many requests of each API the broker has had."""
    with urllib.request.urlopen(f"{target.admin_url}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            ApiKey[sample.labels["api"].upper()]: sample.value
            for family in families
            if family.name == "millrace_requests"
            for sample in family.samples
        }


@pytest.fixture
def name(request):
    """A name for topics and groups that no other test has."""
    return request.node.originalname.removeprefix("test_").replace("_", "-")


NODE_TIMEOUT_S = 300
NPM_TIMEOUT_S = 600
GO_TIMEOUT_S = 600  # where Go's own library has not been compiled before


@pytest.fixture(scope="session")
def node_folder():
    """Returns a function that installs a client by npm and returns its folder, which has its scripts, too."""
    if not (shutil.which("npm") and shutil.which("node")):
        pytest.skip("clients of JavaScript need node and npm, which are not installed")
    return lambda name: npm_installed(Path(__file__).parent / name)


@pytest.fixture(scope="session")
def node_client(node_folder):
    """Returns a function that returns another, which runs one task of a client's script and returns its result."""

    def client(name, script):
        folder = node_folder(name)

        def run(target, topic, task):
            result = subprocess.run(
                ["node", str(folder / script), target.bootstrap, topic, task],
                capture_output=True, timeout=NODE_TIMEOUT_S, check=False,
            )  # fmt: skip
            assert result.returncode == 0, result.stderr.decode()
            return json.loads(result.stdout)

        return run

    return client


def npm_installed(source):
    """Returns a lasting folder with the packages of a lock file, installed once for each lock file by one process."""
    folder = PEERS / source.name
    folder.mkdir(parents=True, exist_ok=True)
    lock = (source / "package-lock.json").read_bytes()
    marker = folder / "installed.json"
    with (PEERS / f"{source.name}.lock").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        for file in source.iterdir():
            shutil.copy(file, folder / file.name)
        if marker.exists() and marker.read_bytes() == lock:
            return folder
        command = ["npm", "ci", "--no-audit", "--no-fund"]
        result = subprocess.run(command, cwd=folder, capture_output=True, timeout=NPM_TIMEOUT_S, check=False)
        if result.returncode:
            pytest.skip(f"npm can't install {source.name}: {result.stderr.decode()[-500:]}")
        marker.write_bytes(lock)
    return folder


@pytest.fixture(scope="session")
def go_client():
    """Returns the path of a client in Go in a lasting folder; it is compiled again only if it has changed."""
    if not shutil.which("go"):
        pytest.skip("the client in Go needs go, which is not installed")
    PEERS.mkdir(exist_ok=True)
    program = PEERS / "franz-go"
    with (PEERS / "franz-go.lock").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        result = subprocess.run(
            ["go", "build", "-o", str(program), "."], cwd=Path(__file__).parent / "franz-go",
            env=os.environ | {"GOGC": "off"},  # the compiler's processes are short, and need no garbage collection
            capture_output=True, timeout=GO_TIMEOUT_S, check=False,
        )  # fmt: skip
    if result.returncode:
        pytest.skip(f"go can't build the client: {result.stderr.decode()[-500:]}")
    return program


@pytest.fixture(scope="session")
def client_command(request):
    """Returns a function that returns the command of the program that does the tasks of a secured client."""

    def command(name, *java_flags):
        if name == "franz-go":
            return [str(request.getfixturevalue("go_client"))]
        if name == "kafkajs":
            return ["node", str(request.getfixturevalue("node_folder")(name) / "secured.js")]
        try:
            kafka = find_kafka(name.removeprefix("java-"), PEERS)
        except SetupError as error:
            pytest.skip(str(error))
        program = Path(__file__).parent / "java" / "SecuredClient.java"
        return with_program(kafka, program).command(
            program.stem, flags=("-Dorg.slf4j.simpleLogger.defaultLogLevel=off", *java_flags)
        )

    return command
