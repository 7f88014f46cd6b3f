"""Groups and topics that no node of ZooKeeper's can be named after are refused before ZooKeeper is asked."""

import pytest

from millrace.client.consumer import Partition
from millrace.client.consumer.group_offsets import GroupOffsets, describe_zookeeper_group
from millrace.client.consumer.offsets import write_zookeeper
from millrace.errors import InvalidConfigError

NOWHERE = "127.0.0.1:1"
NAMES = ["", ".", "..", "a/b"]


@pytest.mark.parametrize("name", NAMES)
def test_a_group_is_refused(name):
    with pytest.raises(InvalidConfigError, match="can't be a name in ZooKeeper"):
        GroupOffsets(name, zookeeper=NOWHERE, bootstrap=NOWHERE)
    with pytest.raises(InvalidConfigError, match="can't be a name in ZooKeeper"):
        describe_zookeeper_group(None, name)


@pytest.mark.parametrize("name", NAMES)
def test_a_topic_is_refused_and_no_offset_set(name):
    with pytest.raises(InvalidConfigError, match="can't be a name in ZooKeeper"):
        write_zookeeper(None, "g", {Partition("t", 0): 1, Partition(name, 0): 1})


def test_without_zookeeper_a_group_is_named_as_it_likes():
    with GroupOffsets("a/b", zookeeper=None, bootstrap=NOWHERE):
        pass
