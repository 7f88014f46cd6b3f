"""The brokers that tools are tried on, with the same topics and groups: Millrace and two versions of Apache Kafka.

there        a topic of three partitions
a.b          one partition
compacted    one that keeps the newest record of each key
small        one whose records have a hundred bytes at most
two-copies   one that needs two replicas in sync, and has one
idle         a group that has committed an offset of `there`
busy         a group with a member that reads `there`
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import confluent_kafka

from millrace.client import Admin, Cluster
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker

PROPERTIES = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "log.retention.ms": "-1",
}
TOPICS = {
    "there": (3, {}),
    "a.b": (1, {}),
    "compacted": (1, {"cleanup.policy": "compact"}),
    "small": (1, {"max.message.bytes": "100"}),
    "two-copies": (1, {"min.insync.replicas": "2"}),
}
PATIENCE_MS = 3_600_000
POLL_S = 0.1


@contextmanager
def started(folder, old, new, zookeeper):
    """Yields Kafka 3.9, Kafka 4.1 and Millrace by their names."""
    starts = {
        "Kafka 3.9": lambda: KafkaBroker(old, folder / "old", zookeeper=zookeeper, properties=PROPERTIES),
        "Kafka 4.1": lambda: KafkaBroker(new, folder / "new", properties=PROPERTIES),
        "Millrace": lambda: BrokerProcess(folder / "millrace", properties=PROPERTIES),
    }
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        running = {name: pool.submit(start) for name, start in starts.items()}
        brokers = {name: stack.enter_context(one.result()) for name, one in running.items()}
        for broker in brokers.values():
            stack.enter_context(furnished(broker.bootstrap))
        yield brokers


@contextmanager
def furnished(bootstrap):
    """Gives a broker its topics and groups; the member of `busy` leaves at the end."""
    with Cluster(bootstrap) as cluster:
        for name, (partitions, config) in TOPICS.items():
            Admin(cluster).create_topic(name, partitions, config=config)
    with member(bootstrap, "idle") as consumer:
        consumer.commit(offsets=[confluent_kafka.TopicPartition("there", 0, 0)], asynchronous=False)
    with member(bootstrap, "busy"):
        yield


@contextmanager
def member(bootstrap, group):
    """Yields a consumer of `there` that has its partitions, and stays in its group though it reads nothing."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "client.id": "member", "max.poll.interval.ms": PATIENCE_MS}
    )
    consumer.subscribe(["there"])
    while not consumer.assignment():
        consumer.poll(POLL_S)
    yield consumer
    consumer.close()
