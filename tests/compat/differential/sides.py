"""The brokers side by side: Millrace, Apache Kafka with ZooKeeper, Apache Kafka with KRaft; set up alike."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from differential.session import Session
from differential.wire import Wire

from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper

MILLRACE = "Millrace"
KAFKAS = ("Kafka 4.1", "Kafka 3.9")  # the newest speaks first
COORDINATOR_NOT_READY = (14, 15, 16)
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "5000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "log.retention.ms": "-1",
    "message.max.bytes": "100000",
}


class Side(NamedTuple):
    """A broker that is asked."""

    name: str
    bootstrap: str
    messages: Any
    versions: dict[str, range]
    shared_topics: dict[str, str]


@contextmanager
def started(directory, old, new, messages):
    """All sides by their names: `old` and `new` are the jars of 3.9 and 4.1."""
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        starts = {
            MILLRACE: lambda: BrokerProcess(directory / "millrace", properties=PROPERTIES),
            "Kafka 4.1": lambda: KafkaBroker(new, directory / "kraft", properties=PROPERTIES),
            "Kafka 3.9": lambda: with_zookeeper(stack, directory, old),
        }
        running = {name: pool.submit(start) for name, start in starts.items()}
        brokers = {name: stack.enter_context(future.result()) for name, future in running.items()}
        sides = {name: side(name, broker.bootstrap, messages) for name, broker in brokers.items()}
        list(pool.map(await_coordinators, sides.values()))
        yield sides


def with_zookeeper(stack, directory, kafka):
    zookeeper = stack.enter_context(EmbeddedZooKeeper(directory / "zookeeper"))
    return KafkaBroker(kafka, directory / "kafka", zookeeper=zookeeper.address, properties=PROPERTIES)


def await_coordinators(side):
    """A broker serves a little before it can give producer ids and has made the topic of committed offsets."""
    session = Session(side, "ApiVersions", "start", 0)
    if session.serves("InitProducerId"):
        session.until(
            lambda: session.call("InitProducerId", 0, transactionalId=None, transactionTimeoutMs=1000),
            lambda answer: answer["errorCode"] == 0,
        )
    if session.serves("JoinGroup"):
        session.until(lambda: session.call("FindCoordinator", 0, key="start"), lambda answer: answer["errorCode"] == 0)
        session.until(
            lambda: session.call("Heartbeat", 0, groupId="start", generationId=1, memberId="nobody"),
            lambda answer: answer["errorCode"] not in COORDINATOR_NOT_READY,
        )
    session.close()


def side(name, bootstrap, messages):
    """A side with the versions that it advertises."""
    wire = Wire(messages, bootstrap)
    answer = wire.receive(wire.send("ApiVersions", 0, {}))
    wire.close()
    names = messages.api_names()
    versions = {names[one["apiKey"]]: range(one["minVersion"], one["maxVersion"] + 1) for one in answer["apiKeys"]}
    if name == "Kafka 4.1":
        versions["Produce"] = range(3, versions["Produce"].stop)  # advertised from 0 for librdkafka's sake (KIP-896)
    if name == "Kafka 3.9":
        del versions["ConsumerGroupHeartbeat"], versions["ConsumerGroupDescribe"]  # refused without KRaft
    return Side(name, bootstrap, messages, versions, {})
