"""Where replicas should be: as many as asked for, on different brokers and racks, even, and with the fewest moves."""

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace.errors import InvalidReplicaAssignmentError
from millrace_ops.replicas.placement import place

BROKER_IDS = st.sets(st.integers(1, 8), min_size=1, max_size=6)

NO_RACK = st.none()


@st.composite
def clusters(draw, racks=NO_RACK):
    """(replicas by partition, rack by broker that may have replicas); some replicas may be on further brokers."""
    allowed = sorted(draw(BROKER_IDS))
    known = sorted({*allowed, *draw(BROKER_IDS)})
    current = {}
    for topic in draw(st.sets(st.sampled_from("abc"), min_size=1)):
        count = draw(st.integers(1, len(allowed)))
        for index in range(draw(st.integers(1, 7))):
            current[topic, index] = tuple(draw(st.permutations(known))[:count])
    return current, {one: draw(racks) for one in allowed}


WITH_RACKS = clusters(st.sampled_from("xyz"))


def per_broker(brokers, placed):
    return {one: sum(one in replicas for replicas in placed.values()) for one in brokers}


def moves(current, placed):
    return sum(len(set(placed[one]) - set(current[one])) for one in current)


def spread(counts):
    return max(counts.values()) - min(counts.values())


def of_topics(placed):
    return [
        {one: replicas for one, replicas in placed.items() if one[0] == topic}
        for topic in {topic for topic, _ in placed}
    ]


@given(clusters() | WITH_RACKS, st.integers(1, 6) | st.none())
def test_each_partition_gets_its_replicas_on_different_brokers_that_may_have_them(cluster, factor):
    current, brokers = cluster
    if factor is not None and factor > len(brokers):
        with pytest.raises(InvalidReplicaAssignmentError, match="there are only these"):
            place(current, brokers, replication_factor=factor)
        return
    placed = place(current, brokers, replication_factor=factor)
    assert placed.keys() == current.keys()
    for one, replicas in placed.items():
        assert len(set(replicas)) == len(replicas) == (factor or len(current[one]))
        assert set(replicas) <= set(brokers)


@given(clusters() | WITH_RACKS, st.integers(1, 6) | st.none())
def test_what_was_placed_stays(cluster, factor):
    current, brokers = cluster
    placed = place(current, brokers, replication_factor=factor and min(factor, len(brokers)))
    assert place(placed, brokers) == placed


@given(clusters())
def test_replicas_are_even_of_each_topic_and_in_total(cluster):
    current, brokers = cluster
    placed = place(current, brokers)
    assert all(spread(per_broker(brokers, topic)) <= 1 for topic in of_topics(placed))
    assert spread(per_broker(brokers, placed)) <= 1


@given(clusters())
@example(
    (
        {("a", 0): (1, 2, 3, 4), ("a", 1): (1, 2, 3, 4), ("a", 2): (1, 4, 6, 7)},
        dict.fromkeys((1, 2, 3, 5, 6, 7)),
    )
)
def test_one_topic_is_evened_out_with_the_fewest_moves(cluster):
    """Counted from where each replica of a broker that is gone has its new one, which is found one after the other."""
    current, brokers = cluster
    fitted = place(of_topics(current)[0], brokers, level=False)
    placed = place(fitted, brokers)
    assert placed == place(of_topics(current)[0], brokers)
    before, total = per_broker(brokers, fitted), sum(map(len, fitted.values()))
    least, most = total // len(brokers), -(-total // len(brokers))
    too_many = sum(max(0, count - most) for count in before.values())
    too_few = sum(max(0, least - count) for count in before.values())
    assert moves(fitted, placed) == max(too_many, too_few)


@given(WITH_RACKS, st.integers(1, 4))
def test_each_partition_is_in_as_many_racks_as_it_can_be(cluster, factor):
    current, brokers = cluster
    factor = min(factor, len(brokers))
    for replicas in place(current, brokers, replication_factor=factor).values():
        assert len({brokers[one] for one in replicas}) == min(factor, len(set(brokers.values())))


@given(clusters())
def test_no_change_of_one_leader_makes_leaders_more_even(cluster):
    current, brokers = cluster
    placed = place(current, brokers)
    for topic in of_topics(placed):
        leads = Counter(dict.fromkeys(brokers, 0))
        leads.update(replicas[0] for replicas in topic.values())
        assert all(leads[replicas[0]] - leads[other] <= 1 for replicas in topic.values() for other in replicas)


@given(clusters() | WITH_RACKS, st.data())
def test_a_broker_that_leaves_moves_only_its_own_replicas(cluster, data):
    current, brokers = cluster
    current = {one: tuple(each for each in replicas if each in brokers) for one, replicas in current.items()}
    current = {one: replicas for one, replicas in current.items() if replicas}
    leaving = data.draw(st.sampled_from(sorted(brokers)))
    staying = {one: rack for one, rack in brokers.items() if one != leaving}
    if any(len(replicas) > len(staying) for replicas in current.values()):
        with pytest.raises(InvalidReplicaAssignmentError):
            place(current, staying, level=False)
        return
    placed = place(current, staying, level=False)
    for one, replicas in current.items():
        pairs = list(zip(replicas, placed[one], strict=True))
        assert all(after == before for before, after in pairs if before != leaving)
        assert leaving not in placed[one]


def test_new_replicas_come_only_to_those_who_may_receive_them():
    current = {("t", 0): (1, 9), ("t", 1): (2, 9)}
    brokers = {1: None, 2: None, 3: None}
    assert place(current, brokers, receivers={1, 2}, level=False) == {("t", 0): (1, 2), ("t", 1): (2, 1)}
    with pytest.raises(InvalidReplicaAssignmentError, match="t-0: every broker that is alive has a replica already"):
        place({("t", 0): (1, 9)}, brokers, receivers={1}, level=False)


def test_a_topic_grows_from_one_replica_to_three_with_even_leaders():
    placed = place({("t", one): (1,) for one in range(6)}, {1: "a", 2: "b", 3: "c"}, replication_factor=3)
    assert {frozenset(replicas) for replicas in placed.values()} == {frozenset({1, 2, 3})}
    assert Counter(replicas[0] for replicas in placed.values()) == {1: 2, 2: 2, 3: 2}
