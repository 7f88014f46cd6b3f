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
    with pytest.raises(InvalidTopicError, match=r"collides with existing topics: a\.b"):
        topics.check_topic_name("a_b", ["c", "a.b"])
    topics.check_topic_name("a_b", ["a_b", "a_c"])


BROKERS = st.sets(st.integers(0, 100), min_size=1, max_size=8)
ANY = st.integers(0, 2**31 - 1)


@given(BROKERS, st.integers(1, 200), ANY)
def test_partitions_are_spread_evenly_over_the_brokers(brokers, partitions, start):
    replicas = topics.assign_replicas(tuple(brokers), partitions, 1, start=start, shift=0)
    leaders = Counter(one[0] for one in replicas)
    assert len(replicas) == partitions
    assert set(leaders) <= brokers
    assert max(leaders.values()) - min(leaders[broker] for broker in brokers) <= 1


@given(BROKERS, st.integers(1, 50), ANY, ANY, st.data())
def test_replicas_of_a_partition_are_distinct_brokers(brokers, partitions, start, shift, data):
    factor = data.draw(st.integers(1, len(brokers)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topics, "MAX_REPLICATION_FACTOR", 8)
        replicas = topics.assign_replicas(tuple(brokers), partitions, factor, start=start, shift=shift)
    assert all(len(set(one)) == factor and set(one) <= brokers for one in replicas)


def test_replicas_are_those_that_kafka_3_9_assigns(monkeypatch):
    """Printed by its AdminUtils.assignReplicasToBrokers, which takes one number as start and as shift."""
    monkeypatch.setattr(topics, "MAX_REPLICATION_FACTOR", 3)
    created = topics.assign_replicas(range(5), 12, 3, start=2, shift=2)
    first_round = ((2, 0, 1), (3, 1, 2), (4, 2, 3), (0, 3, 4), (1, 4, 0))
    assert created == (*first_round, (2, 1, 3), (3, 2, 4), (4, 3, 0), (0, 4, 1), (1, 0, 2), (2, 3, 4), (3, 4, 0))
    partitions = tuple(PartitionInfo(index, 1, 0, (1, 2, 3), (1,)) for index in range(7))
    added = topics.added_replicas(TopicInfo("t", uuid4(), partitions, {}), 15, None, range(5))
    assert added == ((3, 0, 1), (4, 1, 2), (0, 2, 3), (1, 4, 0), (2, 0, 1), (3, 1, 2), (4, 2, 3), (0, 3, 4))


def test_the_first_partition_is_on_the_broker_of_the_start():
    for start, leader in ((0, 3), (1, 5), (2, 9), (3, 3), (2**31 - 1, 5)):
        replicas = topics.assign_replicas((9, 3, 5), 1, 1, start=start, shift=0)
        assert replicas == ((leader,),)


def test_more_replicas_than_live_brokers_are_refused():
    for brokers in ((), (1, 2)):
        with pytest.raises(InvalidReplicationFactorError, match="larger than available brokers"):
            topics.assign_replicas(brokers, 1, len(brokers) + 1, start=0, shift=0)
    with pytest.raises(InvalidReplicationFactorError):
        topics.assign_replicas((1,), 1, 0, start=0, shift=0)


def test_followers_are_not_served_and_the_error_says_so():
    with pytest.raises(InvalidReplicationFactorError, match="not served yet"):
        topics.assign_replicas((1, 2), 1, 2, start=0, shift=0)


@pytest.mark.parametrize("count", [-1, 0, topics.MAX_PARTITIONS + 1])
def test_partition_counts_outside_the_limits(count):
    with pytest.raises(InvalidPartitionsError):
        topics.assign_replicas((1,), count, 1, start=0, shift=0)


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
    assert topics.added_replicas(existing(7), 3, None, (1, 2, 3)) == ((2,), (3,)), "its broker is gone"
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
