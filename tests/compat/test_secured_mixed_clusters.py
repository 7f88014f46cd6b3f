"""Apache Kafka 3.9 and Millrace are one secured cluster, and each becomes the other one under load.

Clients and brokers log in over TLS by SCRAM, access control lists decide, and ZooKeeper's nodes belong to the brokers.
Each side is the controller, the leader and a follower of partitions, and the coordinator in turn. What one side changes
in the lists is obeyed by the other one, and a stranger is told the same by both.
"""

from contextlib import contextmanager, suppress
from functools import partial
from uuid import uuid4

import pytest

from millrace.addresses import parse_address
from millrace.client import Cluster
from millrace.client.access import create_acls, delete_acls, find_acls
from millrace.client.connection import Connection
from millrace.clock import SystemClock
from millrace.error_codes import ErrorCode
from millrace.errors import BrokerError, BrokerUnreachableError
from millrace.records.record import NewRecord, encode_batch
from millrace.security.acls import (
    Acl,
    AclBinding,
    AclFilter,
    AclOperation,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.messages import FIND_COORDINATOR, METADATA, PRODUCE
from millrace_support.mixed_clusters import Software, mixed_cluster
from millrace_support.mixed_security import STRANGER, MixedSecurity, rights
from millrace_support.rolled_clusters import PLAIN, TRANSACTIONAL, RolledCluster, replicated
from millrace_support.rolling_load import GROUP
from millrace_support.waiting import awaited
from millrace_support.zookeeper_security import SecuredZooKeeper

KAFKA, MILLRACE = Software
TIMEOUT_S = 60
GIVEN = AclBinding(
    ResourcePattern(ResourceType.TOPIC, PLAIN),
    Acl(f"User:{STRANGER}", "*", AclOperation.READ, PermissionType.ALLOW),
)
TAKEN = AclFilter(principal=GIVEN.acl.principal)
REFUSED = {
    "describe": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "produce": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "coordinator": ErrorCode.GROUP_AUTHORIZATION_FAILED,
    "lists": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
DESCRIBED = {**REFUSED, "describe": ErrorCode.NONE}
RIGHTS = rights([PLAIN, TRANSACTIONAL])


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory):
    with SecuredZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


def await_lists(brokers, expected):
    """Waits until each broker has these access control lists."""

    def look():
        for each in brokers.brokers.values():
            with brokers.connect(each) as cluster:
                if find_acls(cluster, AclFilter()) != expected:
                    return None
        return True

    awaited(look, "all brokers have the access control lists")


def told(broker, security):
    """What a broker tells a user, by what the user asks for."""
    metadata = {
        "topics": [{"name": PLAIN, "topic_id": NO_TOPIC_ID}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    data = [{"name": PLAIN, "partition_data": [{"index": 0, "records": encode_batch([NewRecord(b"0")])}]}]
    produced = {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": data}
    address, clock = parse_address(broker.bootstrap), SystemClock()
    with (
        Connection(address, client_id=STRANGER, timeout_s=TIMEOUT_S, clock=clock, security=security) as connection,
        Cluster(broker.bootstrap, security=security) as cluster,
    ):
        with pytest.raises(BrokerError) as listed:
            find_acls(cluster, AclFilter())
        return {
            "describe": connection.request(METADATA, metadata).topics[0].error_code,
            "produce": connection.request(PRODUCE, produced).responses[0].partition_responses[0].error_code,
            "coordinator": connection.request(FIND_COORDINATOR, {"key": GROUP, "key_type": 0}).error_code,
            "lists": listed.value.broker_code,
        }


def await_told(brokers, security, expected):
    """Waits until each broker tells a user this."""

    def look():
        with suppress(BrokerUnreachableError):  # a session that ends before its client can renew it ends the connection
            return True if all(told(each, security) == expected for each in brokers.brokers.values()) else None
        return None

    awaited(look, "all brokers tell the same")


@contextmanager
def secured_roll(kafka, zookeeper, folder, start, replicas_in_sync):
    """Yields the brokers of a new cluster, its clients, and what waits until each broker tells a stranger something."""
    security, chroot = MixedSecurity(folder, zookeeper), f"/{uuid4().hex}"
    address, properties = zookeeper.plain_address + chroot, replicated(len(start), replicas_in_sync)
    security.make_users(address)
    with mixed_cluster(kafka, folder, address, start, properties, securing=security.securing()) as brokers:
        with brokers.connect(brokers.brokers[1]) as first:
            create_acls(first, RIGHTS)
        await_lists(brokers, RIGHTS)
        with RolledCluster(brokers, security.users()) as rolled:
            yield brokers, rolled, partial(await_told, brokers, security.client(STRANGER))
    assert zookeeper.access_of_nodes(chroot)[1] == []


@pytest.mark.soak(rounds=1, minutes=1)
def test_each_broker_becomes_the_other_one_and_itself_again(
    kafka, zookeeper, tmp_path_factory, rounds, record_property
):
    for _ in rounds:
        folder, start = tmp_path_factory.mktemp("rolled"), {1: KAFKA, 2: MILLRACE}
        with secured_roll(kafka, zookeeper, folder, start, 1) as (brokers, rolled, await_stranger_is_told):
            assert brokers.controller() == 1
            await_stranger_is_told(REFUSED)
            with brokers.connect(brokers.brokers[2]) as ours:
                create_acls(ours, [GIVEN])
            await_stranger_is_told(DESCRIBED)
            rolled.become(1, MILLRACE)
            assert brokers.controller() == 2
            rolled.become(2, KAFKA)
            assert brokers.controller() == 1
            await_stranger_is_told(DESCRIBED)
            with brokers.connect(brokers.brokers[2]) as theirs:
                assert delete_acls(theirs, [TAKEN]) == [GIVEN]
            await_stranger_is_told(REFUSED)
            rolled.become(1, KAFKA)
            assert brokers.controller() == 2
            rolled.become(2, MILLRACE)
            assert brokers.controller() == 1
            await_stranger_is_told(REFUSED)
            rolled.judge()
        record_property("acknowledged", len(rolled.load.acknowledged))
        record_property("transactions", len(rolled.load.committed))


@pytest.mark.soak(rounds=0, minutes=1)
def test_three_brokers_of_kafka_become_millrace_and_kafka_again(
    kafka, zookeeper, tmp_path_factory, rounds, record_property
):
    for _ in rounds:
        folder, start = tmp_path_factory.mktemp("rolled"), dict.fromkeys((1, 2, 3), KAFKA)
        with secured_roll(kafka, zookeeper, folder, start, 2) as (_, rolled, await_stranger_is_told):
            for software in (MILLRACE, KAFKA):
                for each in (1, 2, 3):
                    rolled.become(each, software)
                    await_stranger_is_told(REFUSED)
            rolled.judge()
        record_property("acknowledged", len(rolled.load.acknowledged))
        record_property("transactions", len(rolled.load.committed))
