"""A ring of three clusters, each of which mirrors the one before it: a topic goes round, is switched over, and back."""

from contextlib import ExitStack
from uuid import uuid4

import pytest

from millrace import Producer
from millrace.client import Admin, Cluster, SimpleConsumer
from millrace.client.fetched import IsolationLevel
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.mirror import switch_over
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.states import States
from millrace_support.running_mirrors import QUICK, Roles
from millrace_support.waiting import until


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    with ExitStack() as stack:
        yield [
            stack.enter_context(BrokerProcess(tmp_path_factory.mktemp(one), properties=QUICK)).bootstrap
            for one in ("first", "second", "third")
        ]


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(switch_over, "STILL_S", 0.2)


def write(bootstrap, topic, values):
    with Producer(broker_list=bootstrap) as producer:
        for value in values:
            producer.send(topic, b"%d" % value, partition=0)


def values(bootstrap, topic):
    with Cluster(bootstrap) as cluster, SimpleConsumer(cluster) as consumer:
        if cluster.metadata([topic]).lacks([topic]):
            return []
        found = consumer.messages(topic, 0, 0, isolation=IsolationLevel.READ_COMMITTED)
        return sorted(int(one.value) for one in found)


def topics(bootstrap, topic):
    with Cluster(bootstrap) as cluster:
        return {one for one in Admin(cluster).topics() if topic in one}


def reason_at(bootstrap, key):
    with Cluster(bootstrap) as cluster:
        return States(cluster).read()[key].reason


@pytest.mark.parametrize("way", [Way.FOLLOW, Way.COPY])
def test_a_topic_that_is_switched_over_goes_on_round_the_ring(ring, way):
    """Each topic has each record once. What the second cluster has made its own goes round to the first for as long."""
    first, second, third = ring
    topic = f"t{uuid4().hex[:8]}"
    with Cluster(first) as cluster:
        Admin(cluster).create_topic(topic, 1)
    a, b, c = (f"{one}{topic}" for one in "abc")
    over = Roles(a, first, second, topic, way)
    on = Roles(b, second, third, f".*{topic}", way)
    home = Roles(c, third, first, f".*{topic}", way)
    back = Roles(f"back{topic}", second, first, f"{a}[.]{topic}")
    there, beyond = f"{a}.{topic}", f"{b}.{a}.{topic}"
    with on.running(), home.running():
        with over.running():
            write(first, topic, range(5))
            until(lambda: values(third, beyond), list(range(5)).__eq__)
            told = over.command("switch-over")
            assert told.exit_code == 0, told.exception
            write(second, there, range(5, 9))
            until(lambda: values(third, beyond), list(range(9)).__eq__)
        assert back.command("switch-back").exit_code == 0
        with back.running():
            until(lambda: values(first, topic), list(range(9)).__eq__)
            told = back.command("switch-over")
            assert told.exit_code == 0, told.exception
        assert over.command("switch-back").exit_code == 0
        with over.running():
            write(first, topic, range(9, 12))
            until(lambda: values(third, beyond), list(range(12)).__eq__)
        assert values(second, there) == list(range(12))
        assert values(first, topic) == list(range(12))
        until(lambda: "comes from here" in reason_at(first, f"{c}/{beyond}"))
    assert [topics(one, topic) for one in ring] == [{topic, f"{c}.{beyond}"}, {there}, {beyond}]
