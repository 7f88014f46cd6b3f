"""kafkajs, which npm installs by our lock file into a folder that stays; skipped where npm or node is missing."""

import pytest

RECORDS = 200


@pytest.fixture(scope="session")
def drive(node_client):
    """Run one task of `drive.js`; its result."""
    return node_client("kafkajs", "drive.js")


def values():
    return sorted(f"value-{index}" for index in range(RECORDS))


def test_kafkajs_topics(target, drive, name):
    said = drive(target, name, "topics")
    assert (said["again"], said["partitions"], said["left"]) == (False, 2, False)
    assert sorted((one["partition"], one["low"], one["high"]) for one in said["offsets"]) == [
        (0, "0", "200"),
        (1, "0", "200"),
    ]
    assert {one["offset"] for one in said["byTime"]} == {"0"}


@pytest.mark.needs("InitProducerId", "JoinGroup")
def test_kafkajs_group(target, drive, name):
    assert drive(target, name, "group") == {"first": values(), "second": values()}


@pytest.mark.needs("JoinGroup", "ListGroups", "DescribeGroups", "DeleteGroups")
def test_kafkajs_groups(target, drive, name):
    said = drive(target, name, "groups")
    assert (said["listed"], said["state"], said["deleted"]) == (True, "Empty", [0])
    assert {one["partition"]: one["offset"] for one in said["offsets"]}[0] == "5"


@pytest.mark.needs("CreatePartitions")
def test_kafkajs_partitions(target, drive, name):
    assert drive(target, name, "partitions") == 3


@pytest.mark.needs("DescribeConfigs", "AlterConfigs")
def test_kafkajs_configs(target, drive, name):
    assert drive(target, name, "configs") == [["segment.ms", "60000"]]


def test_kafkajs_cluster(target, drive, name):
    assert drive(target, name, "cluster") == {"brokers": [1], "controller": 1}


@pytest.mark.needs("AlterPartitionReassignments", "ListPartitionReassignments")
def test_kafkajs_reassignments(target, drive, name):
    assert drive(target, name, "reassignments") == {"topics": []}
