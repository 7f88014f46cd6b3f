"""The states of mirrored topics, in brokers of Millrace and of Apache Kafka."""

import json
from dataclasses import asdict, replace
from uuid import uuid4

import pytest

from millrace.client import Admin, Cluster, Configs, ResourceKind
from millrace.client.producer import Producer
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_pipelines.mirror.settings import Accept, Way
from millrace_pipelines.mirror.states import (
    STATES_TOPIC,
    KnownStop,
    State,
    StateError,
    States,
    TopicState,
    encode_state,
)

ORDERS = TopicState(source="east", topic="orders", target_topic="east.orders", way=Way.COPY)


@pytest.fixture(scope="module", params=["millrace", "3.9", "4.1"])
def bootstrap(request, find_peer, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "millrace":
        with BrokerProcess(folder) as started:
            yield started.bootstrap
        return
    zookeeper = request.getfixturevalue("zookeeper").address + f"/{uuid4().hex}" if request.param == "3.9" else None
    with KafkaBroker(find_peer(request.param), folder, zookeeper=zookeeper) as started:
        yield started.bootstrap


@pytest.fixture
def cluster(bootstrap):
    with Cluster(bootstrap) as opened:
        yield opened
        if STATES_TOPIC in Admin(opened).topics():
            Admin(opened).delete_topic(STATES_TOPIC)


@pytest.fixture
def producer(bootstrap):
    with Producer(broker_list=bootstrap) as opened:
        yield opened


@pytest.fixture
def states(cluster, producer):
    made = States(cluster, producer)
    made.create()
    return made


def test_a_cluster_without_states_has_none(cluster):
    assert States(cluster).read() == {}


def test_the_topic_is_created_once_and_is_compacted(cluster, states):
    states.create()
    found = {one.name: one.value for one in Configs(cluster).describe(ResourceKind.TOPIC, STATES_TOPIC)}
    assert found["cleanup.policy"] == "compact"
    assert len(Admin(cluster).topics()[STATES_TOPIC].partitions) == 1


def test_what_one_instance_writes_another_one_reads(bootstrap, states):
    with Cluster(bootstrap) as other:
        tail = States(other)
        assert tail.read() == {}
        written = TopicState(
            source="east", topic="orders", target_topic="east.orders", way=Way.FOLLOW, state=State.STOPPED,
            reason="it was recreated", may_pass=True, source_cluster_id="c", source_topic_id="s", target_topic_id="t",
            origins=("c", "b"), starts={0: 5, 3: 7}, accepted=frozenset({Accept.LOST_OFFSETS}),
        )  # fmt: skip
        states.write(written, ORDERS.stopped("no"), TopicState(source="b", topic="x", target_topic="b.x", way=Way.COPY))
        assert {*tail.read()} == {"east/orders", "b/x"}
        states.write(written)
        found = tail.read()["east/orders"]
        assert found.changed_ms > 0
        assert found == replace(written, changed_ms=found.changed_ms)
        states.remove("east/orders")
        assert {*tail.read()} == {*states.read()} == {"b/x"}


NO_STATES = {
    "a/json": b"no JSON",
    "a/list": b"[]",
    "a/empty": b"{}",
    "a/bytes": b"\xff",
    "a/number": b"1",
    "a/odd": json.dumps(asdict(ORDERS) | {"state": "odd", "accepted": []}).encode(),
    "a/another": encode_state(ORDERS),
    "a/b#ends": b"[]",
    "a/b#stopped-0": b"no JSON",
    "a/b#stopped-1": b'{"kind": "purged"}',
    "a/b#another-1": b"{}",
}


def test_a_record_that_is_no_state_is_named_and_the_others_go_on(states, producer):
    states.write(ORDERS)
    for key, value in NO_STATES.items():
        producer.send(STATES_TOPIC, value, key.encode())
    assert {*states.read()} == {"east/orders"}
    assert states.faults.keys() == NO_STATES.keys()
    for key, said in states.faults.items():
        assert f"the record of {key!r} " in said
    states.remove(*NO_STATES)
    states.read()
    assert states.faults == {}


def test_partitions_that_have_stopped_alone_are_told_beside_the_state(cluster, states):
    purged, cut = KnownStop("purged", "deleted offsets 3-5"), KnownStop("truncated", "it was cut")
    states.write(ORDERS)
    states.write_stops({("east/orders", 0): purged, ("east/orders", 12): cut, ("b/x", 0): cut})
    tail = States(cluster)
    assert {*tail.read()} == {"east/orders"}
    assert tail.known_stops() == {"east/orders": {0: purged, 12: cut}, "b/x": {0: cut}}
    states.write_stops({("east/orders", 0): None})
    tail.read()
    assert tail.known_stops()["east/orders"] == {12: cut}
    states.read()
    states.remove("east/orders", "b/x")
    assert tail.read() == {}
    assert (tail.known_stops(), tail.faults) == ({}, {})


def test_fields_of_later_versions_are_ignored(states, producer):
    value = {"source": "a", "topic": "b", "target_topic": "a.b", "way": "copy", "state": "paused", "of_later": 1}
    producer.send(STATES_TOPIC, json.dumps(value).encode(), b"a/b")
    assert states.read()["a/b"].state is State.PAUSED


def test_a_topic_of_states_that_is_deleted_and_created_again_is_read_from_its_beginning(cluster, states):
    states.write(ORDERS, ORDERS.resumed())
    assert {*states.read()} == {"east/orders"}
    Admin(cluster).delete_topic(STATES_TOPIC)
    assert states.read() == {}
    states.create()
    states.write(TopicState(source="b", topic="x", target_topic="b.x", way=Way.COPY))
    assert {*states.read()} == {"b/x"}


def test_without_a_producer_states_are_only_read(cluster):
    with pytest.raises(StateError, match="only be read"):
        States(cluster).write(ORDERS)


def test_a_topic_that_is_resumed_goes_on_in_spite_of_what_is_accepted():
    stopped = ORDERS.stopped("recreated").resumed([Accept.RECREATED_TOPIC]).stopped("cut", may_pass=True)
    resumed = stopped.resumed([Accept.TRUNCATED_LOG])
    assert (resumed.state, resumed.reason, resumed.may_pass) == (State.MIRRORING, "", False)
    assert resumed.accepted == {Accept.RECREATED_TOPIC, Accept.TRUNCATED_LOG}
