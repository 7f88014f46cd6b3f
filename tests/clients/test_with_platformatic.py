"""@platformatic/kafka, which npm installs by our lock file into a folder that stays; skipped without npm or node.

Its functions for single requests reach APIs that few clients have.
"""

import pytest

RECORDS = 200


@pytest.fixture(scope="session")
def drive(node_client):
    """Run one task of `drive.mjs`; its result."""
    return node_client("platformatic", "drive.mjs")


def values():
    return sorted(f"value-{index}" for index in range(RECORDS))


@pytest.mark.needs("InitProducerId", "DeleteRecords", "OffsetForLeaderEpoch", "DescribeProducers")
def test_platformatic_records(target, drive, name):
    said = drive(target, name, "records")
    assert said == {"ends": ["100", "100"], "low": "7", "epochEnd": "100", "lastSequence": 99}


@pytest.mark.needs("JoinGroup", "ListGroups", "DescribeGroups", "DeleteGroups", "OffsetDelete")
def test_platformatic_group(target, drive, name):
    assert drive(target, name, "group") == {
        "values": values(), "committed": [[0, "100"], [1, "100"]], "after": [[0, "5"]], "listed": True,
        "state": "EMPTY",
    }  # fmt: skip


@pytest.mark.needs("ConsumerGroupHeartbeat")
def test_platformatic_new_group_protocol(target, drive, name):
    assert drive(target, name, "newGroup") == {"values": values(), "state": "Empty", "members": []}


@pytest.mark.needs("CreatePartitions", "DescribeTopicPartitions")
def test_platformatic_topics(target, drive, name):
    assert drive(target, name, "topics") == {"listed": True, "left": False, "leaders": [1, 1, 1]}


@pytest.mark.needs("DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs")
def test_platformatic_configs(target, drive, name):
    assert drive(target, name, "configs") == [["retention.ms", "70000"], ["segment.ms", "60000"]]


@pytest.mark.needs("DescribeLogDirs", "AlterReplicaLogDirs", "DescribeCluster", "ListPartitionReassignments")
def test_platformatic_cluster(target, drive, name):
    said = drive(target, name, "cluster")
    assert said == {"inDirectory": [name], "moved": 0, "brokers": [1], "reassignments": []}


@pytest.mark.needs("AlterClientQuotas", "DescribeClientQuotas", "DescribeUserScramCredentials")
def test_platformatic_quotas_and_users(target, drive, name):
    said = drive(target, name, "quotasAndUsers")
    assert said == {"set": {"producer_byte_rate": 1048576}, "left": 0, "unknown": "RESOURCE_NOT_FOUND"}
