"""What the metrics of a controller count."""

from uuid import UUID

from millrace_broker.controller.cluster_state import (
    Assignment,
    ClusterState,
    LeaderAndIsr,
    LiveBroker,
    Topic,
    count_cluster,
)
from millrace_broker.storage import TopicPartition


def cluster(leaders, *, deleting=(), failed=()):
    """Brokers 1 and 2 live, and topic t has a partition for each leader; each has its replicas on 1, 2 and 3."""
    made = ClusterState()
    made.brokers = {one: LiveBroker(one, epoch=1, endpoints=()) for one in (1, 2)}
    made.topics = {"t": Topic(UUID(int=1), [Assignment((1, 2, 3)) for _ in leaders])}
    made.leaders = {
        TopicPartition("t", index): LeaderAndIsr(leader, 0, (1, 2))
        for index, leader in enumerate(leaders)
        if leader is not None
    }
    made.deleting |= set(deleting)
    made.failed_replicas = {broker: {TopicPartition("t", index)} for broker, index in failed}
    return made


def test_all_is_well():
    assert count_cluster(cluster([1, 1])) == (2, 1, 2, 0, 0)


def test_a_partition_without_a_leader_that_serves_is_offline():
    """Nobody leads, a broker that is gone, one whose data directory has failed; or the partition was never led."""
    found = count_cluster(cluster([-1, 3, 2, None, 1], failed=[(2, 2)]))
    assert (found.offline_partitions, found.partitions) == (4, 5)


def test_partitions_that_others_lead_than_their_first_replica_are_imbalanced():
    found = count_cluster(cluster([1, 2]))
    assert (found.imbalanced_partitions, found.offline_partitions) == (1, 0)


def test_what_is_being_deleted_does_not_count():
    assert count_cluster(cluster([-1, 2], deleting=["t"])) == (2, 0, 0, 0, 0)
