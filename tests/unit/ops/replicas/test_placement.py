"""Where replicas go when a broker leaves: nothing else moves, leaders are spread, what keeps it is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import InvalidReplicaAssignmentError
from millrace_ops.cli.brokers import _why_it_stays
from millrace_ops.replicas.placement import place, too_many_replicas, with_leaders_spread

BROKERS = range(1, 7)
REPLICAS = st.lists(st.sampled_from(BROKERS), unique=True, min_size=1, max_size=5)
ASSIGNMENTS = st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), REPLICAS, min_size=1, max_size=30)
LEAVING = 1


def drained(current, staying, live):
    placed = place(current, dict.fromkeys(staying), receivers=live, level=False)
    moved = {one for one, replicas in current.items() if LEAVING in replicas}
    return with_leaders_spread(placed, dict.fromkeys(staying), moved)


@given(ASSIGNMENTS, st.sets(st.sampled_from(BROKERS), min_size=1))
def test_what_is_impossible_is_known_before(current, live):
    staying = {one for replicas in current.values() for one in replicas} | live
    staying, live = staying - {LEAVING}, live - {LEAVING}
    if too_many_replicas(current, staying, live):
        with pytest.raises(InvalidReplicaAssignmentError):
            drained(current, staying, live)
    else:
        assert all(LEAVING not in replicas for replicas in drained(current, staying, live).values())


@given(ASSIGNMENTS, st.sets(st.sampled_from(BROKERS), min_size=1))
def test_fewer_replicas_make_it_possible(current, live):
    staying = ({one for replicas in current.values() for one in replicas} | live) - {LEAVING}
    live = live - {LEAVING}
    for topic, most in too_many_replicas(current, staying, live).items():
        if most:
            fewer = {one: replicas for one, replicas in current.items() if one[0] == topic}
            placed = place(fewer, dict.fromkeys(staying), replication_factor=most, receivers=live)
            assert {len(replicas) for replicas in placed.values()} == {most}


@given(ASSIGNMENTS)
def test_nothing_else_moves(current):
    current = {one: replicas[:4] for one, replicas in current.items()}
    placed = drained(current, BROKERS[1:], BROKERS[1:])
    for one, replicas in current.items():
        if LEAVING in replicas:
            assert {*placed[one]} >= {*replicas} - {LEAVING}
            assert len(placed[one]) == len(replicas)
        else:
            assert placed[one] == tuple(replicas)


def test_the_leaders_of_a_broker_that_leaves_are_spread():
    current = {("t", index): [LEAVING, 2, 3] for index in range(12)}
    placed = drained(current, range(2, 6), range(2, 6))
    firsts = [replicas[0] for replicas in placed.values()]
    assert {firsts.count(one) for one in range(2, 6)} == {3}


def test_each_topic_that_keeps_a_broker_is_named_with_the_command_that_lets_it_go():
    current = {("a", 0): [1, 2, 3], ("b", 0): [3, 1, 2], ("c", 0): [1, 2], ("d", 0): [1, 2, 3, 4]}
    too_many = too_many_replicas(current, {2, 3}, {2, 3})
    assert too_many == {"a": 2, "b": 2, "d": 2}
    said, command = _why_it_stays(1, [2, 3], too_many).splitlines()
    assert "as only brokers 2, 3 would be left: a, b, d. Start another broker" in said
    assert command == "millrace topics reassign a b d --replication-factor 2"
