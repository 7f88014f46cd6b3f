"""kafka-transactions looks for hanging transactions on one broker of three, which follows most of what it has."""

import re

import pytest

from millrace.client import Cluster
from millrace.errors import ErrorCode
from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace.wire.api import ApiKey
from millrace_support.await_brokers import await_coordinators
from millrace_support.broker_clusters import PATIENT, broker_cluster, create_replicated
from millrace_support.raw import RawConnection
from millrace_support.waiting import awaited

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
IDS = (0, 1, 2)
PARTITIONS = 50  # of each internal topic, as Kafka has them by default
PROPERTIES = PATIENT | {
    "transaction.partition.verification.enable": "false",  # else no partition would take what hangs
    **{
        f"{topic}.{name}": str(value)
        for topic in ("offsets.topic", "transaction.state.log")
        for name, value in {"num.partitions": PARTITIONS, "replication.factor": len(IDS)}.items()
    },
}
PRODUCER_ID = 4242
LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def brokers(tmp_path_factory, zookeeper):
    """Brokers of which each has every partition; one partition of `hung` has an open transaction of nobody."""
    with broker_cluster(tmp_path_factory.mktemp("brokers"), zookeeper.address, IDS, PROPERTIES) as started:
        await_coordinators(started.brokers[0])
        with started.connect() as cluster:
            create_replicated(cluster, "hung", 3, len(IDS))
        with RawConnection(leader_of(started, "hung", 1).bootstrap) as raw:
            begin_transaction_of_nobody(raw, "hung", 1)
        started.all_in_sync()
        started.equal_logs("hung", 1)
        yield started


def leader_of(brokers, topic, partition):
    return brokers.brokers[brokers.until(lambda one: one.leader in IDS, topic, partition).leader]


def begin_transaction_of_nobody(raw, topic, partition):
    record = NewRecord(b"value", timestamp_ms=LONG_AGO_MS)
    batch = encode_batch([record], producer=BatchProducer(PRODUCER_ID, 0, 0), flags=TRANSACTIONAL_FLAG)
    data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
    fields = {"transactional_id": "nobody", "acks": -1, "timeout": 60_000, "topic_data": data}

    def is_taken():
        answer = raw.request(ApiKey.PRODUCE, 9, fields).responses[0].partition_responses[0]
        assert answer.error_code in {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, answer
        return answer.error_code == ErrorCode.NONE or None

    awaited(is_taken, f"the leader of {topic}-{partition} to know that it leads")


def test_they_are_found_on_a_broker_that_follows(brokers, any_kafka):
    with Cluster(brokers.bootstrap) as cluster:
        topics = cluster.metadata().topics
        follower = next(each for each in IDS if each != topics["hung"].partitions[1].leader)
        led = [one.leader == follower for topic in topics.values() for one in topic.partitions.values()]
    assert (len(led), 0 < sum(led) < len(led)) == (2 * PARTITIONS + 3, True)
    at = ("--bootstrap-server", brokers.bootstrap)
    found = any_kafka.run(
        TRANSACTIONS, *at, "find-hanging", "--broker-id", str(follower), "--max-transaction-timeout", "1"
    )
    assert re.findall(r"^(\w+)\s+(\d)\s+(\d+)\s", found, re.MULTILINE) == [("hung", "1", str(PRODUCER_ID))], found
    one = ("--topic", "hung", "--partition", "1", "--broker-id", str(follower))
    described = any_kafka.run(TRANSACTIONS, *at, "describe-producers", *one)
    assert re.search(rf"^{PRODUCER_ID}\s+0\s+-?\d+\s+0\s+{LONG_AGO_MS}\s+0", described, re.MULTILINE), described
