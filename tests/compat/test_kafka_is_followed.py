"""Apache Kafka 3.9 leads and Millrace follows, with compression, transactions and restarts."""

from time import monotonic

import pytest
from confluent_kafka import Producer

from millrace.client import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.wire.api import ApiKey
from millrace_benchmarks.kafka_broker import KafkaBroker, await_markers
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_broker.storage import TopicPartition
from millrace_support.follower_process import (
    FOLLOWER_ID,
    LEADER_ID,
    FollowedTopic,
    FollowerProcess,
    batches_of,
)
from millrace_support.raw import RawConnection

TOPIC = "followed"
PARTITIONS = 2


def produce(kafka, codec="none", transactional_id=None):
    """Sends the same records twice; in transactions, the second of which is aborted, if there is an id."""
    options = {"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "acks": "1"}
    if transactional_id is not None:
        options |= {"transactional.id": transactional_id, "acks": "all"}
    producer = Producer(options)
    if transactional_id is not None:
        producer.init_transactions()
    for ending in ("commit", "abort"):
        if transactional_id is not None:
            producer.begin_transaction()
        for number in range(200):
            producer.produce(TOPIC, b"v" * number, partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        if transactional_id is not None:
            getattr(producer, f"{ending}_transaction")()


def followed_topic(kafka):
    with RawConnection(kafka.bootstrap) as raw:
        (topic,) = raw.request(ApiKey.METADATA, 12, {
            "topics": [{"topic_id": None, "name": TOPIC}], "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }).topics  # fmt: skip
    (epoch,) = {one.leader_epoch for one in topic.partitions}
    return FollowedTopic(TOPIC, topic.topic_id, PARTITIONS, epoch)


def same_as(kafka, follower, folder):
    """Waits until the follower has all that Kafka has, and compares the files."""
    await_markers(kafka.bootstrap, TOPIC, range(PARTITIONS))
    with Cluster(kafka.bootstrap) as cluster:
        ends = [SimpleConsumer(cluster).latest(TOPIC, index) for index in range(PARTITIONS)]
    deadline = monotonic() + 120
    while follower.ends() != ends:
        assert monotonic() < deadline, f"the follower does not catch up: {follower.ends()} of {ends}"
    for key in [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]:
        assert batches_of(folder, key) == batches_of(kafka.data_dir, key)


def create(kafka):
    """Creates the topic with a replica on a broker that Kafka does not see, which is the follower."""
    replicas = [LEADER_ID, FOLLOWER_ID]
    topic = {
        "name": TOPIC, "num_partitions": -1, "replication_factor": -1, "configs": [],
        "assignments": [{"partition_index": index, "broker_ids": replicas} for index in range(PARTITIONS)],
    }  # fmt: skip
    with RawConnection(kafka.bootstrap) as raw:
        answer = raw.request(ApiKey.CREATE_TOPICS, 4, {"topics": [topic], "timeout": 30_000, "validate_only": False})
    assert answer.topics[0].error_code == 0, answer


@pytest.mark.peers
def test_a_follower_of_kafka_has_the_same_bytes(find_peer, tmp_path):
    folder = tmp_path / "follower"
    with (
        EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper,
        KafkaBroker(find_peer("3.9"), tmp_path / "kafka", zookeeper=zookeeper.address, broker_id=LEADER_ID) as kafka,
    ):
        create(kafka)
        produce(kafka)
        with FollowerProcess(folder, kafka.bootstrap, followed_topic(kafka)) as follower:
            for codec in ("gzip", "snappy", "lz4", "zstd"):
                produce(kafka, codec)
            produce(kafka, transactional_id="writer")
            same_as(kafka, follower, folder)
        kafka.stop()
        kafka.start()
        produce(kafka)
        with FollowerProcess(folder, kafka.bootstrap, followed_topic(kafka)) as follower:
            same_as(kafka, follower, folder)
