"""Transactions of `Producer` in topics of three partitions, and what readers of committed records get of them."""

from __future__ import annotations

from functools import partial

from millrace import Producer
from millrace.client import Admin, Cluster, Groups, SimpleConsumer
from millrace.client.fetched import IsolationLevel
from millrace.client.producer import Delivery
from millrace_support.waiting import until

PROPERTIES = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
}
PARTITIONS = 3
COMMITTED = IsolationLevel.READ_COMMITTED


def created(bootstrap: str, name: str) -> str:
    """Creates a topic, and returns its name."""
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(name, PARTITIONS)
    return name


def transactional(bootstrap: str, name: str, **properties: object) -> Producer:
    """Returns a producer that has taken a transactional id over."""
    given = {"broker_list": bootstrap, "producer_type": "async", "transactional_id": name}
    producer = Producer(given | properties)
    producer.init_transactions()
    return producer


def send_each(producer: Producer, topic: str, *values: bytes) -> list[Delivery]:
    """Sends values to the partitions in turn."""
    return [producer.send(topic, value, partition=index % PARTITIONS) for index, value in enumerate(values)]


def committed(bootstrap: str, topic: str) -> list[bytes | None]:
    """Returns the values that a reader of committed records gets, once no transaction is open there any more."""
    with SimpleConsumer(bootstrap) as consumer:
        for index in range(PARTITIONS):
            until(partial(_is_decided, consumer, topic, index))
    return committed_before_the_end(bootstrap, topic)


def _is_decided(consumer: SimpleConsumer, topic: str, index: int) -> bool:
    return consumer.latest(topic, index, COMMITTED) == consumer.latest(topic, index)


def committed_before_the_end(bootstrap: str, topic: str) -> list[bytes | None]:
    """Returns the values that a reader of committed records gets now."""
    found: list[bytes | None] = []
    with SimpleConsumer(bootstrap) as consumer:
        for index in range(PARTITIONS):
            end = consumer.latest(topic, index, COMMITTED)
            records = consumer.messages(topic, index, until_offset=end, isolation=COMMITTED)
            found += [record.value for record in records]
    return sorted(found, key=lambda value: value or b"")


def offset_of(bootstrap: str, group: str, topic: str) -> int:
    """Returns a group's committed offset in partition 0, or -1, once no transaction can change it."""
    with Cluster(bootstrap) as cluster:
        return Groups(cluster).offsets(group, [(topic, 0)])[topic, 0].offset
