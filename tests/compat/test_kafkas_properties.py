"""The table of Kafka's properties is what Kafka 3.9 and 4.1 say of themselves."""

from uuid import uuid4

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.config import value_text
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_broker.properties.kafka_properties import EMPTY, NULL, REQUIRED, UNKNOWN, VERSIONS, kafka_properties
from millrace_support.kafka_configs import read_definitions
from millrace_support.raw import RawConnection
from millrace_tools.configuration_page import KEYS

# Kafka documents nothing of these: internal ones, and the throttles that are no part of its broker's configuration.
UNDOCUMENTED = {
    *("controller.performance.always.log.threshold.ms", "controller.performance.sample.period.ms"),
    *("follower.replication.throttled.rate", "leader.replication.throttled.rate"),
    *("group.consumer.migration.policy", "group.consumer.regex.refresh.interval.ms", "group.coordinator.new.enable"),
    *("group.share.enable", "group.share.persister.class.name"),
    *("internal.metadata.delete.delay.millis", "internal.metadata.log.segment.bytes"),
    *("internal.metadata.max.batch.size.in.bytes", "internal.metadata.max.fetch.size.in.bytes"),
    *("internal.segment.bytes", "log.initial.task.delay.ms", "metadata.log.segment.min.bytes"),
    *("producer.id.expiration.check.interval.ms", "remote.log.manager.task.retry.backoff.max.ms"),
    *("remote.log.manager.task.retry.backoff.ms", "remote.log.manager.task.retry.jitter"),
    *("replica.alter.log.dirs.io.max.bytes.per.second", "server.max.startup.time.ms"),
    *("share.coordinator.cold.partition.snapshot.interval.ms", "share.coordinator.state.topic.prune.interval.ms"),
    *("unclean.leader.election.interval.ms", "unstable.api.versions.enable", "unstable.feature.versions.enable"),
    "zookeeper.metadata.migration.min.batch.size",
}
# Of another type in 3.9 than in 4.1, whose type the table has.
TYPES_IN_3_9 = {"group.share.max.size": "SHORT"}
MODES = {"read-only": "at the start", "per-broker": "by broker", "cluster-wide": "live"}
PLACES = [("3.9", "broker"), ("3.9", "topic"), ("4.1", "broker"), ("4.1", "topic"), ("4.1", "group")]


@pytest.fixture(scope="module")
def defined(find_peer):
    """Kafka's own definitions by version and scope."""
    return {(version, scope): read_definitions(find_peer(version), scope) for version, scope in PLACES}


def rows_of(version, scope):
    index = VERSIONS.index(version)
    return {
        row.name: (row, row.defaults[index])
        for row in kafka_properties().values()
        if row.scope == scope and row.defaults[index] != UNKNOWN
    }


@pytest.mark.parametrize(("version", "scope"), PLACES)
def test_names_types_and_defaults_are_kafkas(defined, version, scope):
    theirs, ours = defined[version, scope], rows_of(version, scope)
    assert set(ours) - set(theirs) <= UNDOCUMENTED
    assert set(theirs) <= set(ours)
    for name, definition in theirs.items():
        row, default = ours[name]
        kind = TYPES_IN_3_9.get(name, row.type.name) if version == "3.9" else row.type.name
        assert (name, definition.type) == (name, kind)
        assert (name, definition.default) == (name, {REQUIRED: "", EMPTY: '""', NULL: "null"}.get(default, default))


def test_what_is_changed_live_is_kafkas(defined):
    order = list(MODES)
    for row in kafka_properties().values():
        modes = [
            found[row.name].update_mode
            for (_, scope), found in defined.items()
            if scope == "broker" == row.scope and row.name in found
        ]
        if modes:
            assert (row.name, row.changed) == (row.name, MODES[max(modes, key=order.index)])


# What DescribeConfigs tells of them: Kafka's brokers and ours, side by side.

DEFAULT_SOURCE = 5
KINDS = {"topic": 2, "broker": 4}
PLACES_DESCRIBED = (("broker", "1"), ("topic", "described"))
# Live in Kafka, or in one of its versions, and not here, or the other way round.
LIVE_ELSEWHERE = {
    *("log.message.downconversion.enable", "log.message.timestamp.difference.max.ms"),
    *("remote.log.manager.copier.thread.pool.size", "remote.log.manager.expiration.thread.pool.size"),
    *("remote.log.reader.threads", "remote.list.offsets.request.timeout.ms"),
}


def described(bootstrap, kind, name):
    resource = {"resource_type": KINDS[kind], "resource_name": name, "configuration_keys": None}
    fields = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
    with RawConnection(bootstrap) as raw:
        [result] = raw.request(ApiKey.DESCRIBE_CONFIGS, 3, fields).results
    assert result.error_code == 0, result
    return {one.name: one for one in result.configs}


def default_of(config):
    """The value of the layer below all others; None where there is none, or where it is secret."""
    return next(
        (one.value for one in config.synonyms if one.source == DEFAULT_SOURCE and one.name == config.name), None
    )


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("ours")) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("described", 1)
        yield {kind: described(broker.bootstrap, kind, name) for kind, name in PLACES_DESCRIBED}


@pytest.fixture(scope="module", params=VERSIONS)
def theirs(request, find_peer, tmp_path_factory):
    """(version, what its broker tells)"""
    version, address = request.param, None
    if version == "3.9":
        address = f"{request.getfixturevalue('zookeeper').address}/{uuid4().hex}"
    with KafkaBroker(find_peer(version), tmp_path_factory.mktemp("theirs") / "data", zookeeper=address) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("described", 1)
            SyncProducer(cluster).send("described", 0, [NewRecord(b"so that every part of Kafka knows the topic")])
        yield version, {kind: described(broker.bootstrap, kind, name) for kind, name in PLACES_DESCRIBED}


@pytest.mark.parametrize("kind", KINDS)
def test_properties_are_described_as_kafka_describes_them(ours, theirs, kind):
    version, found = theirs
    rows = rows_of(version, kind)
    assert len(found[kind]) > 30
    assert set(found[kind]) <= set(ours[kind])
    for name, one in found[kind].items():
        row, mine = rows[name][0], ours[kind][name]
        assert (name, mine.is_sensitive) == (name, one.is_sensitive)
        if name not in TYPES_IN_3_9:
            assert (name, mine.config_type) == (name, one.config_type)
        if row.changed != "by broker" and name not in LIVE_ELSEWHERE:
            assert (name, mine.read_only) == (name, one.read_only)
        if key_default(kind, name) == rows[name][1]:  # docs/configuration.md lists the others
            assert (name, default_of(mine)) == (name, default_of(one))


def key_default(kind, name):
    key = KEYS[kind][name]
    return (value_text(key.default) or EMPTY) if key.has_default else NULL
