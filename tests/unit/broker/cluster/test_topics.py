from uuid import uuid4

import pytest

from millrace.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidTopicError,
)
from millrace_broker.cluster import topics
from millrace_broker.cluster.metadata_image import PartitionInfo, TopicInfo


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


@pytest.mark.parametrize("count", [-1, 0, topics.MAX_PARTITIONS + 1])
def test_partition_counts_outside_the_limits(count):
    with pytest.raises(InvalidPartitionsError):
        topics.check_partition_count(count)


def test_a_manual_assignment_is_taken_in_the_order_of_its_partitions():
    assert topics.check_assignment({1: [2], 0: [1]}, (1, 2)) == ((1,), (2,))


@pytest.mark.parametrize("assignment", [{1: [1]}, {0: [1], 2: [1]}, {0: []}, {0: [3]}, {0: [1, 1]}])
def test_a_manual_assignment_with_a_fault(assignment):
    with pytest.raises(InvalidReplicaAssignmentError):
        topics.check_assignment(assignment, (1, 2))


ONE = {1: None}
THREE = {1: None, 2: None, 3: None}


def existing(*leaders):
    infos = tuple(PartitionInfo(index, one, 0, (one,), (one,)) for index, one in enumerate(leaders))
    return TopicInfo("t", uuid4(), infos, {})


def test_added_partitions_go_round_from_where_the_first_one_is():
    assert topics.added_replicas(existing(2), 5, None, THREE) == ((3,), (1,), (2,), (3,))
    assert topics.added_replicas(existing(7), 3, None, THREE) == ((2,), (3,)), "its broker is gone"
    assert topics.added_replicas(existing(1, 1), 3, None, ONE) == ((1,),)
    assert topics.added_replicas(existing(1), 3, [(3,), (2,)], THREE) == ((3,), (2,))


@pytest.mark.parametrize("count", [-1, 0, 1, 2, topics.MAX_PARTITIONS + 1])
def test_partitions_only_become_more(count):
    with pytest.raises(InvalidPartitionsError):
        topics.added_replicas(existing(1, 1), count, None, ONE)


@pytest.mark.parametrize("assignments", [[], [(1,)], [(1,), (7,)], [(1,), ()], [(1,), (1, 1)]])
def test_added_partitions_with_a_faulty_assignment(assignments):
    with pytest.raises(InvalidReplicaAssignmentError):
        topics.added_replicas(existing(1), 3, assignments, ONE)
