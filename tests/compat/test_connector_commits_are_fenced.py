"""Offsets in the coordinator alone: a member that is stopped inside a commit until its session is over changes nothing.

No session of ZooKeeper ends because the machine is busy: the test itself ends that of a member that has stopped. On
Millrace and on Apache Kafka 3.9: what refuses it is the coordinators' own fencing of producers.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from millrace.client import Admin, Cluster, Groups, SyncProducer
from millrace.client.consumer import ConsumerConnector, GroupHasMembersError, Partition
from millrace.client.consumer.config import KAFKA
from millrace.client.consumer.group_offsets import GroupOffsets
from millrace.errors import SetupError
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker, find_kafka
from millrace_support.await_brokers import await_coordinators

COMMIT = ("ADD_OFFSETS_TO_TXN", "TXN_OFFSET_COMMIT", "END_TXN")
STOPS = {"begin": "INIT_PRODUCER_ID", "reset": "END_TXN"} | {api: api for api in COMMIT}
COUNT = 5
DEADLINE_S = 60
COORDINATORS_OF_ONE_BROKER = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


@pytest.fixture(scope="module", params=["millrace", pytest.param("kafka-3.9", marks=pytest.mark.peers)])
def served(request, zookeeper, tmp_path_factory):
    """Yields (a broker, its ZooKeeper's address with the chroot)."""
    connect = f"{zookeeper.address}/fenced_{request.param}"
    folder = tmp_path_factory.mktemp("fenced")
    if request.param == "millrace":
        with BrokerProcess(folder / "data", zookeeper=connect) as broker:
            yield broker, connect
        return
    try:
        kafka = find_kafka("3.9", Path(__file__).parents[2] / ".peers")
    except SetupError as error:
        pytest.skip(str(error))
    with KafkaBroker(kafka, folder / "data", zookeeper=connect, properties=COORDINATORS_OF_ONE_BROKER) as broker:
        await_coordinators(broker)
        yield broker, connect


def fill(bootstrap, topic):
    with Cluster(bootstrap) as cluster:
        SyncProducer(cluster).send(topic, 0, [NewRecord(b"x")] * COUNT)


def committed(bootstrap, group):
    with Cluster(bootstrap) as cluster:
        return Groups(cluster).offsets(group, [(group, 0)])[group, 0].offset


def properties_of(topic, connect, consumer_id):
    return {
        "group.id": topic,
        "consumer.id": consumer_id,
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": "60000",
        "offsets.storage": "kafka",
        "dual.commit.enabled": "false",
        "auto.offset.reset": "smallest",
        "auto.commit.enable": "false",
        "consumer.timeout.ms": str(DEADLINE_S * 1000),
        "rebalance.backoff.ms": "200",
        "rebalance.max.retries": "300",
    }


class Former:
    """The former owner: a process of `stopped_member.py`, which stops itself until `goes_on`."""

    def __init__(self, topic, connect, api):
        self._connect = connect
        script = str(Path(__file__).with_name("stopped_member.py"))
        properties = json.dumps(properties_of(topic, connect, "before"))
        self._process = subprocess.Popen(
            [sys.executable, script, properties, topic, str(COUNT), api], stdout=subprocess.PIPE, text=True
        )

    def await_stop(self):
        """Waits until it has stopped, and ends its session by another connection with the same id and password."""
        ended = os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert ended.si_code == os.CLD_STOPPED
        session_id, password = json.loads(self._process.stdout.readline())
        client = KazooClient(hosts=self._connect, client_id=(session_id, bytes.fromhex(password)))
        client.start(timeout=DEADLINE_S)
        client.stop()
        client.close()

    def goes_on(self):
        """Lets the process go on, and returns what it prints in the end."""
        self._process.send_signal(signal.SIGCONT)
        said, _ = self._process.communicate(timeout=DEADLINE_S)
        return said.strip()

    def kill(self):
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def formers(served):
    """Yields owners that stop right before they request an API, by the name of their group and topic."""
    broker, connect = served
    with Cluster(broker.bootstrap) as cluster:
        for topic in STOPS:
            Admin(cluster).create_topic(topic, 1)
    for topic in STOPS:
        fill(broker.bootstrap, topic)
    started = {topic: Former(topic, connect, api) for topic, api in STOPS.items()}
    yield started
    for former in started.values():
        former.kill()


@pytest.fixture
def take_over(served, formers):
    """Yields a function that waits until an owner has stopped, and returns (its successor, the successor's stream)."""
    connectors = []

    def taken_over(topic):
        formers[topic].await_stop()
        connectors.append(ConsumerConnector(properties_of(topic, served[1], "after")))  # sorts first: it keeps all
        return connectors[-1], connectors[-1].create_message_streams({topic: 1})[topic][0]

    yield taken_over
    for connector in connectors:
        connector.shutdown()


def read(stream, count=COUNT):
    return [next(stream).offset for _ in range(count)]


@pytest.mark.parametrize("api", COMMIT)
def test_a_commit_of_a_former_owner_is_refused(served, formers, take_over, api):
    bootstrap = served[0].bootstrap
    successor, stream = take_over(api)
    fill(bootstrap, api)
    assert read(stream, 2 * COUNT) == list(range(2 * COUNT))  # the former owner has committed nothing
    successor.commit_offsets()
    assert formers[api].goes_on() == "lost"
    assert committed(bootstrap, api) == 2 * COUNT
    fill(bootstrap, api)
    read(stream)
    successor.commit_offsets()
    assert committed(bootstrap, api) == 3 * COUNT


def test_an_owner_goes_on_after_a_former_one_that_wakes_up_as_it_begins(served, formers, take_over):
    """The former owner takes the partition over in the coordinator when it is the owner no longer."""
    successor, stream = take_over("begin")
    read(stream)
    assert formers["begin"].goes_on() == "joined"
    successor.commit_offsets()
    assert committed(served[0].bootstrap, "begin") == COUNT


def test_offsets_that_were_set_from_outside_stay(served, formers):
    broker, connect = served
    formers["reset"].await_stop()
    with GroupOffsets("reset", zookeeper=connect, bootstrap=broker.bootstrap) as offsets:
        deadline = time.monotonic() + DEADLINE_S
        while True:  # until the session of the one that has stopped is over
            try:
                offsets.write(KAFKA, {Partition("reset", 0): 3})
                break
            except GroupHasMembersError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
    assert formers["reset"].goes_on() == "lost"
    assert committed(broker.bootstrap, "reset") == 3
