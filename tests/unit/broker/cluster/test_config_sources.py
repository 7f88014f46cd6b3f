"""Who gives a property its value: the layers, their order, and what DescribeConfigs says of them."""

import re
from contextlib import nullcontext

import pytest

from millrace.config import ConfigType
from millrace.errors import InvalidConfigError
from millrace_broker.cluster.config_manager import layers_of
from millrace_broker.cluster.config_sources import (
    BrokerLayers,
    ConfigSource,
    broker_entries,
    check_keeps_no_secret,
    check_live,
    check_topic_config,
    cluster_entries,
    is_of_one_broker,
    topic_entries,
)
from millrace_broker.cluster.metadata_image import ALL_BROKERS, MetadataImage
from millrace_broker.properties.listeners import ConnectionLimits

TOPIC, BROKER, CLUSTER, STATIC, DEFAULT, *_ = ConfigSource


def topic_entry(name, topic, **layers):
    return {one.key.name: one for one in topic_entries(topic, BrokerLayers(**layers))}[name]


def broker_entry(name, **layers):
    return {one.key.name: one for one in broker_entries(BrokerLayers(**layers))}[name]


@pytest.mark.parametrize(
    ("topic", "layers", "value", "sources"),
    [
        ({}, {}, "1073741824", [DEFAULT]),
        ({}, {"static": {"log.segment.bytes": "20"}}, "20", [STATIC, DEFAULT]),
        (
            {},
            {"static": {"log.segment.bytes": "20"}, "cluster": {"log.segment.bytes": "30"}},
            "30",
            [CLUSTER, STATIC, DEFAULT],
        ),
        (
            {},
            {"cluster": {"log.segment.bytes": "30"}, "broker": {"log.segment.bytes": "40"}},
            "40",
            [BROKER, CLUSTER, DEFAULT],
        ),
        ({"segment.bytes": "50"}, {"broker": {"log.segment.bytes": "40"}}, "50", [TOPIC, BROKER, DEFAULT]),
    ],
)
def test_the_layers_from_the_topic_down_to_the_default(topic, layers, value, sources):
    entry = topic_entry("segment.bytes", topic, **layers)
    assert (entry.value, entry.source) == (value, sources[0])
    assert [one.source for one in entry.synonyms] == sources
    assert entry.synonyms[0].value == value
    assert entry.synonyms[-1].name == "log.segment.bytes"


def test_a_live_property_takes_the_place_of_every_unit_of_the_layers_below():
    layers = BrokerLayers(static={"log.retention.hours": "1"}, cluster={"log.retention.ms": "5"})
    assert layers.log_defaults() == {"log.retention.ms": "5"}
    assert topic_entry("retention.ms", {}, static=layers.static, cluster=layers.cluster).value == "5"


def test_the_coarse_unit_is_obeyed_and_has_no_entry_as_in_kafka():
    entry = topic_entry("retention.ms", {}, static={"log.retention.hours": "48"})
    assert (entry.value, entry.source, entry.synonyms) == ("172800000", DEFAULT, ())
    fine = broker_entry("log.retention.ms", static={"log.retention.hours": "48"})
    assert (fine.value, fine.source) == (None, DEFAULT)
    hours = broker_entry("log.retention.hours", static={"log.retention.hours": "48"})
    assert [(one.name, one.value, one.source) for one in hours.synonyms] == [
        ("log.retention.hours", "48", STATIC),
        ("log.retention.hours", "168", DEFAULT),
    ]


@pytest.mark.parametrize(
    ("name", "read_only", "kind"),
    [
        ("num.partitions", True, ConfigType.INT),
        ("log.retention.hours", True, ConfigType.INT),
        ("log.retention.ms", False, ConfigType.LONG),
        ("log.cleanup.policy", False, ConfigType.LIST),
        ("max.connections", False, ConfigType.INT),
        ("min.insync.replicas", False, ConfigType.INT),
        ("admin.token", True, ConfigType.PASSWORD),
    ],
)
def test_which_properties_of_a_broker_are_live(name, read_only, kind):
    entry = broker_entry(name)
    assert (entry.is_read_only, entry.type) == (read_only, kind)


def test_a_secret_is_never_shown():
    entry = broker_entry("admin.token", static={"admin.token": "hush"})
    assert (entry.value, entry.source) == (None, STATIC)
    assert {one.value for one in entry.synonyms} == {None}


def test_all_brokers_have_what_is_live_for_all_of_them():
    layers = BrokerLayers(static={"log.retention.ms": "1"}, cluster={"log.retention.ms": "2"}, broker={"x": "3"})
    [entry] = cluster_entries(layers)
    assert (entry.key.name, entry.value, entry.source) == ("log.retention.ms", "2", CLUSTER)
    assert [one.source for one in entry.synonyms] == [CLUSTER]


def test_what_a_topic_has_and_nobody_knows_is_left_out():
    names = {one.key.name for one in topic_entries({"no.such.property": "3.0"}, BrokerLayers())}
    assert "no.such.property" not in names
    assert "segment.bytes" in names


def test_live_properties_without_a_meaning_are_reported_and_passed_over(caplog):
    configs = {
        ALL_BROKERS: {"num.hamsters": "3", "log.segment.bytes": "x", "log.retention.ms": "5"},
        "1": {"num.partitions": "7", "message.max.bytes": "99"},
        "2": {"message.max.bytes": "11"},
    }
    layers = layers_of(MetadataImage("", 1, {}, {}, configs), 1, {"num.partitions": "2"})
    assert layers == BrokerLayers({"num.partitions": "2"}, {"log.retention.ms": "5"}, {"message.max.bytes": "99"})
    assert layers.broker_config().num_partitions == 2
    said = " ".join(caplog.messages)
    assert all(word in said for word in ("num.hamsters=3", "x for configuration log.segment.bytes", "num.partitions"))


def test_a_topics_configuration_is_checked_with_what_holds_below_it():
    layers = BrokerLayers(static={"log.cleaner.max.compaction.lag.ms": "10"})
    check_topic_config(layers, {"min.compaction.lag.ms": "10"})
    with pytest.raises(InvalidConfigError, match=r"min\.compaction\.lag\.ms=11"):
        check_topic_config(layers, {"min.compaction.lag.ms": "11"})


def test_a_listeners_own_limit_stands_before_that_of_the_broker():
    name = "listener.name.outer.max.connections"
    check_live(name, "3")
    entry = broker_entry(name, static={"max.connections": "5"}, cluster={name: "3"})
    assert (entry.value, entry.source, entry.is_read_only) == ("3", CLUSTER, False)
    assert [(one.name, one.value, one.source) for one in entry.synonyms] == [
        (name, "3", CLUSTER),
        ("max.connections", "5", STATIC),
        ("max.connections", "10000", DEFAULT),
    ]
    layers = BrokerLayers({"max.connections": "5"}, {name: "3"}, {"max.connections": "7"})
    limits = ConnectionLimits.from_properties(layers.effective())
    assert (limits.open("OUTER"), limits.open("INNER")) == (3, 7)
    for limit in ("max.connections", "max.connection.creation.rate", name):
        with pytest.raises(InvalidConfigError, match="nobody could connect"):
            check_live(limit, "0")
    for wrong in ("listener.name.outer.max.connections.per.ip", "listener.name.outer.plain.max.connections"):
        with pytest.raises(InvalidConfigError, match="property of one listener"):
            check_live(wrong, "3")


def test_what_kafka_changes_live_is_changed_live_without_effect():
    check_live("num.io.threads", "3")
    entry = broker_entry("num.io.threads", cluster={"num.io.threads": "3"})
    assert (entry.value, entry.source, entry.is_read_only) == ("3", CLUSTER, False)
    assert entry.key.doc == "Without effect here: an event loop takes the place of thread pools."
    with pytest.raises(InvalidConfigError, match=r"Invalid value 0 for configuration num\.io\.threads"):
        check_live("num.io.threads", "0")
    with pytest.raises(InvalidConfigError, match="Cannot update these configs dynamically"):
        check_live("socket.send.buffer.bytes", "1")


RENEWAL = "sasl.login.refresh.min.period.seconds"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("log.retention.ms", False),
        ("num.network.threads", False),
        (RENEWAL, True),
        ("ssl.client.auth", True),
        (f"listener.name.inner.{RENEWAL}", True),
        (f"listener.name.inner.oauthbearer.{RENEWAL}", True),
        ("listener.name.inner.max.connections", False),
        ("request.log.slower.than.ms", False),
    ],
)
def test_what_is_given_for_each_broker(name, expected):
    assert is_of_one_broker(name) is expected


@pytest.mark.parametrize(
    "name",
    [
        "sasl.kerberos.kinit.cmd",
        RENEWAL,
        f"listener.name.inner.{RENEWAL}",
        f"listener.name.inner.oauthbearer.{RENEWAL}",
    ],
)
def test_when_logins_are_renewed_restricts_nobody_and_is_stored(name):
    check_live(name, "77")
    entry = broker_entry(name, broker={name: "77"})
    assert (entry.value, entry.source, entry.is_read_only, entry.key.has_effect) == ("77", BROKER, False, False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sasl.kerberos.service.name", "kafka"),
        ("sasl.kerberos.principal.to.local.rules", "RULE:[1:$1]"),
        ("sasl.login.class", "a.B"),
        ("ssl.client.auth", "required"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        (RENEWAL, "x"),
        (f"listener.name.inner.{RENEWAL}", "x"),
    ],
)
def test_what_restricts_and_would_not_hold_is_refused(name, text):
    with pytest.raises(InvalidConfigError, match=re.escape(name)):
        check_live(name, text)


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("sasl.jaas.config", True),
        ("listener.name.inner.sasl.jaas.config", True),
        ("listener.name.inner.plain.sasl.jaas.config", True),
        ("listener.name.inner.ssl.key.password", True),
        ("ssl.key.password", False),  # refused as every property of TLS that is for no listener
        ("password.encoder.secret", False),  # read at the start
        ("log.retention.ms", False),
        ("no.such.property", False),
    ],
)
def test_which_live_properties_are_secrets(name, is_secret):
    with pytest.raises(InvalidConfigError, match="no secrets") if is_secret else nullcontext():
        check_keeps_no_secret(name)
