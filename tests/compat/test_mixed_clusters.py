"""Apache Kafka 3.9 and Millrace are brokers of one cluster, and each becomes the other one under load.

Each side is the controller, the leader and a follower of partitions, and the coordinator of groups and of transactions
in turn. Clients are those of confluent_kafka and of Java.
"""

import subprocess
import time
from pathlib import Path
from uuid import uuid4

import pytest

from millrace.client import Admin
from millrace.wire.api import ApiKey
from millrace.zk import paths
from millrace.zk.eligibility import Eligibility, encode_eligibility
from millrace_support.java_programs import with_program
from millrace_support.mixed_clusters import Software, kafka_of_256_mb, mixed_cluster
from millrace_support.raw import RawConnection
from millrace_support.rolled_clusters import PARTITIONS, RolledCluster, replicated
from millrace_support.rolling_load import Sent
from millrace_support.waiting import PATIENCE_S, awaited
from millrace_support.zookeeper_sessions import started

JAVA = "java"
JAVA_TRANSACTIONS = Path(__file__).parent / "judges" / "Transactions.java"
KAFKA, MILLRACE = Software


def verify_replicas(kafka, brokers, topics):
    """Waits until kafka-replica-verification has compared all replicas from their first record to their last."""
    options = ("--time", "-2", "--report-interval-ms", "500", "--max-wait-ms", "200", "--broker-list")
    included = ("--topics-include", "|".join(topics))
    flags = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
    tool = kafka.command(
        "org.apache.kafka.tools.ReplicaVerificationTool", *options, brokers.bootstrap, *included, flags=flags
    )
    with subprocess.Popen(tool, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            said = list(until_equal(process.stdout))
        finally:
            process.terminate()
    assert f"among {len(topics) * PARTITIONS} partitions" in said[-1], said


def until_equal(lines):
    """Yields what the tool says until the replicas are equal; it reports twice a second, and does not end by itself."""
    deadline = time.monotonic() + PATIENCE_S
    for line in lines:
        yield line
        assert "match" not in line
        assert time.monotonic() < deadline, line
        if "max lag is 0 for" in line:
            return


def offered_features(broker):
    """Returns the names of the features that clients may rely on, as a broker says."""
    with RawConnection(broker.bootstrap) as raw:
        software = {"client_software_name": "test", "client_software_version": "1"}
        answer = raw.request(ApiKey.API_VERSIONS, 3, software)
    return [one.name for one in answer.finalized_features or ()]


def commit_by_java(client, broker, rolled):
    """Commits transactions by a Java client of 4.1, which begins at this broker and meets all of them."""
    with_program(client, JAVA_TRANSACTIONS).run(JAVA_TRANSACTIONS.stem, broker.bootstrap, JAVA, str(PARTITIONS), "3")
    expected = [Sent(partition, number) for partition in range(PARTITIONS) for number in range(3)]
    assert rolled.read_once_complete(JAVA) == expected


def test_each_side_takes_over_everything_from_the_other(kafka, find_peer, tmp_path, zookeeper):
    start, chroot = {1: KAFKA, 2: MILLRACE}, f"{zookeeper.address}/{uuid4().hex}"
    with (
        mixed_cluster(kafka, tmp_path, chroot, start, replicated(2, 1)) as brokers,
        RolledCluster(brokers, others=(JAVA,)) as rolled,
    ):
        assert brokers.controller() == 1
        assert offered_features(brokers.brokers[2]) == [], "what Apache Kafka with ZooKeeper lacks is not offered"
        commit_by_java(find_peer("4.1"), brokers.brokers[2], rolled)
        rolled.become(1, KAFKA)
        assert brokers.controller() == 2
        rolled.become(2, MILLRACE)
        assert brokers.controller() == 1
        rolled.judge()
        verify_replicas(kafka_of_256_mb(kafka), brokers, rolled.topics)


def test_apache_kafka_passes_over_who_is_eligible(kafka, tmp_path, zookeeper):
    """Its controller does not know the node beside a state, and Millrace's takes this one for outdated."""
    start, chroot = {1: KAFKA, 2: MILLRACE}, f"{zookeeper.address}/{uuid4().hex}"
    with mixed_cluster(kafka, tmp_path, chroot, start, replicated(2, 2)) as brokers, started(chroot) as session:
        assert brokers.controller() == 1
        with brokers.connect() as cluster:
            admin = Admin(cluster)
            for topic in ("deleted", "kept"):
                admin.create_topic(topic, 1, 2)
                brokers.until(lambda one: len(one.isr) == 2, topic)
                session.put(paths.eligible(topic, 0), encode_eligibility(Eligibility(eligible=(2,)), 99))
            admin.delete_topic("deleted")
        awaited(lambda: not session.exists(paths.topic("deleted")) or None, "all nodes of the topic are gone")
        brokers.brokers[1].stop()
        state = brokers.until(lambda one: one.leader == 2, "kept")
        assert state.isr == (2,)
        awaited(lambda: brokers.controller() == 2 or None, "Millrace is the controller")
        brokers.brokers[1].start(MILLRACE)
        brokers.until(lambda one: len(one.isr) == 2, "kept")


@pytest.mark.soak(rounds=0, minutes=1)
def test_three_brokers_of_kafka_become_millrace_and_kafka_again(kafka, tmp_path, zookeeper, rounds, record_property):
    start = dict.fromkeys((1, 2, 3), KAFKA)
    for number in rounds:
        place = tmp_path / str(number), f"{zookeeper.address}/{uuid4().hex}"
        with mixed_cluster(kafka, *place, start, replicated(3, 2)) as brokers, RolledCluster(brokers) as rolled:
            for software in (MILLRACE, KAFKA):
                for each in (1, 2, 3):
                    rolled.become(each, software)
            rolled.judge()
        record_property("acknowledged", len(rolled.load.acknowledged))
        record_property("transactions", len(rolled.load.committed))
