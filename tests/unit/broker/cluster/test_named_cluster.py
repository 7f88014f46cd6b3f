"""Which cluster a broker makes where its metadata store is empty."""

import pytest

from millrace.errors import InconsistentClusterIdError, InvalidConfigError
from millrace_broker.cluster.store import UNNAMED, ClusterOfFolder, NamedCluster

FOLDER = ClusterOfFolder("/data", "former")


def test_without_an_id_a_new_one_is_made_each_time():
    assert len(UNNAMED.new_id("ZooKeeper")) == 22
    assert UNNAMED.new_id("ZooKeeper") != UNNAMED.new_id("ZooKeeper")


def test_folders_of_a_cluster_that_is_lost_stop_the_start_before_another_is_made():
    with pytest.raises(InconsistentClusterIdError) as error:
        NamedCluster(None, lambda: FOLDER).new_id("ZooKeeper")
    assert str(error.value) == (
        "/data: the folder belongs to cluster.id former, and ZooKeeper has no cluster yet; --cluster-id=former makes "
        "that cluster there again"
    )


def test_the_given_id_is_made():
    assert NamedCluster("given", lambda: FOLDER).new_id("ZooKeeper") == "given"


def test_a_cluster_that_is_there_stays_what_it_is():
    assert UNNAMED.check("there", "ZooKeeper") == "there"
    assert NamedCluster("there").check("there", "ZooKeeper") == "there"
    with pytest.raises(InvalidConfigError, match="--cluster-id=given: Invalid value, ZooKeeper has the cluster"):
        NamedCluster("given").check("there", "ZooKeeper")
