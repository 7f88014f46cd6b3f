"""Errors carry the words that scripts of Kafka's tools look for: a request, and what its message must contain.

The words are those of Apache Kafka 3.9 and 4.1, and of what matches on them: shell scripts around `kafka-topics.sh`,
modules of Ansible, Strimzi's topic operator. The sentences around them are Millrace's own.
"""

import subprocess

import pytest

from millrace.client import Admin, Cluster
from millrace.client.answers import check
from millrace.errors import ErrorCode, MillraceError
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_support.raw import RawConnection

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET, APPEND = 0, 2


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker with the topics `there`, of three partitions, and `a.b`."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        with Cluster(process.bootstrap) as cluster:
            Admin(cluster).create_topic("there", 3)
            Admin(cluster).create_topic("a.b", 1)
        yield process


@pytest.fixture(scope="module")
def raw(broker):
    with RawConnection(broker.bootstrap) as connection:
        yield connection


def creation(name="new", *, partitions=1, replicas=1, assignments=(), **configs):
    return {
        "name": name, "num_partitions": partitions, "replication_factor": replicas,
        "assignments": [{"partition_index": index, "broker_ids": ids} for index, ids in assignments],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }  # fmt: skip


def by_hand(*assignments):
    return creation(partitions=-1, replicas=-1, assignments=assignments)


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        (creation("there"), ["Topic 'there' already exists."]),
        (creation("a_b"), ["Topic 'a_b' collides with existing topics", "a.b"]),
        (creation("a b"), ["Topic name is invalid: 'a b' contains", "illegal", "'_' and '-'"]),
        (creation(""), ["is invalid", "illegal"]),
        (creation(".."), ["is invalid", "illegal", "not allowed"]),
        (creation("x" * 250), ["is invalid", "illegal", "longer than", "249"]),
        (creation(partitions=0), ["umber of partitions must be larger than 0"]),
        (creation(replicas=0), ["eplication factor must be larger than 0"]),
        (creation(replicas=3), ["Replication factor: 3 larger than available brokers: 1"]),
        (creation(retention_ms="long"), ["Invalid value long for configuration retention.ms: Not a number"]),
        (creation(retention_ms=None), ["ull value not supported", "retention.ms"]),
        (creation(no_such="1"), ["Unknown topic config name: no.such"]),
        (by_hand((0, [7])), ["Unknown broker(s) in replica assignment: 7", "broker 7", "no such broker is registered"]),
        (by_hand((0, [1, 1])), ["uplicate", "more than once"]),
        (by_hand((0, [])), ["empty replica list"]),
        (by_hand((1, [1])), ["consecutive 0-based"]),
        (creation(assignments=[(0, [1])]), ["oth cannot be used at the same time"]),
    ],
)  # fmt: skip
def test_words_of_a_topic_that_is_not_created(raw, topic, words):
    fields = {"topics": [topic], "timeout": 10_000, "validate_only": False}
    said(raw.request(ApiKey.CREATE_TOPICS, 5, fields).topics, words)


def test_words_of_a_topic_that_is_asked_for_twice(raw):
    fields = {"topics": [creation(), creation()], "timeout": 10_000, "validate_only": False}
    said(raw.request(ApiKey.CREATE_TOPICS, 5, fields).topics, ["uplicate", "new"])


def test_words_of_a_topic_that_can_not_be_deleted(raw, tmp_path):
    fields = {"topics": [{"name": "nobody", "topic_id": None}], "timeout": 10_000}
    said(raw.request(ApiKey.DELETE_TOPICS, 6, fields).responses, ["The topic 'nobody' does not exist."])
    with (
        BrokerProcess(tmp_path / "data", properties={"delete.topic.enable": "false"}) as keeper,
        RawConnection(keeper.bootstrap) as other,
    ):
        said(other.request(ApiKey.DELETE_TOPICS, 6, fields).responses, ["opic deletion is disabled"])


@pytest.mark.parametrize(
    ("name", "count", "words"),
    [
        ("nobody", 2, ["The topic 'nobody' does not exist."]),
        ("there", 2, ["currently has 3 partition", "is higher than the requested 2", "would not be an increase"]),
        ("there", 3, ["already has 3 partition", "would not be an increase"]),
        ("there", 20_000, ["xcessively large number of partitions per request"]),
    ],
)
def test_words_of_partitions_that_are_not_added(raw, name, count, words):
    topic = {"name": name, "count": count, "assignments": None}
    fields = {"topics": [topic], "timeout": 10_000, "validate_only": False}
    said(raw.request(ApiKey.CREATE_PARTITIONS, 2, fields).results, words)


@pytest.mark.parametrize(
    ("kind", "name", "change", "words"),
    [
        (TOPIC_RESOURCE, "nobody", ("retention.ms", SET, "1"), ["The topic 'nobody' does not exist."]),
        (TOPIC_RESOURCE, "", ("retention.ms", SET, "1"), ["efault topic resources are not allowed"]),
        (TOPIC_RESOURCE, "there", ("retention.ms", SET, "long"), ["Invalid value long for configuration retention.ms"]),
        (TOPIC_RESOURCE, "there", ("segment.bytes", SET, "1"), ["nvalid value", "segment.bytes"]),
        (TOPIC_RESOURCE, "there", ("cleanup.policy", SET, "burn"), ["nvalid value", "cleanup.policy", "burn"]),
        (TOPIC_RESOURCE, "there", ("retention.ms", SET, None), ["ull value not supported", "retention.ms"]),
        (TOPIC_RESOURCE, "there", ("retention.ms", APPEND, "1"), ["append is not allowed", "retention.ms"]),
        (TOPIC_RESOURCE, "there", ("no.such", SET, "1"), ["Unknown topic config name: no.such"]),
        (BROKER_RESOURCE, "1", ("log.dirs", SET, "/x"), ["Cannot update these configs dynamically: Set(log.dirs)"]),
        (BROKER_RESOURCE, "7", ("log.retention.ms", SET, "1"), ["nexpected broker id, expected 1", "7"]),
        (BROKER_RESOURCE, "x", ("log.retention.ms", SET, "1"), ["roker id must be an integer", "x"]),
    ],
)  # fmt: skip
def test_words_of_a_property_that_is_not_changed(raw, kind, name, change, words):
    configs = [dict(zip(("name", "config_operation", "value"), change, strict=True))]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    fields = {"resources": [resource], "validate_only": False}
    said(raw.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields).responses, words)


def said(results, words):
    (result,) = results
    assert result.error_code != 0
    for word in words:
        assert word in result.error_message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["topics", "create", "there"], ["already exists"]),
        (["topics", "create", "a b"], ["is invalid"]),
        (["topics", "create", "new", "--replication-factor", "3"], ["larger than available brokers: 1"]),
        (["topics", "delete", "nobody"], ["does not exist"]),
        (["topics", "describe", "nobody"], ["does not exist"]),
        (["topics", "extend", "there", "--partitions", "2"], ["would not be an increase"]),
        (["configs", "set", "retention.ms=long", "--topic", "there"], ["nvalid value", "retention.ms"]),
        (["configs", "set", "log.dirs=/x", "--broker", "1"], ["annot update these configs dynamically"]),
        (["groups", "describe", "nobody"], ["group id does not exist", "GROUP_ID_NOT_FOUND"]),
        (["groups", "delete", "nobody"], ["group id does not exist", "GROUP_ID_NOT_FOUND"]),
        (["consume", "nobody", "--until-end"], ["does not exist"]),
    ],
    ids=" ".join,
)
def test_words_of_a_command_that_fails(broker, warm_millrace, arguments, words):
    command = [warm_millrace, *arguments, "--bootstrap", broker.bootstrap]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    for word in words:
        assert word in run.stderr


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not host this topic-partition"),
        (ErrorCode.NON_EMPTY_GROUP, "group is not empty"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "group id does not exist"),
        (ErrorCode.INVALID_GROUP_ID, "group id is invalid"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "ot authorized to access topics"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "ot authorized to access group"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "ot authorized"),
        (ErrorCode.TOPIC_DELETION_DISABLED, "opic deletion is disabled"),
        (ErrorCode.NOT_ENOUGH_REPLICAS, "fewer in-sync replicas than required"),
        (ErrorCode.REQUEST_TIMED_OUT, "request timed out"),
        (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "actively subscribed"),
    ],
)
def test_words_of_a_code_that_comes_without_a_message(code, words):
    with pytest.raises(MillraceError) as failure:
        check(code, "what was asked for")
    assert "what was asked for" in str(failure.value)
    assert words in str(failure.value)
    assert code.name in str(failure.value)
