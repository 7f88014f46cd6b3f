"""Apache Kafka's Java consumer, in a rack, reads from the follower there: three Millrace brokers, each in its rack."""

import urllib.request

import pytest
from confluent_kafka import Producer

from millrace.client import Admin, Cluster
from millrace_benchmarks.kafka_broker import find_kafka
from millrace_support.broker_clusters import broker_cluster

pytestmark = pytest.mark.peers

PROPERTIES = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "replica.lag.time.max.ms": "60000",  # a follower that falls out of sync is read from no more
    "zookeeper.session.timeout.ms": "60000",  # and one that seems dead neither
}
RECORDS = 300


def fetches(broker):
    with urllib.request.urlopen(f"{broker.admin_url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    counts = [line.split()[-1] for line in lines if line.startswith('millrace_requests_total{api="fetch"}')]
    return sum(map(float, counts))


def test_the_java_consumer_reads_from_the_follower_in_its_rack(tmp_path, zookeeper):
    with broker_cluster(tmp_path, zookeeper.address, properties=PROPERTIES) as brokers:
        with Cluster(brokers.bootstrap) as cluster:
            Admin(cluster).create_topic("near", 1, replication_factor=3)
        leader = brokers.until(lambda one: len(one.isr) == 3, "near").leader
        near, other = (each for each in brokers.brokers if each != leader)
        producer = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all"})
        for number in range(RECORDS):
            producer.produce("near", b"%d" % number)
        assert producer.flush(120) == 0
        output = find_kafka("4.1").run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", brokers.bootstrap,
            "--topic", "near", "--partition", "0", "--offset", "earliest", "--max-messages", str(RECORDS),
            "--consumer-property", f"client.rack=rack-{near}", "--timeout-ms", "120000",
        )  # fmt: skip
        assert output.split()[:RECORDS] == [str(number) for number in range(RECORDS)]
        assert fetches(brokers.brokers[near]) > 0, "nobody else fetches there, as this broker leads nothing"
        assert fetches(brokers.brokers[other]) == 0
