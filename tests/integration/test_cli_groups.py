"""`millrace groups` as a user runs it, against a broker with a consumer."""

import json
import subprocess

import pytest
from confluent_kafka import Consumer, TopicPartition

from millrace.client import Admin, Cluster, Groups, SyncProducer
from millrace.errors import BrokerError
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess

PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


@pytest.fixture(scope="module")
def consumed(tmp_path_factory):
    """A broker with a group of one member, which has committed one of two partitions."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), properties=PROPERTIES) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("events", 2)
            for partition in (0, 1):
                SyncProducer(cluster).send("events", partition, [NewRecord(b"value")] * 5)
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest",
             "group.instance.id": "static-one", "client.id": "reader", "enable.auto.commit": False}
        )  # fmt: skip
        consumer.subscribe(["events"])
        assert len(consumer.consume(10, 120)) == 10
        consumer.commit(offsets=[TopicPartition("events", 1, 3, metadata="note")], asynchronous=False)
        yield broker
        consumer.close()


@pytest.fixture
def millrace(consumed, warm_millrace):
    def command(*arguments, status=0):
        result = subprocess.run(
            [warm_millrace, "groups", *arguments, "--bootstrap", consumed.bootstrap], capture_output=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert result.returncode == status, result.stderr
        return (result.stderr if status else result.stdout).decode()

    return command


def test_groups_are_listed(millrace):
    assert json.loads(millrace("list", "--json")) == [{"group": "readers", "type": "consumer", "state": "Stable"}]
    assert millrace("list").split()[-3:] == ["readers", "consumer", "Stable"]


def test_a_group_is_described(millrace):
    described = json.loads(millrace("describe", "readers", "--json"))
    assert (described["state"], described["protocol"]) == ("Stable", "range")
    (member,) = described["members"]
    assert (member["instance"], member["client"]) == ("static-one", "reader")
    assert described["partitions"] == [
        {"topic": "events", "partition": 0, "committed": None, "latest": 5, "lag": None, "member": member["member"]},
        {"topic": "events", "partition": 1, "committed": 3, "latest": 5, "lag": 2, "member": member["member"]},
    ]
    shown = millrace("describe", "readers")
    assert shown.startswith("readers  Stable  range\n")
    assert member["member"] in shown


def test_what_can_not_be_done_is_said(millrace):
    not_empty = "millrace: group readers: the group is not empty (NON_EMPTY_GROUP)\n"
    not_there = "millrace: group nobody: the group id does not exist (GROUP_ID_NOT_FOUND)\n"
    assert millrace("delete", "readers", status=1) == not_empty
    assert millrace("describe", "nobody", status=1) == not_there


def test_a_group_without_members_is_deleted(millrace, consumed):
    simple = Consumer({"bootstrap.servers": consumed.bootstrap, "group.id": "simple", "enable.auto.commit": False})
    simple.commit(offsets=[TopicPartition("events", 0, 1)], asynchronous=False)
    simple.close()
    with Cluster(consumed.bootstrap) as cluster:
        assert Groups(cluster).offsets("simple")["events", 0].offset == 1
        assert json.loads(millrace("delete", "simple", "--json")) == {"deleted": "simple"}
        with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
            Groups(cluster).delete("simple")


def test_several_groups_are_deleted_and_described_in_one_command(millrace, consumed):
    for name in ("first", "second"):
        simple = Consumer({"bootstrap.servers": consumed.bootstrap, "group.id": name, "enable.auto.commit": False})
        simple.commit(offsets=[TopicPartition("events", 0, 1)], asynchronous=False)
        simple.close()
    described = [json.loads(line) for line in millrace("describe", "first", "readers", "--json").splitlines()]
    assert [one["group"] for one in described] == ["first", "readers"]
    said = millrace("delete", "first", "nobody", "second", status=1)
    assert said == "millrace: group nobody: the group id does not exist (GROUP_ID_NOT_FOUND)\n"
    assert [one["group"] for one in json.loads(millrace("list", "--json"))] == ["readers"]
