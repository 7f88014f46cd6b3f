"""Millrace and Apache Kafka 3.9 in one cluster: each obeys the access control lists that the other writes."""

import json

import pytest

from millrace.client import Cluster
from millrace.client.access import create_acls, delete_acls, find_acls
from millrace.clock import SystemClock
from millrace.security.acls import (
    Acl,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from millrace.testing.broker import BrokerProcess
from millrace.zk.session import ZooKeeperSession
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_support.waiting import until

PROPERTIES = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
TOOL = "kafka.admin.AclCommand"


def binding(kind, name, operation, pattern=PatternType.LITERAL, *, permission=PermissionType.ALLOW, host="*"):
    return AclBinding(ResourcePattern(kind, name, pattern), Acl("User:alice", host, operation, permission))


BINDINGS = [
    binding(ResourceType.TOPIC, "orders", AclOperation.READ),
    binding(ResourceType.TOPIC, "orders", AclOperation.ALTER_CONFIGS, host="10.0.0.1"),
    binding(ResourceType.TOPIC, "*", AclOperation.DESCRIBE_CONFIGS, permission=PermissionType.DENY),
    binding(ResourceType.GROUP, "app-", AclOperation.ALL, PatternType.PREFIXED),
    binding(ResourceType.CLUSTER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE),
    binding(ResourceType.TRANSACTIONAL_ID, "tx", AclOperation.WRITE, PatternType.PREFIXED),
    binding(ResourceType.DELEGATION_TOKEN, "token", AclOperation.DESCRIBE),
    binding(ResourceType.USER, "User:bob", AclOperation.CREATE_TOKENS),
]


@pytest.fixture(scope="module")
def kafka(find_peer):
    return find_peer("3.9")


@pytest.fixture(scope="module")
def cluster(kafka, zookeeper, tmp_path_factory):
    """Both brokers, and a session with their ZooKeeper."""
    directory, address = tmp_path_factory.mktemp("acls"), f"{zookeeper.address}/acls-beside-kafka"
    session = ZooKeeperSession(
        address, session_timeout_ms=18_000, connection_timeout_ms=18_000, on_change=lambda _: None, clock=SystemClock()
    )
    with (
        KafkaBroker(kafka, directory / "kafka", zookeeper=address, properties=PROPERTIES, broker_id=1) as theirs,
        BrokerProcess(directory / "millrace", zookeeper=address, properties=PROPERTIES, broker_id=2) as ours,
    ):
        session.start()
        yield theirs, ours, session
        session.close()


@pytest.fixture
def connected(cluster):
    """A connection of each broker alone."""
    theirs, ours, _ = cluster
    with Cluster(theirs.bootstrap) as one, Cluster(ours.bootstrap) as other:
        yield one, other
        delete_acls(other, [AclFilter()])
        until(lambda: not seen(theirs.bootstrap))


def seen(bootstrap):
    """What a broker says, asked alone."""
    with Cluster(bootstrap) as one:
        return find_acls(one, AclFilter())


def nodes(session):
    """The lists in ZooKeeper, as JSON, by path; entries in any order."""
    found = {}
    for folder in ("/kafka-acl", "/kafka-acl-extended/prefixed"):
        for kind in session.children(folder):
            for name in session.children(f"{folder}/{kind}"):
                document = json.loads(session.get(f"{folder}/{kind}/{name}"))
                document["acls"].sort(key=repr)
                found[f"{folder}/{kind}/{name}"] = {
                    **document,
                    "acls": sorted((dict(sorted(one.items())) for one in document["acls"]), key=repr),
                }
    return found


def arguments(one):
    """The options of kafka-acls for a binding."""
    (kind, name, pattern), (principal, host, operation, permission) = one
    option = {
        ResourceType.TOPIC: ["--topic", name],
        ResourceType.GROUP: ["--group", name],
        ResourceType.CLUSTER: ["--cluster"],
        ResourceType.TRANSACTIONAL_ID: ["--transactional-id", name],
        ResourceType.DELEGATION_TOKEN: ["--delegation-token", name],
        ResourceType.USER: ["--user-principal", name],
    }[kind]
    word = "allow" if permission is PermissionType.ALLOW else "deny"
    return [
        *option, f"--{word}-principal", principal, f"--{word}-host", host, "--operation", operation.pascal,
        "--resource-pattern-type", pattern.pascal,
    ]  # fmt: skip


def test_both_write_the_same_nodes_and_obey_them(cluster, connected):
    theirs, ours, session = cluster
    written = []
    for writer, reader in ((0, ours), (1, theirs)):
        create_acls(connected[writer], BINDINGS)
        until(lambda reader=reader: seen(reader.bootstrap) == sorted(BINDINGS))
        written.append(nodes(session))
        assert delete_acls(connected[1 - writer], [AclFilter()]) == sorted(BINDINGS)
        until(lambda: not (seen(theirs.bootstrap) or seen(ours.bootstrap)))
        assert nodes(session) == {}
    assert written[0] == written[1]
    assert len(written[0]) == len({one.pattern for one in BINDINGS})


def test_kafkas_own_tool_drives_millrace(cluster, connected, kafka):
    """The tool may have either broker change the lists, whose address it learns from ours."""
    theirs, ours, _ = cluster

    def await_seen(*expected):
        until(lambda: seen(theirs.bootstrap) == seen(ours.bootstrap) == sorted(expected))

    tool = ("--bootstrap-server", ours.bootstrap)
    for one in (BINDINGS[1], BINDINGS[3]):
        kafka.run(TOOL, *tool, "--add", *arguments(one))
    await_seen(BINDINGS[1], BINDINGS[3])
    listed = kafka.run(TOOL, *tool, "--list")
    assert "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)" in listed
    assert "(principal=User:alice, host=10.0.0.1, operation=ALTER_CONFIGS, permissionType=ALLOW)" in listed
    kafka.run(TOOL, *tool, "--add", "--producer", "--allow-principal", "User:bob", "--topic", "orders")
    until(lambda: len(seen(theirs.bootstrap)) == len(seen(ours.bootstrap)) == 5)
    kafka.run(TOOL, *tool, "--remove", "--force", "--topic", "orders", "--resource-pattern-type", "match")
    await_seen(BINDINGS[3])
