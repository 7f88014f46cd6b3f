"""Clients that no one here wrote, against Millrace and, to show that the tests themselves are right, Apache Kafka.

`@pytest.mark.needs("JoinGroup", …)` names the APIs that a test drives. A test whose APIs Millrace does not all serve is
not run against it, and the summary names them. `pytest -m peers tests/clients` runs all against Apache Kafka.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from millrace.errors import SetupError
from millrace.testing.broker import BrokerProcess
from millrace.testing.kafka import KafkaBroker, find_kafka
from millrace_broker.handlers.registry import APIS

PEERS = Path(__file__).parents[2] / ".peers"
NOT_SERVED = pytest.StashKey()
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "1",
}
API_KEYS = {
    "JoinGroup": 11,
    "CreatePartitions": 37,
    "DeleteRecords": 21,
    "InitProducerId": 22,
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
    "DescribeUserScramCredentials": 50,
    "DescribeCluster": 60,
    "DescribeProducers": 61,
    "ConsumerGroupHeartbeat": 68,
    "DescribeTopicPartitions": 75,
}


class Target(NamedTuple):
    """A broker to drive."""

    kind: str
    bootstrap: str


def pytest_generate_tests(metafunc):
    if "target" in metafunc.fixturenames:
        with_kafka = "peers" in metafunc.config.option.markexpr
        kinds = ["millrace", *([pytest.param("kafka", marks=pytest.mark.peers)] if with_kafka else [])]
        metafunc.parametrize("target", kinds, indirect=True, scope="session")


def pytest_collection_modifyitems(config, items):
    """Leave out what Millrace can't answer yet."""
    here = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    missing = {item: unserved(item) for item in here if "[millrace" in item.name}
    left_out = [item for item, apis in missing.items() if apis]
    config.stash[NOT_SERVED] = sorted({api for item in left_out for api in missing[item]})
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def unserved(item):
    return [api for mark in item.iter_markers("needs") for api in mark.args if API_KEYS[api] not in APIS]


def pytest_terminal_summary(terminalreporter, config):
    if apis := config.stash.get(NOT_SERVED, []):
        terminalreporter.section("tests of clients that need what Millrace does not serve yet")
        terminalreporter.line(", ".join(apis))


@pytest.fixture(scope="session")
def kafka_jars():
    """Apache Kafka's programs."""
    try:
        return find_kafka("4.1", PEERS)
    except SetupError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def target(request, tmp_path_factory):
    """One broker of each kind for all these tests; they keep apart by the names of their topics and groups."""
    place = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        jars = request.getfixturevalue("kafka_jars")
        with KafkaBroker(jars, place / "data", properties=PROPERTIES) as broker:
            yield Target("kafka", broker.bootstrap)
    else:
        with BrokerProcess(place / "data", properties=PROPERTIES) as broker:
            yield Target("millrace", broker.bootstrap)


@pytest.fixture
def name(request):
    """A name for topics and groups that no other test has."""
    return request.node.originalname.removeprefix("test_").replace("_", "-")
