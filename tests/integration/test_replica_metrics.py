"""What /metrics says of replicas and of the controller while brokers of a cluster die and come back."""

import re
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace_support.broker_clusters import PATIENT, broker_cluster
from millrace_support.waiting import awaited

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
TOPIC = "t"
PARTITIONS = 6
MISSING = ("under_replicated_partitions", "under_min_isr_partition_count", "at_min_isr_partition_count")
WELL = {"offline_partitions_count": 0, "offline_replica_count": 0, "unclean_leader_elections": 0}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory, zookeeper):
    properties = {"min.insync.replicas": "2", "auto.leader.rebalance.enable": "false", **PATIENT}
    with broker_cluster(tmp_path_factory.mktemp("metrics"), zookeeper.address, properties=properties) as started:
        yield started


def families(broker):
    with urllib.request.urlopen(f"{broker.admin_url}/metrics") as answer:
        return list(text_string_to_metric_families(answer.read().decode()))


def until(brokers, **expected):
    """Waits until the sums over these brokers are as expected, and returns all of them."""

    def look():
        found = Counter()
        for broker in brokers:
            for family in families(broker):
                found[family.name.removeprefix("millrace_")] += sum(one.value for one in family.samples)
        return found if expected.items() <= found.items() else None

    return awaited(look, f"the metrics are {expected}")


def well(**more):
    return WELL | dict.fromkeys(MISSING, 0) | more


def send(brokers):
    with Cluster(brokers.bootstrap) as cluster:
        for partition in range(PARTITIONS):
            SyncProducer(cluster).send(TOPIC, partition, [NewRecord(b"v")] * 3, acks=1)


def test_replicas_and_elections(brokers):
    with Cluster(brokers.bootstrap) as cluster:
        Admin(cluster).create_topic(TOPIC, PARTITIONS, replication_factor=3)
    for index in range(PARTITIONS):
        brokers.until(lambda one: len(one.isr) == 3, TOPIC, index)
    everyone = {"leader_count": PARTITIONS, "partition_count": 3 * PARTITIONS}
    cluster = {"active_controller_count": 1, "active_broker_count": 3, "global_partition_count": PARTITIONS}
    until(brokers.brokers.values(), **well(**everyone, **cluster, preferred_replica_imbalance_count=0))

    controller = brokers.controller()
    first, second = (one for one in brokers.brokers if one != controller)
    brokers.crash(first)
    rest = [broker for each, broker in brokers.brokers.items() if each != first]
    one_is_missing = dict.fromkeys(("under_replicated_partitions", "at_min_isr_partition_count"), PARTITIONS)
    led_elsewhere = dict.fromkeys(("leader_elections", "preferred_replica_imbalance_count"), PARTITIONS / 3)
    found = until(rest, **WELL, **one_is_missing, **led_elsewhere)
    assert found["leader_election_seconds"] > 0
    assert found["under_min_isr_partition_count"] == 0

    brokers.crash(second)
    [last] = [broker for broker in rest if broker is not brokers.brokers[second]]
    until([last], **WELL, under_min_isr_partition_count=PARTITIONS, leader_count=PARTITIONS, active_broker_count=1)
    send(brokers)

    for each in (first, second):
        brokers.brokers[each].start()
    found = until(brokers.brokers.values(), **well(**everyone, **cluster, replica_fetcher_max_lag=0))
    assert found["isr_expands"] >= 2 * PARTITIONS
    assert found["failed_isr_updates"] == 0


def test_every_family_is_documented(brokers):
    documented = set(re.findall(r"`(millrace_\w+)`", DOCS.read_text()))
    ours = {family.name for family in families(brokers.brokers[1]) if family.name.startswith("millrace_")}
    assert ours == documented
