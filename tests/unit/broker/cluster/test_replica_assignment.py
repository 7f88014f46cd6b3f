from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import InvalidReplicationFactorError
from millrace_broker.cluster.topics import assign_replicas, continued_assignment

BROKERS = st.sets(st.integers(0, 100), min_size=1, max_size=8)
WITH_RACKS = st.dictionaries(st.integers(0, 100), st.sampled_from("ABC"), min_size=1, max_size=8)
ANY = st.integers(0, 2**31 - 1)


def without_racks(brokers):
    return dict.fromkeys(brokers)


@given(BROKERS, st.integers(1, 200), ANY)
def test_partitions_are_spread_evenly_over_the_brokers(brokers, partitions, start):
    replicas = assign_replicas(without_racks(brokers), partitions, 1, start=start, shift=0)
    leaders = Counter(one[0] for one in replicas)
    assert len(replicas) == partitions
    assert set(leaders) <= brokers
    assert max(leaders.values()) - min(leaders[broker] for broker in brokers) <= 1


@given(st.one_of(BROKERS.map(without_racks), WITH_RACKS), st.integers(1, 50), ANY, ANY, st.data())
def test_replicas_of_a_partition_are_distinct_brokers(racks, partitions, start, shift, data):
    factor = data.draw(st.integers(1, len(racks)))
    replicas = assign_replicas(racks, partitions, factor, start=start, shift=shift)
    assert all(len(set(one)) == factor and set(one) <= racks.keys() for one in replicas)


@given(WITH_RACKS, st.integers(1, 50), ANY, ANY, st.data())
def test_no_rack_has_two_replicas_while_another_has_none(racks, partitions, start, shift, data):
    factor = data.draw(st.integers(1, len(racks)))
    for one in assign_replicas(racks, partitions, factor, start=start, shift=shift):
        assert len({racks[broker] for broker in one}) == min(factor, len(set(racks.values())))


# AdminUtils.assignReplicasToBrokers of Kafka 3.9 printed the next three; it takes one number as start and as shift.


def test_replicas_are_those_that_kafka_assigns():
    racks = without_racks(range(5))
    created = assign_replicas(racks, 12, 3, start=2, shift=2)
    first_round = ((2, 0, 1), (3, 1, 2), (4, 2, 3), (0, 3, 4), (1, 4, 0))
    assert created == (*first_round, (2, 1, 3), (3, 2, 4), (4, 3, 0), (0, 4, 1), (1, 0, 2), (2, 3, 4), (3, 4, 0))
    added = continued_assignment(racks, (1, 2, 3), range(7, 15))
    assert added == ((3, 0, 1), (4, 1, 2), (0, 2, 3), (1, 4, 0), (2, 0, 1), (3, 1, 2), (4, 2, 3), (0, 3, 4))


def test_replicas_in_racks_are_those_that_kafka_assigns():
    three = dict(enumerate("ABCABC"))
    created = assign_replicas(three, 8, 3, start=1, shift=1)
    first_round = ((1, 5, 0), (2, 0, 1), (3, 1, 2), (4, 2, 3), (5, 3, 4), (0, 4, 5))
    assert created == (*first_round, (1, 3, 5), (2, 4, 0))
    two = dict(enumerate("AABBB"))
    assert assign_replicas(two, 3, 2, start=4, shift=4) == ((4, 0), (0, 2), (2, 1))
    assert assign_replicas(two, 4, 3, start=4, shift=4) == ((4, 0, 2), (0, 2, 1), (2, 1, 3), (1, 3, 4))


def test_partitions_that_are_added_in_racks_are_those_that_kafka_assigns():
    two = dict(enumerate("AABBB"))
    assert continued_assignment(two, (4, 0, 2), range(7, 11)) == ((2, 1, 3), (1, 3, 4), (3, 0, 2), (4, 1, 3))


def test_racks_count_only_where_every_broker_has_one():
    racks = {0: "A", 1: None, 2: "A"}
    assert assign_replicas(racks, 2, 2, start=0, shift=0) == assign_replicas(
        without_racks(racks), 2, 2, start=0, shift=0
    )


def test_the_first_partition_is_on_the_broker_of_the_start():
    for start, leader in ((0, 3), (1, 5), (2, 9), (3, 3), (2**31 - 1, 5)):
        assert assign_replicas(without_racks((9, 3, 5)), 1, 1, start=start, shift=0) == ((leader,),)


def test_more_replicas_than_live_brokers_are_refused():
    for brokers in ((), (1, 2)):
        with pytest.raises(InvalidReplicationFactorError, match="larger than available brokers"):
            assign_replicas(without_racks(brokers), 1, len(brokers) + 1, start=0, shift=0)
    with pytest.raises(InvalidReplicationFactorError):
        assign_replicas({1: None}, 1, 0, start=0, shift=0)
