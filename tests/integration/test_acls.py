"""A broker with an authorizer: what clients may do follows the lists, which they change themselves where they may."""

import pytest

from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation, PatternType, PermissionType, ResourceType
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_support.raw import RawConnection

ACLS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
OPEN = {**ACLS, "super.users": "User:ANONYMOUS"}


def creation(name="orders", *, operation=AclOperation.READ, **others):
    return {
        "resource_type": ResourceType.TOPIC,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": operation,
        "permission_type": PermissionType.ALLOW,
        **others,
    }


def wanted(**others):
    return {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": PermissionType.ANY,
        **others,
    }


def create(connection, version, *creations):
    answer = connection.request(ApiKey.CREATE_ACLS, version, {"creations": list(creations)})
    return [ErrorCode(one.error_code) for one in answer.results]


def described(connection, version=3, **filters):
    answer = connection.request(ApiKey.DESCRIBE_ACLS, version, wanted(**filters))
    return ErrorCode(answer.error_code), {
        (one.resource_name, acl.principal, AclOperation(acl.operation).pascal)
        for one in answer.resources
        for acl in one.acls
    }


@pytest.fixture
def start(tmp_path):
    brokers = []

    def started(properties):
        brokers.append(BrokerProcess(tmp_path / "data", properties=properties))
        return brokers[-1]

    yield started
    for one in brokers:
        one.stop()


@pytest.fixture
def connection(start):
    with RawConnection(start(OPEN).bootstrap) as one:
        yield one


@pytest.mark.parametrize("version", [1, 2, 3])
def test_entries_are_created_found_and_deleted(connection, version):
    write = creation(operation=AclOperation.WRITE)
    assert create(connection, version, creation(), write, creation("x")) == [ErrorCode.NONE] * 3
    assert described(connection, version, resource_name_filter="orders") == (
        ErrorCode.NONE,
        {("orders", "User:alice", "Read"), ("orders", "User:alice", "Write")},
    )
    filters = [wanted(operation=AclOperation.WRITE), wanted(resource_name_filter="orders")]
    answer = connection.request(ApiKey.DELETE_ACLS, version, {"filters": filters})
    matched = [[one.operation for one in result.matching_acls] for result in answer.filter_results]
    assert matched == [[AclOperation.WRITE], [AclOperation.READ]]
    assert described(connection, version)[1] == {("x", "User:alice", "Read")}


@pytest.mark.parametrize("wrong", [
    creation(""),
    creation("a/b"),
    creation(".."),
    creation(resource_type=ResourceType.CLUSTER),
    creation(resource_type=99),
    creation(resource_type=ResourceType.ANY),
    creation(resource_pattern_type=PatternType.MATCH),
    creation(operation=AclOperation.ANY),
    creation(permission_type=PermissionType.ANY),
    creation(principal="alice"),
    creation(host=""),
], ids=repr)  # fmt: skip
def test_an_entry_that_means_nothing_is_refused_and_others_are_created(connection, wrong):
    assert create(connection, 3, wrong, creation()) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


def test_lists_outlive_a_restart(start):
    broker = start(OPEN)
    with RawConnection(broker.bootstrap) as connection:
        create(connection, 3, creation())
    broker.stop()
    broker.start()
    with RawConnection(broker.bootstrap) as connection:
        assert described(connection)[1] == {("orders", "User:alice", "Read")}


def test_without_an_authorizer_there_are_no_lists(start):
    with RawConnection(start({}).bootstrap) as connection:
        assert described(connection) == (ErrorCode.SECURITY_DISABLED, set())
        assert create(connection, 3, creation()) == [ErrorCode.SECURITY_DISABLED]
        answer = connection.request(ApiKey.DELETE_ACLS, 3, {"filters": [wanted()]})
        assert [one.error_code for one in answer.filter_results] == [ErrorCode.SECURITY_DISABLED]


def test_who_may_not_change_lists_changes_none(start):
    with RawConnection(start(ACLS).bootstrap) as connection:
        assert described(connection) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, set())
        assert create(connection, 3, creation()) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        answer = connection.request(ApiKey.DELETE_ACLS, 3, {"filters": [wanted()]})
        assert [one.error_code for one in answer.filter_results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


def test_who_is_no_broker_appends_nothing_for_a_mirror(start):
    partition = {"partition_index": 0, "log_end_offset": 0, "records": b""}
    with RawConnection(start(ACLS).bootstrap) as connection:
        fields = {"timeout_ms": 1000, "topics": [{"name": "orders", "partitions": [partition]}]}
        ((answer,),) = [one.partitions for one in connection.request(ApiKey.APPEND_MIRRORED, 0, fields).topics]
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (answer.error_message, answer.log_end_offset) == ("Authorization failed.", -1)


def heartbeat(connection, *topics, pattern=None):
    """Joins the group `g`; the error, and the ids of the topics of which partitions are assigned."""
    fields = {
        "group_id": "g", "member_id": "m", "member_epoch": 0, "instance_id": None, "rack_id": None,
        "rebalance_timeout": 60_000, "subscribed_topic_names": list(topics), "subscribed_topic_regex": pattern,
        "server_assignor": None, "topic_partitions": [],
    }  # fmt: skip
    answer = connection.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields)
    assigned = answer.assignment.topic_partitions if answer.assignment else ()
    return ErrorCode(answer.error_code), {one.topic_id for one in assigned}


def described_group(connection):
    fields = {"group_ids": ["g"], "include_authorized_operations": False}
    (group,) = connection.request(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, fields).groups
    return ErrorCode(group.error_code)


def anonymous(kind, name, operation):
    return creation(name, operation=operation, resource_type=kind, principal="User:ANONYMOUS")


def new_topic(connection, name):
    """Makes a topic and returns its id."""
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    fields = {"topics": [topic], "timeout": 60_000, "validate_only": False}
    (made,) = connection.request(ApiKey.CREATE_TOPICS, 7, fields).topics
    return made.topic_id


def test_a_member_needs_the_group_and_the_topics_that_it_subscribes(start):
    """Kafka 3.9 serves this with KRaft alone; the rules are those of 4.1, which tests/compat compares."""
    cluster = [anonymous(ResourceType.CLUSTER, "kafka-cluster", AclOperation.ALTER)]
    with RawConnection(start({**ACLS, "allow.everyone.if.no.acl.found": "true"}).bootstrap) as connection:
        hidden_id, open_id = (new_topic(connection, name) for name in ("hidden", "open"))
        hidden = [creation("hidden"), anonymous(ResourceType.TOPIC, "open", AclOperation.READ)]
        create(connection, 3, *cluster, *hidden, anonymous(ResourceType.GROUP, "g", AclOperation.DELETE))
        assert heartbeat(connection, "hidden") == (ErrorCode.GROUP_AUTHORIZATION_FAILED, set())
        create(connection, 3, anonymous(ResourceType.GROUP, "g", AclOperation.READ))
        connection.request(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
        assert heartbeat(connection, "hidden") == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, set())
        assert heartbeat(connection, pattern="hidden|open") == (ErrorCode.NONE, {open_id})
        create(connection, 3, anonymous(ResourceType.TOPIC, "hidden", AclOperation.READ))
        assert heartbeat(connection, "hidden") == (ErrorCode.NONE, {hidden_id, open_id})
        assert described_group(connection) == ErrorCode.NONE
        wanted_entries = wanted(resource_name_filter="hidden", principal_filter="User:ANONYMOUS")
        connection.request(ApiKey.DELETE_ACLS, 3, {"filters": [wanted_entries]})
        assert described_group(connection) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
