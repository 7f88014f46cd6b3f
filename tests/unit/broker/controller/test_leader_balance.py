"""Which partitions go back to their first replicas."""

from uuid import UUID

import pytest

from millrace_broker.controller.cluster_state import Assignment, ClusterState, LeaderAndIsr, LiveBroker, Topic
from millrace_broker.controller.elections import find_imbalance
from millrace_broker.storage import TopicPartition

COUNT = 10


def cluster(led_by_others, assignment=Assignment((1, 2)), isr=(1, 2)):  # noqa: B008  it is frozen
    """Returns a cluster with ten partitions whose first replica is broker 1; some are led by broker 2."""
    state = ClusterState(brokers={broker: LiveBroker(broker, broker, ()) for broker in (1, 2, 3)})
    state.topics["t"] = Topic(UUID(int=1), [assignment] * COUNT)
    for index in range(COUNT):
        state.leaders[TopicPartition("t", index)] = LeaderAndIsr(2 if index < led_by_others else 1, 0, isr)
    return state


@pytest.mark.parametrize(("led_by_others", "most_percent", "found"), [(1, 10, 0), (2, 10, 2), (1, 0, 1), (10, 99, 10)])
def test_more_than_the_percentage_is_too_much(led_by_others, most_percent, found):
    expected = {TopicPartition("t", index) for index in range(found)}
    assert find_imbalance(cluster(led_by_others), most_percent) == expected


def test_partitions_that_cannot_change_are_left_as_they_are():
    assert find_imbalance(cluster(5, isr=(2,)), 10) == set(), "the first replica is not in sync"
    assert find_imbalance(cluster(5, assignment=Assignment((1, 2, 3), adding=(3,))), 10) == set(), "reassigned"
    stopping, deleted = cluster(5), cluster(5)
    stopping.shutting_down.add(1)
    assert find_imbalance(stopping, 10) == set()
    deleted.deleting.add("t")
    assert find_imbalance(deleted, 10) == set()
