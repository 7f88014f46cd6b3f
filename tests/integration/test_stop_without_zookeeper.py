"""Brokers that are to stop while their ZooKeeper is gone: they stop all the same, and soon."""

import time

from millrace.client import Admin, Cluster
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_support.broker_clusters import broker_cluster
from millrace_support.waiting import until

SESSION_TIMEOUT_MS = 60_000
SOON_S = 30.0  # half the session's timeout, and far above the seconds that it takes


LOST = "WARNING millrace.zk.session: the connection to ZooKeeper"


def test_brokers_stop_before_their_sessions_end(tmp_path):
    """The controller is the first, and has an election to do which ZooKeeper does not take."""
    settings = {"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS)}
    with (
        EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper,
        broker_cluster(tmp_path, zookeeper.address, (1, 2), settings) as cluster,
    ):
        first = cluster.controller()
        with Cluster(cluster.bootstrap) as client:
            Admin(client).create_topic("t", 2, replication_factor=2)
        cluster.until(lambda one: len(one.isr) == 2, "t")
        zookeeper.kill()
        for broker in cluster.brokers.values():
            until(lambda broker=broker: LOST in broker.read_log())
        for broker_id in (first, 3 - first):
            began_s = time.monotonic()
            assert cluster.brokers[broker_id].stop() == 0
            assert time.monotonic() - began_s < SOON_S
            log = cluster.brokers[broker_id].read_log()
            assert (log.count(LOST), "kazoo" in log) == (1, False)  # told once, and not for each attempt
