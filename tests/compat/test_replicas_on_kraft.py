"""Two brokers of Apache Kafka 4.1, of which one is the controller (KRaft): our commands move replicas there, too."""

import json
import subprocess
from dataclasses import replace

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_support.await_brokers import await_brokers
from millrace_support.waiting import until

TIMEOUT_S = 240


@pytest.fixture
def bootstrap(find_peer, tmp_path):
    kafka = find_peer("4.1")
    small = replace(kafka, java_flags=(*(flag for flag in kafka.java_flags if not flag.startswith("-Xmx")), "-Xmx256m"))
    with (
        KafkaBroker(small, tmp_path / "1") as first,
        KafkaBroker(small, tmp_path / "2", broker_id=2, beside=first) as second,
    ):
        await_brokers({1, 2}, first, second)
        yield f"{first.bootstrap},{second.bootstrap}"
        second.kill()  # a broker waits for its controller, which ends the first


@pytest.fixture
def millrace(warm_millrace, bootstrap):
    def run(*arguments, status=0):
        command = [warm_millrace, *arguments, "--bootstrap", bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    return run


def test_a_topic_grows_and_shrinks_and_a_broker_leaves(bootstrap, millrace):
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic("t", 2)
        SyncProducer(cluster).send("t", 0, [NewRecord(b"x" * 10_000)])
    assert "moved" in millrace("topics", "reassign", "t", "--replication-factor", "2", "--throttle", "100000000")

    def is_spread():
        found = json.loads(millrace("topics", "describe", "t", "--json"))["partitions"]
        isr, leaders = [sorted(one["isr"]) for one in found], sorted(one["leader"] for one in found)
        return isr == [[1, 2], [1, 2]] and leaders == [1, 2]

    until(is_spread)
    assert json.loads(millrace("cluster", "health", "--json"))["is_well"]
    [listed] = [one for one in json.loads(millrace("topics", "list", "--json")) if one["topic"] == "t"]
    assert (listed["records"], listed["bytes"] > 10_000) == (1, True)
    for entity in (("--topic", "t"), ("--broker", "2")):
        until(lambda entity=entity: "throttled" not in millrace("configs", "describe", *entity))
    assert "\nmillrace topics reassign t --replication-factor 1\n" in millrace("brokers", "drain", "2", status=1)
    elected = json.loads(millrace("brokers", "elect", "--topic", "t", "--json"))
    assert {one["result"] for one in elected} == {"not needed"}

    millrace("topics", "reassign", "t", "--replication-factor", "1")
    assert "it can be stopped for good" in millrace("brokers", "drain", "2")

    def is_drained():
        listed = {one["broker"]: one for one in json.loads(millrace("brokers", "list", "--json"))}
        return (listed[1]["leaders"], listed[2]["replicas"]) == (2, 0)

    until(is_drained)
