"""Names of mirrored topics, topics that are never mirrored, and records that would come home."""

import pytest

from millrace_pipelines.mirror.naming import (
    is_internal,
    mirror_at,
    name_fault,
    origins_of,
    taken_by,
    target_name,
)
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.states import State, TopicState


def state(**fields):
    told = {"source": "east", "topic": "orders", "target_topic": "east.orders", "way": Way.COPY, "target_topic_id": "t"}
    return TopicState(**told | fields)


@pytest.mark.parametrize(
    ("topic", "keeps", "name"),
    [
        ("orders", False, "east.orders"),
        ("orders", True, "orders"),
        ("west.orders", False, "east.west.orders"),
        ("_schemas", False, "_schemas"),
    ],
)
def test_a_mirrored_topic_is_called(topic, keeps, name):
    assert target_name("east", topic, keep_names=keeps) == name


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("orders", None),
        ("a" * 249, None),
        ("a" * 250, "has 250 characters, and a topic's name 249 at most; give the source a shorter name"),
        ("..", "'..' is no name of a topic"),
        ("a b", "'a b' is no name of a topic"),
    ],
)
def test_a_name_that_is_impossible_is_told(name, fault):
    said = name_fault(name)
    assert said is None if fault is None else fault in said


@pytest.mark.parametrize(
    ("topic", "is_left_out"),
    [
        ("__consumer_offsets", True), ("__mirror_states", True), ("mm2-offsets.east.internal", True),
        ("east.checkpoints.internal", True), ("heartbeats", True), ("east.heartbeats", True),
        ("_schemas", False), ("orders", False), ("my-heartbeats", False), ("internal", False),
        ("orders.internals", False),
    ],
)  # fmt: skip
def test_topics_of_clusters_and_mirrors_are_left_out(topic, is_left_out):
    assert is_internal(topic) is is_left_out


@pytest.mark.parametrize(
    ("fields", "topic_id", "is_mirror"),
    [
        ({}, "t", True),
        ({}, "another", False),
        ({"target_topic": "orders"}, "t", False),
        ({"target_topic_id": None}, "t", True),  # about to be created, or just created
        ({"target_topic_id": None, "state": State.STOPPED}, "t", False),  # a topic of others was there
        ({"state": State.PAUSED}, "t", True),
        ({"state": State.STOPPED}, "t", True),
        ({"state": State.SWITCHING}, "t", True),
        ({"state": State.SWITCHED}, "t", False),
        ({"target_topic_id": None}, None, True),
    ],
)
def test_a_topic_that_a_mirror_writes_is_known(fields, topic_id, is_mirror):
    found = mirror_at([state(**fields)], "east.orders", topic_id)
    assert (found is not None) is is_mirror


@pytest.mark.parametrize("length", [2, 3, 5])
def test_in_a_ring_of_any_length_a_record_comes_home_never(length):
    """Each cluster mirrors the one before it; what the first one has goes round, but for the last step."""
    at = None
    for cluster in range(length):
        origins = origins_of(f"c{cluster}", at)
        following = f"c{(cluster + 1) % length}"
        assert (following in origins) is (cluster == length - 1)
        at = state(origins=origins)


def test_of_two_topics_with_one_name_the_other_one_is_found():
    states = {"west/orders": state(source="west", target_topic="orders")}
    assert taken_by(states, "east/orders", "orders").key == "west/orders"
    assert taken_by(states, "west/orders", "orders") is None
    assert taken_by(states, "east/orders", "clicks") is None
    stopped = {"west/orders": state(source="west", target_topic="orders").stopped("a reason")}
    assert taken_by(stopped, "east/orders", "orders") is None
