"""What clients of each listener are told: its addresses, and nothing of brokers that lack it."""

from collections import Counter
from types import SimpleNamespace
from uuid import UUID

import pytest

from millrace.addresses import Endpoint
from millrace.errors import ErrorCode
from millrace.wire.messages import DESCRIBE_CLUSTER, FIND_COORDINATOR, METADATA
from millrace.wire.metadata import LeaderHint
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.handlers import cluster_descriptions, k03_metadata, k10_find_coordinator
from millrace_broker.handlers.api import Request
from millrace_broker.handlers.partitions import endpoints
from millrace_broker.security.client_session import ClientSession

INTERNAL, EXTERNAL = "INTERNAL", "EXTERNAL"
BOTH = BrokerInfo.of(1, [Endpoint(INTERNAL, "PLAINTEXT", "in-1", 1), Endpoint(EXTERNAL, "SSL", "out-1", 11)], rack="r")
ONE = BrokerInfo.of(2, [Endpoint(INTERNAL, "PLAINTEXT", "in-2", 2)], rack=None)
GONE = 3
LEADERS = (1, 2, GONE)
PARTITIONS = tuple(PartitionInfo(index, leader, 5, (1, 2), (1, 2)) for index, leader in enumerate(LEADERS))
TOPIC = TopicInfo("t", UUID(int=7), PARTITIONS, {})
VIEW = MetadataImage("cluster", 1, {1: BOTH, 2: ONE}, {"t": TOPIC})


def asked(api, handle, version, fields, listener):
    services = SimpleNamespace(
        metadata=MetadataCache(VIEW),
        errors=Counter(),
        authorizer=None,
        config=SimpleNamespace(auto_create_topics_enable=False),
        groups=SimpleNamespace(topic=CoordinatorOfTwo()),
    )
    body = memoryview(api.encode_request(version, fields))
    reply = handle(services, Request(version, "c", body, ClientSession("h", listener)))
    return api.decode_response(version, b"".join(map(bytes, reply)))


class CoordinatorOfTwo:
    """A topic whose partitions lead brokers 1 and 2, by the key."""

    exists = True
    name = "__consumer_offsets"

    def locate(self, key):
        return VIEW.brokers[int(key)]


@pytest.mark.parametrize(
    ("listener", "brokers"),
    [(INTERNAL, {(1, "in-1", 1), (2, "in-2", 2)}), (EXTERNAL, {(1, "out-1", 11)}), ("NO", set())],
)
def test_metadata_and_the_cluster_have_the_listeners_addresses(listener, brokers):
    found = asked(METADATA, k03_metadata.handle, 7, {"topics": None}, listener)
    assert {(one.node_id, one.host, one.port) for one in found.brokers} == brokers
    fields = {"include_cluster_authorized_operations": False, "endpoint_type": 1}
    found = asked(DESCRIBE_CLUSTER, cluster_descriptions.describe_cluster, 1, fields, listener)
    assert {(one.broker_id, one.host, one.port) for one in found.brokers} == brokers


@pytest.mark.parametrize(
    ("version", "listener", "codes"),
    [
        (6, INTERNAL, (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)),
        (5, EXTERNAL, (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE)),
        (6, EXTERNAL, (ErrorCode.NONE, ErrorCode.LISTENER_NOT_FOUND, ErrorCode.LEADER_NOT_AVAILABLE)),
    ],
)
def test_a_leader_without_the_listener_is_not_told(version, listener, codes):
    [topic] = asked(METADATA, k03_metadata.handle, version, {"topics": None}, listener).topics
    assert tuple(one.error_code for one in topic.partitions) == codes
    assert [one.leader_id for one in topic.partitions] == [
        one.leader if code == ErrorCode.NONE else -1 for one, code in zip(TOPIC.partitions, codes, strict=True)
    ]


def test_a_coordinator_is_found_by_the_listener_or_not_at_all():
    fields = {"key_type": 0, "coordinator_keys": ["1", "2"]}
    found = asked(FIND_COORDINATOR, k10_find_coordinator.handle, 4, fields, EXTERNAL).coordinators
    assert [(one.node_id, one.host, one.port, one.error_code) for one in found] == [
        (1, "out-1", 11, ErrorCode.NONE),
        (-1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ]


def test_the_endpoints_of_new_leaders_are_those_of_the_listener():
    services = SimpleNamespace(metadata=MetadataCache(VIEW))
    hints = [LeaderHint(one, 5) for one in (2, 1, GONE)]
    assert endpoints(services, hints, EXTERNAL) == [(1, "out-1", 11, "r")]
    assert [one.host for one in endpoints(services, hints, INTERNAL)] == ["in-1", "in-2"]


def test_brokers_reach_each_other_by_their_own_listener():
    cache = MetadataCache(VIEW, EXTERNAL)
    assert [str(cache.address_of(1)), cache.address_of(2), cache.address_of(GONE)] == ["out-1:11", None, None]
