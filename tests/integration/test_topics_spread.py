"""Topics of one partition, made on one of two real brokers: both get some, and lead them."""

from uuid import uuid4

from millrace.client import Admin, Cluster
from millrace.testing.broker import BrokerProcess
from millrace_support.await_brokers import await_brokers

TOPICS = 40  # all on one broker by chance: once in 10^12


def test_topics_of_one_partition_spread_over_the_brokers(tmp_path, zookeeper):
    chroot = f"{zookeeper.address}/{uuid4().hex}"
    with (
        BrokerProcess(tmp_path / "1", zookeeper=chroot, broker_id=1) as first,
        BrokerProcess(tmp_path / "2", zookeeper=chroot, broker_id=2) as second,
        Cluster(first.bootstrap) as cluster,
    ):
        await_brokers({1, 2}, first, second)
        names = [f"t{number}" for number in range(TOPICS)]
        for name in names:
            Admin(cluster).create_topic(name, 1)
        metadata = cluster.metadata(names)
        assert {metadata.topic(name).partitions[0].leader for name in names} == {1, 2}
