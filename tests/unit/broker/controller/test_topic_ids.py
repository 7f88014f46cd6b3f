"""Topics that were created without an id: the controller writes one, and keeps what else is in the node."""

import json

import pytest

from millrace.uuids import NO_TOPIC_ID
from millrace.zk import codec, paths
from millrace_broker.controller.claims import claim_controller
from millrace_broker.controller.cluster_state import Assignment
from millrace_broker.controller.controller_store import ControllerStore
from millrace_support.model_zookeeper import ModelSession, ModelZooKeeper

OLD = {"version": 1, "partitions": {"0": [1, 2], "1": [2, 1]}}  # as tools before Apache Kafka 2.4 write it
MOVED = {"version": 2, "partitions": {"0": [3, 1, 2]}, "adding_replicas": {"0": [3]}, "removing_replicas": {"0": [2]}}


class Meddled(ModelSession):
    """A session between whose first read of a topic and its first write another program writes the node."""

    is_meddled = False

    def multi(self, operations):
        if not self.is_meddled and any(one.path == paths.topic("t") for one in operations):
            self.is_meddled = True
            self.zookeeper.put(paths.topic("t"), json.dumps({"version": 1, "partitions": {"0": [5, 6]}}).encode())
        return super().multi(operations)


def store_of(fields, session_type=ModelSession):
    zookeeper = ModelZooKeeper()
    for path in paths.PERSISTENT:
        zookeeper.put(path, b"")
    zookeeper.put(paths.topic("t"), json.dumps(fields).encode())
    session = session_type(zookeeper)
    return ControllerStore(session, claim_controller(session, 1, 0)), session


@pytest.mark.parametrize(
    ("fields", "assignments"),
    [
        (OLD, [Assignment((1, 2)), Assignment((2, 1))]),
        (MOVED, [Assignment((3, 1, 2), (3,), (2,))]),
    ],
)
def test_a_topic_without_an_id_gets_one_for_ever(fields, assignments):
    store, session = store_of(fields)
    topic = store.topics()["t"]
    assert topic.topic_id != NO_TOPIC_ID
    assert topic.assignments == assignments
    assert codec.decode_topic(session.get(paths.topic("t"))).topic_id == topic.topic_id
    assert store.topics()["t"] == topic


def test_a_topic_that_another_changes_meanwhile_keeps_the_change():
    store, session = store_of(OLD, Meddled)
    topic = store.topics()["t"]
    assert session.is_meddled
    assert topic.assignments == [Assignment((5, 6))]
    assert codec.decode_topic(session.get(paths.topic("t"))).topic_id == topic.topic_id != NO_TOPIC_ID
