"""A broker that was drained while it was away comes back: its logs are stray where no controller has noted that."""

import json
import shutil
import subprocess

import pytest

from millrace.client import Admin, Cluster
from millrace_support.await_brokers import await_brokers
from millrace_support.broker_clusters import PATIENT, broker_cluster
from millrace_support.removals import forget_removals

TIMEOUT_S = 120


@pytest.fixture
def brokers(tmp_path, zookeeper):
    with broker_cluster(tmp_path, zookeeper.address, ids=(1, 2), properties=PATIENT) as started:
        yield started


@pytest.fixture
def millrace(brokers, warm_millrace):
    """Runs `millrace`; what it prints."""

    def run(*arguments, status=0):
        command = [warm_millrace, *arguments, "--bootstrap", brokers.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    return run


def test_replicas_were_taken_from_a_broker_that_was_away(brokers, millrace):
    first, second = brokers.brokers[1], brokers.brokers[2]
    with Cluster(brokers.bootstrap) as cluster:
        Admin(cluster).create_topic("t", 2, replication_factor=2)
    for partition in range(2):
        brokers.until(lambda one: len(one.isr) == 2, "t", partition)
    assert millrace("brokers", "strays") == "no log is stray\n"
    second.stop()
    await_brokers({1}, first)
    millrace("topics", "reassign", "t", "--brokers", "1", "--replication-factor", "1")
    assert "broker 2 is not alive" in millrace("brokers", "strays", "2", status=1)
    first.stop()
    forget_removals(brokers.zookeeper, 2, "t", 0, 1)
    first.start()
    second.start()
    await_brokers({1, 2}, first, second)
    found = json.loads(millrace("brokers", "strays", "--json"))
    assert [(one["broker"], one["topic"], one["partition"], one["reason"]) for one in found] == [
        (2, "t", 0, "on other brokers"),
        (2, "t", 1, "on other brokers"),
    ]
    second.stop()
    for one in found:
        shutil.rmtree(f"{one['directory']}/{one['topic']}-{one['partition']}")
    second.start()
    await_brokers({1, 2}, first, second)
    assert millrace("brokers", "strays") == "no log is stray\n"
