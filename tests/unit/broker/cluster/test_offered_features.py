"""What a cluster offers to clients, by what its brokers have registered."""

import pytest

from millrace.addresses import plaintext_endpoint
from millrace.zk import codec
from millrace_broker.cluster.metadata_image import (
    ALL_FEATURES,
    SUPPORTED,
    OfferedFeatures,
    SupportedFeatures,
    offered_features,
)
from millrace_broker.txns.state import EPOCH_BUMP_VERSION

OURS = codec.decode_supported_features(
    codec.encode_broker(codec.BrokerRegistration(endpoints=(plaintext_endpoint("h", 1),), rack=None, timestamp_ms=0))
)
KAFKA_3_9 = {"metadata.version": 21, "kraft.version": 1}


@pytest.mark.parametrize(
    ("registered", "offered"),
    [
        ([], ALL_FEATURES),
        ([(OURS, 7), (OURS, 5)], OfferedFeatures({"group.version": 1, "transaction.version": 2}, 7)),
        ([(OURS, 7), (KAFKA_3_9, 9)], OfferedFeatures({}, 9)),
        ([(OURS, 7), ({}, 3)], OfferedFeatures({}, 7)),
        ([(OURS, 7), ({"transaction.version": 1, "other": 4}, 8)], OfferedFeatures({"transaction.version": 1}, 8)),
        ([({"group.version": 2, "transaction.version": 3}, 1)], OfferedFeatures(SUPPORTED, 1)),
    ],
)
def test_what_every_broker_supports_is_offered(registered, offered):
    assert offered_features([SupportedFeatures(*one) for one in registered]) == offered


def test_brokers_register_all_that_they_support():
    assert {name: OURS[name] for name in SUPPORTED} == SUPPORTED
    assert SUPPORTED["transaction.version"] == EPOCH_BUMP_VERSION


def test_an_old_registration_has_no_features():
    assert codec.decode_supported_features(b'{"host":"h","port":1,"version":4}') == {}
