from collections import Counter
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
)
from millrace_broker.cluster import topics
from millrace_broker.cluster.view import PartitionInfo, TopicInfo


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "...", "x" * 249])
def test_legal_names(name):
    topics.check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a\0"])
def test_illegal_names(name):
    with pytest.raises(InvalidTopicError):
        topics.check_topic_name(name)


def test_names_that_differ_in_dot_and_underscore_collide():
    with pytest.raises(InvalidTopicError, match=r"collides with 'a\.b'"):
        topics.check_topic_name("a_b", ["c", "a.b"])
    topics.check_topic_name("a_b", ["a_b", "a_c"])


@given(st.sets(st.integers(0, 100), min_size=1, max_size=8), st.integers(1, 200))
def test_partitions_are_spread_evenly_over_the_brokers(brokers, partitions):
    replicas = topics.assign_replicas(tuple(brokers), partitions, 1)
    leaders = Counter(one[0] for one in replicas)
    assert len(replicas) == partitions
    assert set(leaders) <= brokers
    assert max(leaders.values()) - min(leaders[broker] for broker in brokers) <= 1


@given(
    st.sets(st.integers(0, 100), min_size=1, max_size=8),
    st.integers(1, 50),
    st.data(),
)
def test_replicas_of_a_partition_are_distinct_brokers(brokers, partitions, data):
    factor = data.draw(st.integers(1, len(brokers)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topics, "MAX_REPLICATION_FACTOR", 8)
        replicas = topics.assign_replicas(tuple(brokers), partitions, factor)
    assert all(len(set(one)) == factor and set(one) <= brokers for one in replicas)


def test_more_replicas_than_live_brokers_are_refused():
    for brokers in ((), (1, 2)):
        with pytest.raises(InvalidReplicationFactorError, match="live brokers"):
            topics.assign_replicas(brokers, 1, len(brokers) + 1)
    with pytest.raises(InvalidReplicationFactorError):
        topics.assign_replicas((1,), 1, 0)


def test_followers_are_not_served_and_the_error_says_so():
    with pytest.raises(InvalidReplicationFactorError, match="not served yet"):
        topics.assign_replicas((1, 2), 1, 2)


@pytest.mark.parametrize("count", [-1, 0, topics.MAX_PARTITIONS + 1])
def test_partition_counts_outside_the_limits(count):
    with pytest.raises(InvalidPartitionsError):
        topics.assign_replicas((1,), count, 1)


def test_a_manual_assignment_is_taken_in_the_order_of_its_partitions():
    assert topics.check_assignment({1: [2], 0: [1]}, (1, 2)) == ((1,), (2,))


@pytest.mark.parametrize("assignment", [{1: [1]}, {0: [1], 2: [1]}, {0: []}, {0: [3]}, {0: [1, 1]}])
def test_a_manual_assignment_with_a_fault(assignment):
    with pytest.raises(InvalidReplicaAssignmentError):
        topics.check_assignment(assignment, (1, 2))


def existing(*leaders):
    infos = tuple(PartitionInfo(index, one, 0, (one,), (one,)) for index, one in enumerate(leaders))
    return TopicInfo("t", uuid4(), infos, {})


def test_added_partitions_go_round_from_where_the_first_one_is():
    assert topics.added_replicas(existing(2), 5, None, (1, 2, 3)) == ((3,), (1,), (2,), (3,))
    assert topics.added_replicas(existing(1, 1), 3, None, (1,)) == ((1,),)
    assert topics.added_replicas(existing(1), 3, [(3,), (2,)], (1, 2, 3)) == ((3,), (2,))


@pytest.mark.parametrize("count", [-1, 0, 1, 2, topics.MAX_PARTITIONS + 1])
def test_partitions_only_become_more(count):
    with pytest.raises(InvalidPartitionsError):
        topics.added_replicas(existing(1, 1), count, None, (1,))


@pytest.mark.parametrize("assignments", [[], [(1,)], [(1,), (7,)], [(1,), ()], [(1,), (1, 1)]])
def test_added_partitions_with_a_faulty_assignment(assignments):
    with pytest.raises(InvalidReplicaAssignmentError):
        topics.added_replicas(existing(1), 3, assignments, (1,))
