"""`translate_offset` and `translate_group` on real brokers, by the states and the maps that the target has."""

from contextlib import ExitStack

import pytest

from millrace.client import Admin, Cluster, Groups
from millrace.client.groups import GroupOffset
from millrace.client.producer import Producer
from millrace.errors import UnknownTopicError
from millrace.testing.local_broker import LocalBroker
from millrace_pipelines.mirror.offset_map_topic import create_offset_map_topic
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.states import State, States, TopicState
from millrace_pipelines.mirror.translation import (
    Fit,
    MirroredTopic,
    TranslatedOffset,
    mirrored_topics,
    translate_group,
    translate_offset,
)
from millrace_support.mirrored_groups import Copier

STATES = [
    TopicState(source="east", topic="clicks", target_topic="east.clicks", way=Way.COPY),
    TopicState(source="east", topic="views", target_topic="views", way=Way.FOLLOW, state=State.SWITCHED),
    TopicState(source="west", topic="sales", target_topic="west.sales", way=Way.COPY),
]


@pytest.fixture
def clusters(broker):
    """`clicks` with ten records and a marker in between, of which seven are copied; `views`, which is the same."""
    with ExitStack() as stack:
        other = stack.enter_context(LocalBroker())
        source, target = (stack.enter_context(Cluster(one.bootstrap)) for one in (broker, other))
        for cluster, topics in ((source, ("clicks", "views")), (target, ("east.clicks", "views"))):
            for topic in topics:
                Admin(cluster).create_topic(topic, 1)
        create_offset_map_topic(target, replication_factor=1)
        with Producer(broker_list=broker.bootstrap, producer_type="async", transactional_id="source") as producer:
            producer.init_transactions()
            for _ in range(2):
                with producer.transaction():
                    for number in range(5):
                        producer.send("clicks", b"%d" % number, partition=0)
        for each in (broker, other):
            each.produce("views", [b"%d" % number for number in range(4)], partition=0)
        copier = Copier("east", source, other.bootstrap, "clicks", "east.clicks")
        copier.copy(1, at_most=7)
        with Producer(broker_list=other.bootstrap) as producer:
            States(target).create()
            States(target, producer).write(*STATES)
        yield source, target, broker.bootstrap, other.bootstrap, copier
        copier.close()


@pytest.mark.parametrize(
    ("offset", "expected"), [(0, 0), (4, 4), (5, 5), (6, 5), (7, 6), (8, 7), (9, TranslatedOffset(7, Fit.AHEAD))]
)
def test_an_offset_of_the_source_is_that_of_the_same_record(clusters, offset, expected):
    _, _, source, target, _ = clusters
    translated = translate_offset("clicks", 0, offset, "east", source=source, target=target)
    assert translated == (TranslatedOffset(expected) if isinstance(expected, int) else expected)


def test_offsets_of_a_group_are_translated_both_ways(clusters):
    source, target, *_ = clusters
    committed = {("clicks", 0): 7, ("views", 0): 3, ("other", 0): 9}
    Admin(source).create_topic("other", 1)
    Groups(source).commit("billing", {one: GroupOffset(at, "") for one, at in committed.items()})
    found = translate_group("billing", "east", source=source, target=target)
    assert found == {("east.clicks", 0): TranslatedOffset(6), ("views", 0): TranslatedOffset(3)}
    Groups(target).commit("billing", {one: GroupOffset(at.offset, "") for one, at in found.items()})
    back = translate_group("billing", "east", source=source, target=target, back=True)
    assert back == {("clicks", 0): TranslatedOffset(7), ("views", 0): TranslatedOffset(3)}
    assert translate_group("nobody", "east", source=source, target=target) == {}


def test_who_has_read_all_with_the_markers_has_read_all_on_the_other_side(clusters):
    """Markers are not in the map, and the progress goes beyond them."""
    source, target, *_, copier = clusters
    copier.copy(1)
    for offset in (11, 12):
        found = translate_offset("clicks", 0, offset, "east", source=source, target=target)
        back = translate_offset("east.clicks", 0, found.offset, "east", source=source, target=target, back=True)
        assert (found.fit, back) == (Fit.EXACT, TranslatedOffset(12))
    assert translate_offset("clicks", 0, 13, "east", source=source, target=target).fit is Fit.AHEAD


def test_a_topic_that_is_not_mirrored_is_an_error(clusters):
    source, target, *_ = clusters
    for topic in ("other", "sales"):
        with pytest.raises(UnknownTopicError, match=f"the mirror east has no topic {topic} at its source"):
            translate_offset(topic, 0, 0, "east", source=source, target=target)


def test_topics_are_those_of_the_mirror_that_are_still_mirrored():
    clicks = MirroredTopic("clicks", "east.clicks", is_followed=False)
    assert mirrored_topics(STATES, "east") == [clicks, MirroredTopic("views", "views", is_followed=True)]
    assert mirrored_topics(STATES, "east", also_switched=False) == [clicks]
