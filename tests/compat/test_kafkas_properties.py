"""The table of Kafka's properties is what Kafka 3.9 and 4.1 say of themselves."""

import pytest

from millrace.testing.kafka_configs import read_definitions
from millrace_broker.kafka_properties import EMPTY, NULL, REQUIRED, UNKNOWN, VERSIONS, kafka_properties

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
