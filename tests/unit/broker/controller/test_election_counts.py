"""Which elections a controller counts."""

from uuid import UUID

import pytest

from millrace_broker.controller.cluster_state import Assignment, ClusterState, LeaderAndIsr, LiveBroker, Topic
from millrace_broker.controller.partition_leaders import PartitionLeaders
from millrace_broker.metrics import ElectionCounts
from millrace_broker.storage import TopicPartition

KEY = TopicPartition("t", 0)


class Reports:
    """Says of no broker what its min ISR is, so that nobody is eligible."""

    def min_isrs(self, topics):
        return {}


class Store:
    """Writes everything."""

    reports = Reports()

    def change_states(self, states):
        return states, set()


class Requests:
    """Tells no one."""

    def tell_roles(self, brokers, key):
        pass


@pytest.mark.parametrize(
    ("after", "elected", "unclean"),
    [
        (LeaderAndIsr(1, 1, (1,)), 0, 0),  # a replica has left
        (LeaderAndIsr(-1, 1, (1, 2)), 0, 0),  # nobody leads
        (LeaderAndIsr(2, 1, (2,)), 1, 0),
        (LeaderAndIsr(3, 1, (3,)), 1, 1),  # it was not in sync
    ],
)
def test_leaders_that_take_over_count(after, elected, unclean):
    cluster = ClusterState()
    cluster.brokers = {one: LiveBroker(one, epoch=1, endpoints=()) for one in (1, 2, 3)}
    cluster.topics = {"t": Topic(UUID(int=1), [Assignment((1, 2, 3))])}
    cluster.leaders = {KEY: LeaderAndIsr(1, 0, (1, 2))}
    counts = ElectionCounts()
    leaders = PartitionLeaders(cluster, Store(), Requests(), counts, is_unclean_allowed=True)
    leaders.change([KEY], lambda *_: after)
    assert (counts.elected, counts.unclean) == (elected, unclean)
