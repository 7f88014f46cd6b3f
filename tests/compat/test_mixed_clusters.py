"""Apache Kafka 3.9 and Millrace are brokers of one cluster, and each becomes the other one under load.

Each side is the controller, the leader and a follower of partitions, and the coordinator of groups and of transactions
in turn. Clients are those of confluent_kafka and of Java.
"""

import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.client import Cluster
from millrace.errors import MillraceError
from millrace.testing.kafka import await_markers
from millrace.wire.api import ApiKey
from millrace_support.broker_clusters import DEADLINE_S, awaited
from millrace_support.mixed_clusters import Software, kafka_of_256_mb, mixed_cluster
from millrace_support.raw import RawConnection
from millrace_support.rolling_load import RollingLoad, Sent, read_topic

PLAIN, TRANSACTIONAL, JAVA = CREATED = ("plain", "transactional", "java")
TOPICS = (*CREATED, "__consumer_offsets", "__transaction_state")
JAVA_TRANSACTIONS = Path(__file__).parent / "judges" / "Transactions.java"
PARTITIONS = 4
KAFKA, MILLRACE = Software


def replicated(replicas, in_sync):
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
    }


def await_in_sync(brokers):
    """Waits until every replica of every partition is in sync."""

    def look():
        with suppress(MillraceError), Cluster(brokers.bootstrap) as cluster:
            topics = [cluster.metadata().topic(each) for each in TOPICS]
            partitions = [one for topic in topics for one in topic.partitions.values()]
            return True if all(len(one.isr) == len(brokers.brokers) for one in partitions) else None
        return None

    awaited(look, "all replicas are in sync")


def await_equal_logs(brokers):
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            folder = f"{topic}-{partition}"

            def look(folder=folder):
                return True if len({log_bytes(each, folder) for each in brokers.brokers.values()}) == 1 else None

            awaited(look, f"all replicas of {folder} have the same bytes")


def log_bytes(broker, folder):
    return b"".join(file.read_bytes() for file in sorted((broker.data_dir / folder).glob("*.log")))


def verify_replicas(kafka, brokers):
    """Waits until kafka-replica-verification has compared all replicas from their first record to their last."""
    options = ("--time", "-2", "--report-interval-ms", "500", "--max-wait-ms", "200", "--broker-list")
    topics = ("--topics-include", "|".join(TOPICS))
    flags = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
    tool = kafka.command(
        "org.apache.kafka.tools.ReplicaVerificationTool", *options, brokers.bootstrap, *topics, flags=flags
    )
    with subprocess.Popen(tool, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            said = list(until_equal(process.stdout))
        finally:
            process.terminate()
    assert f"among {len(TOPICS) * PARTITIONS} partitions" in said[-1], said


def until_equal(lines):
    """Yields what the tool says until the replicas are equal; it reports twice a second, and does not end by itself."""
    deadline = time.monotonic() + DEADLINE_S
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


def become(brokers, load, number, software):
    """Stops a broker while the load goes on, and starts it with this software, once the load has gone on without it."""
    await_in_sync(brokers)
    brokers.brokers[number].stop()
    load.await_progress()
    brokers.brokers[number].start(software)
    await_in_sync(brokers)
    load.await_progress()


def judge(brokers, load):
    """Ends the load; what was acknowledged is there, once, on all replicas with the same bytes."""
    load.finish()
    assert sorted(read_topic(brokers.bootstrap, PLAIN, PARTITIONS)) == sorted(load.acknowledged)
    committed = [Sent(partition, number) for partition in range(PARTITIONS) for number in load.committed]
    await_markers(brokers.bootstrap, TRANSACTIONAL, range(PARTITIONS))
    assert sorted(read_topic(brokers.bootstrap, TRANSACTIONAL, PARTITIONS)) == sorted(committed)
    await_in_sync(brokers)
    await_equal_logs(brokers)


def loaded(brokers):
    """Creates the topics, and returns the clients."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    topics = [NewTopic(each, PARTITIONS, len(brokers.brokers)) for each in CREATED]
    for created in admin.create_topics(topics).values():
        created.result()
    return RollingLoad(brokers.bootstrap, PLAIN, TRANSACTIONAL, PARTITIONS)


def commit_by_java(client, broker):
    """Commits transactions by a Java client of 4.1, which begins at this broker and meets all of them."""
    client.run(str(JAVA_TRANSACTIONS), broker.bootstrap, JAVA, str(PARTITIONS), "3")
    await_markers(broker.bootstrap, JAVA, range(PARTITIONS))
    committed = sorted(read_topic(broker.bootstrap, JAVA, PARTITIONS))
    assert committed == [Sent(partition, number) for partition in range(PARTITIONS) for number in range(3)]


def test_each_side_takes_over_everything_from_the_other(kafka, find_peer, tmp_path, zookeeper):
    start = {1: KAFKA, 2: MILLRACE}
    properties = replicated(2, 1)
    with mixed_cluster(kafka, tmp_path, zookeeper.address, start, properties) as brokers, loaded(brokers) as load:
        assert brokers.controller() == 1
        assert offered_features(brokers.brokers[2]) == [], "what Apache Kafka with ZooKeeper lacks is not offered"
        commit_by_java(find_peer("4.1"), brokers.brokers[2])
        become(brokers, load, 1, KAFKA)
        assert brokers.controller() == 2
        become(brokers, load, 2, MILLRACE)
        assert brokers.controller() == 1
        judge(brokers, load)
        verify_replicas(kafka_of_256_mb(kafka), brokers)


@pytest.mark.soak(rounds=0, minutes=1)
def test_three_brokers_of_kafka_become_millrace_and_kafka_again(kafka, tmp_path, zookeeper, rounds, record_property):
    start, properties = dict.fromkeys((1, 2, 3), KAFKA), replicated(3, 2)
    for number in rounds:
        folder = tmp_path / str(number)
        with mixed_cluster(kafka, folder, zookeeper.address, start, properties) as brokers, loaded(brokers) as load:
            for software in (MILLRACE, KAFKA):
                for each in (1, 2, 3):
                    become(brokers, load, each, software)
            judge(brokers, load)
        record_property("acknowledged", len(load.acknowledged))
        record_property("transactions", len(load.committed))
