"""UpdateMetadata in every version: what the image is told, and that no former controller is believed."""

from collections import Counter
from types import SimpleNamespace
from uuid import UUID

import pytest

from millrace.addresses import Endpoint
from millrace.errors import ErrorCode
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.messages import UPDATE_METADATA
from millrace_broker.cluster.metadata_image import BrokerInfo, PartitionInfo
from millrace_broker.cluster.metadata_update import MetadataUpdate, TopicUpdate
from millrace_broker.handlers import control_requests
from millrace_broker.handlers.api import Request
from millrace_broker.replication.roles import ControllerFence

TOPIC_ID = UUID(int=7)
OWN_BROKER_EPOCH, CONTROLLER_EPOCH = 100, 5
SSL, PLAINTEXT = 1, 0


def told(version, broker_epoch=OWN_BROKER_EPOCH, controller_epoch=CONTROLLER_EPOCH):
    """Returns the updates that the broker has taken, and the error that it has answered."""
    taken, fence = [], ControllerFence(lambda: OWN_BROKER_EPOCH)
    fence.check(CONTROLLER_EPOCH, OWN_BROKER_EPOCH)
    services = SimpleNamespace(fence=fence, take_update=taken.append, errors=Counter(), authorizer=None)
    partition = {
        "topic_name": "t", "partition_index": 0, "controller_epoch": 5, "leader": 1, "leader_epoch": 3,
        "isr": (1,), "zk_version": 4, "replicas": (1, 2), "offline_replicas": (2,),
    }  # fmt: skip
    endpoints = [
        {"port": 9093, "host": "secret", "listener": "OUTER", "security_protocol": SSL},
        {"port": 9092, "host": "open", "listener": "PLAINTEXT", "security_protocol": PLAINTEXT},
    ]
    topic = {"topic_name": "t", "topic_id": TOPIC_ID, "partition_states": [partition]}
    fields = {
        "controller_id": 9,
        "controller_epoch": controller_epoch,
        "broker_epoch": broker_epoch,
        "live_brokers": [{"id": 1, "v0_host": "open", "v0_port": 9092, "endpoints": endpoints, "rack": "r"}],
        **({"ungrouped_partition_states": [partition]} if version < 5 else {"topic_states": [topic]}),
    }
    reply = control_requests.update_metadata(
        services, Request(version, "c", memoryview(UPDATE_METADATA.encode_request(version, fields)))
    )
    return taken, UPDATE_METADATA.decode_response(version, b"".join(reply)).error_code


def told_endpoints(version):
    """Returns the request's endpoints as told to the image; before version 3 a listener has its protocol's name."""
    return [
        Endpoint("OUTER" if version >= 3 else "SSL", "SSL", "secret", 9093),
        Endpoint("PLAINTEXT", "PLAINTEXT", "open", 9092),
    ]


@pytest.mark.parametrize("version", range(9))
def test_brokers_and_partitions_are_taken(version):
    offline = (2,) if version >= 4 else ()
    partition = PartitionInfo(0, 1, 3, (1, 2), (1,), offline)
    topic = TopicUpdate("t", TOPIC_ID if version >= 7 else NO_TOPIC_ID, [partition])
    rack = "r" if version >= 2 else None
    broker = BrokerInfo(1, "open", 9092) if version == 0 else BrokerInfo.of(1, told_endpoints(version), rack)
    assert told(version) == ([MetadataUpdate(9, {1: broker}, [topic])], ErrorCode.NONE)


@pytest.mark.parametrize(
    ("epochs", "code"),
    [
        ({"broker_epoch": OWN_BROKER_EPOCH - 1}, ErrorCode.STALE_BROKER_EPOCH),
        ({"controller_epoch": CONTROLLER_EPOCH - 1}, ErrorCode.STALE_CONTROLLER_EPOCH),
    ],
)
def test_a_request_that_is_out_of_date_changes_nothing(epochs, code):
    assert told(8, **epochs) == ([], code)
