"""Messages are copied in transactions while three brokers bounce, cleanly and hard: each is in the copy once.

The leader of a copy's partition and the controller are bounced in turn, whenever a further part has been copied.
"""

import sys
from collections import Counter
from itertools import cycle, islice
from pathlib import Path

import pytest
from confluent_kafka import Producer
from copying import PARTITIONS, PATIENCE_S, Copier, Reader
from playing import CLUSTER_PROPERTIES

from millrace.client import Cluster
from millrace.testing.broker import BrokerProcess
from millrace_support.broker_clusters import broker_cluster, create_replicated

COPIERS = Path(__file__).parent / "copiers"
NAME = "events"
SHORT, LONG = (1500, 4, 50), (100_000, 20, 250)  # messages, bounces, messages in a transaction


def hard(broker):
    broker.kill()
    broker.start()


def leader(brokers):
    return brokers.until(lambda one: one.leader in brokers.brokers, f"{NAME}-out").leader


def controller(brokers):
    return brokers.controller()


BOUNCES = ((leader, hard), (controller, BrokerProcess.restart), (leader, BrokerProcess.restart), (controller, hard))


def sent(bootstrap, count):
    """By partition, what was sent."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(f"{NAME}-in", b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    return [list(range(partition, count, PARTITIONS)) for partition in range(PARTITIONS)]


@pytest.mark.timeout(3000)
@pytest.mark.soak(rounds=1, minutes=1)
@pytest.mark.parametrize("client", ["confluent", "millrace"])
def test_transactions_copy_each_message_once_while_brokers_bounce(
    zookeeper, tmp_path, pytestconfig, record_property, client
):
    count, bounces, in_one = LONG if pytestconfig.getoption("--soak") else SHORT
    bounced = Counter()
    with broker_cluster(tmp_path, zookeeper.address, properties=CLUSTER_PROPERTIES) as brokers:
        with Cluster(brokers.bootstrap) as cluster:
            for end in ("in", "out"):
                create_replicated(cluster, f"{NAME}-{end}", PARTITIONS, 3)
        expected = sent(brokers.bootstrap, count)
        reader = Reader(brokers.bootstrap, [NAME])
        command = [sys.executable, str(COPIERS / f"copy_with_{client}.py"), brokers.bootstrap, NAME, str(in_one)]
        copier = Copier(NAME, command, tmp_path / "copier.log")
        for thread in (reader, copier):
            thread.start()
        try:
            for number, (who, bounce) in enumerate(islice(cycle(BOUNCES), bounces), 1):
                reader.await_counts({NAME: count * number // (bounces + 2)})
                bounce(brokers.brokers[who(brokers)])
                bounced[f"{who.__name__}, {'hard' if bounce is hard else 'clean'}"] += 1
            reader.await_counts({NAME: count})
        finally:
            for thread in (copier, reader):
                thread.stop()
    assert reader.copied(NAME) == expected
    for name, number in bounced.items():
        record_property(name, number)
    record_property("messages", count)
