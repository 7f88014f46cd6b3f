"""A cluster while its history is recorded: what happens to it, who looks at it, and what has to hold in the end."""

import contextlib
import logging

from cluster_observers import LeaderWatch, Mover, leaders_by_epoch
from playing import PARTITIONS, ROLES, TOPIC, playing

logger = logging.getLogger(__name__)
# A coordinator that is cut off answers with old offsets, as Apache Kafka's does, so they are asked for only at the end.
PLAYERS = [role for role in ROLES if role != "watcher"]


@contextlib.contextmanager
def observed(cluster, file, further=None):
    """Yields the recorder, the mover and the watches while clients run and partitions move, and then ends them."""
    watches = [LeaderWatch(broker, TOPIC) for broker in cluster.brokers.values()]
    with playing(cluster, file, PLAYERS, further=further, replication_factor=3) as recorder:
        mover = Mover(cluster, TOPIC, PARTITIONS)
        for each in (mover, *watches):
            each.start()
        yield recorder, mover, watches
        for each in (mover, *watches):
            each.stop()


def happen(cluster, victim, fault, faults):
    broker = victim(cluster)
    logger.info("fault %d: %s %s, broker %d", faults.total(), victim.__name__, fault.__name__, broker)
    fault(cluster, broker)
    faults[f"{victim.__name__} {fault.__name__}"] += 1


@contextlib.contextmanager
def logs_kept(cluster, folder):
    """Writes the logs of the brokers to files at the end."""
    try:
        yield
    finally:
        for each, broker in cluster.brokers.items():
            (folder / f"{each}.log").write_text(broker.read_log())


def assert_whole(cluster):
    """Waits until all replicas are in sync and have the same bytes."""
    for topic, index in cluster.all_in_sync():
        cluster.equal_logs(topic, index)


def leaders_of_epochs(watches):
    """Returns the leaders that were seen by partition and leader epoch, of which each has had one."""
    leaders = leaders_by_epoch(watches)
    assert {key: found for key, found in leaders.items() if len(found) > 1} == {}
    return leaders


def assert_none(findings):
    assert not findings, "\n".join(map(str, findings[:20]))
