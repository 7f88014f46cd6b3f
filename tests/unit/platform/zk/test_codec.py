"""The nodes' bytes, held against what Apache Kafka 3.9 writes."""

import json
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace.addresses import Endpoint, plaintext_endpoint
from millrace.errors import ZooKeeperError
from millrace.uuids import NO_TOPIC_ID
from millrace.zk import codec

TOPIC_ID = UUID(bytes=bytes(range(16)))


def test_broker_registration_is_kafkas_version_5():
    broker = codec.BrokerRegistration(
        endpoints=(plaintext_endpoint("mill.example", 9092),), rack=None, timestamp_ms=1_600_000_000_000
    )
    assert codec.encode_broker(broker) == (
        b'{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://mill.example:9092"],'
        b'"jmx_port":-1,"features":{"metadata.version":{"min_version":1,"max_version":21},'
        b'"kraft.version":{"min_version":0,"max_version":1},"group.version":{"min_version":1,"max_version":1},'
        b'"transaction.version":{"min_version":1,"max_version":2}},'
        b'"host":"mill.example","timestamp":"1600000000000","port":9092,"version":5}'
    )
    assert codec.decode_broker(codec.encode_broker(broker)) == broker


def test_an_ipv6_host_is_bracketed_in_the_endpoint_only():
    broker = codec.BrokerRegistration(endpoints=(plaintext_endpoint("::1", 9092),), rack="a", timestamp_ms=1)
    fields = json.loads(codec.encode_broker(broker))
    assert (fields["endpoints"], fields["host"], fields["rack"]) == (["PLAINTEXT://[::1]:9092"], "::1", "a")
    assert codec.decode_broker(codec.encode_broker(broker)) == broker


def test_a_broker_registers_all_its_listeners_and_old_clients_find_the_one_in_plaintext():
    secure = Endpoint("EXTERNAL", "SASL_SSL", "mill.example", 9093)
    plain = Endpoint("INTERNAL", "PLAINTEXT", "10.0.0.1", 9092)
    broker = codec.BrokerRegistration(endpoints=(secure, plain), rack=None, timestamp_ms=1)
    fields = json.loads(codec.encode_broker(broker))
    assert fields["listener_security_protocol_map"] == {"EXTERNAL": "SASL_SSL", "INTERNAL": "PLAINTEXT"}
    assert fields["endpoints"] == ["EXTERNAL://mill.example:9093", "INTERNAL://10.0.0.1:9092"]
    assert (fields["host"], fields["port"]) == ("10.0.0.1", 9092)
    assert codec.decode_broker(codec.encode_broker(broker)) == broker


def test_a_broker_without_plaintext_has_no_host_for_old_clients():
    broker = codec.BrokerRegistration(endpoints=(Endpoint("SSL", "SSL", "h", 9093),), rack=None, timestamp_ms=1)
    fields = json.loads(codec.encode_broker(broker))
    assert (fields["host"], fields["port"]) == (None, -1)
    assert codec.decode_broker(codec.encode_broker(broker)).endpoint_of("PLAINTEXT") is None


def test_a_broker_of_an_old_version_has_one_endpoint():
    found = codec.decode_broker(b'{"version":1,"host":"h","port":9092,"jmx_port":-1}')
    assert (found.endpoints, found.rack) == ((plaintext_endpoint("h", 9092),), None)


def test_topic_assignment_is_kafkas_version_3():
    topic = codec.TopicAssignment(topic_id=TOPIC_ID, replicas=((1,), (2, 3)))
    assert codec.encode_topic(topic) == (
        b'{"partitions":{"0":[1],"1":[2,3]},"topic_id":"AAECAwQFBgcICQoLDA0ODw",'
        b'"adding_replicas":{},"removing_replicas":{},"version":3}'
    )
    assert codec.decode_topic(codec.encode_topic(topic)) == topic


def test_a_reassigned_partition_has_replicas_that_come_and_go():
    topic = codec.TopicAssignment(
        topic_id=TOPIC_ID, replicas=((3, 1, 2), (1,)), adding_replicas={0: (3,)}, removing_replicas={0: (1,)}
    )
    assert codec.encode_topic(topic) == (
        b'{"partitions":{"0":[3,1,2],"1":[1]},"topic_id":"AAECAwQFBgcICQoLDA0ODw",'
        b'"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]},"version":3}'
    )
    assert codec.decode_topic(codec.encode_topic(topic)) == topic


def test_a_topic_of_an_older_kafka_has_no_id():
    topic = codec.decode_topic(b'{"version":1,"partitions":{"1":[2],"0":[1]}}')
    assert topic == codec.TopicAssignment(topic_id=NO_TOPIC_ID, replicas=((1,), (2,)))


def test_partition_state():
    state = codec.PartitionState.initial((3, 1))
    assert codec.encode_partition_state(state) == (
        b'{"controller_epoch":1,"leader":3,"version":1,"leader_epoch":0,"isr":[3,1]}'
    )
    assert codec.decode_partition_state(codec.encode_partition_state(state)) == state


def test_a_partition_that_was_led_uncleanly_recovers():
    state = codec.PartitionState(leader=1, leader_epoch=2, isr=(1, 2), controller_epoch=3, leader_recovery_state=1)
    assert codec.encode_partition_state(state) == (
        b'{"controller_epoch":3,"leader":1,"version":1,"leader_recovery_state":1,"leader_epoch":2,"isr":[1,2]}'
    )
    assert codec.decode_partition_state(codec.encode_partition_state(state)) == state


@pytest.mark.parametrize("epoch", [2**31 - 1, 2**31, -1])
def test_a_leader_epoch_that_can_not_be_is_an_error(epoch):
    state = codec.PartitionState(leader=1, leader_epoch=epoch, isr=(1,), controller_epoch=3)
    with pytest.raises(ZooKeeperError, match=f"leader epoch {epoch} is not between 0 and"):
        codec.decode_partition_state(codec.encode_partition_state(state))


def test_cluster_id_and_config():
    assert codec.encode_cluster_id("AAECAwQFBgcICQoLDA0ODw") == b'{"version":"1","id":"AAECAwQFBgcICQoLDA0ODw"}'
    assert codec.decode_cluster_id(codec.encode_cluster_id("x")) == "x"
    assert codec.encode_config({"retention.ms": "1"}) == b'{"version":1,"config":{"retention.ms":"1"}}'
    assert codec.decode_config(codec.encode_config({"retention.ms": "1"})) == {"retention.ms": "1"}


DECODERS = (
    codec.decode_broker,
    codec.decode_topic,
    codec.decode_partition_state,
    codec.decode_cluster_id,
    codec.decode_config,
    codec.decode_config_change,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["host", "port", "partitions", "topic_id", "leader", "isr", "config", "id", "version"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("decode", DECODERS)
@given(data=st.binary(max_size=50) | JSON.map(lambda value: json.dumps(value).encode()))
@example(b'{"leader":Infinity,"leader_epoch":1,"isr":[],"controller_epoch":1}')
def test_anything_else_is_a_typed_error(decode, data):
    with suppress(ZooKeeperError):
        decode(data)


@pytest.mark.parametrize("partitions", [{"1": [1]}, {"0": [1], "2": [1]}, {"0": []}])
def test_an_assignment_with_gaps_is_refused(partitions):
    with pytest.raises(ZooKeeperError, match="topic assignment"):
        codec.decode_topic(json.dumps({"version": 3, "partitions": partitions}).encode())


def test_configuration_changes_are_kafkas_bytes_and_both_versions_are_read():
    assert codec.encode_config_change("brokers/<default>") == b'{"version":2,"entity_path":"brokers/<default>"}'
    for data in (
        b'{"version":2,"entity_path":"topics/t"}',
        b'{"version":1,"entity_type":"topics","entity_name":"t"}',
    ):
        assert codec.decode_config_change(data) == "topics/t"
    for data in (b"{}", b'{"version":1}', b"topics/t"):
        with pytest.raises(ZooKeeperError, match="not a configuration change"):
            codec.decode_config_change(data)
