"""Maintenance of a cluster without an admin endpoint, as Dagster runs it: by the client protocol alone."""

import dagster as dg
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.security.acls import AclOperation, PatternType, PermissionType, ResourceType
from millrace.testing.local_broker import LocalBroker
from millrace.wire.api import ApiKey
from millrace_pipelines.defs.maintenance_by_protocol import log_check_asset, settings_assets
from millrace_pipelines.defs.resources import MillraceResource
from millrace_support.declared import cluster_of
from millrace_support.raw import RawConnection

NOON_MS = 1_772_366_400_000
DECLARED = """
cluster: lake
tables: [{topic: orders}, {topic: never-made}]
"""
RIGHTS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def broker():
    with LocalBroker(properties=RIGHTS) as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("orders", 2, config={"retention.ms": "-1"})
        Admin(cluster).create_topic("users", 1, config={"cleanup.policy": "compact"})
        for partition in (0, 1):
            for number in range(20):
                SyncProducer(cluster).send("orders", partition, [NewRecord(b"o", timestamp_ms=NOON_MS + number)])
        yield broker


def run(asset, broker, **config):
    """Runs the asset as a schedule does; returns its events, by the name of the asset."""
    resources = {"lake": MillraceResource(
        bootstrap=broker.bootstrap, admin_url="", warehouse_dir="", schema_dir="", master=""
    )}  # fmt: skip
    settings = {"ops": {asset.op.name: {"config": config}}} if config else {}
    with dg.DagsterInstance.ephemeral() as instance:
        job = dg.Definitions(
            assets=[asset],
            resources=resources,
            jobs=[dg.define_asset_job("all", dg.AssetSelection.assets(*asset.keys))],
        ).resolve_job_def("all")
        return job.execute_in_process(instance=instance, run_config=settings, raise_on_error=False)


def settings(broker):
    result = run(settings_assets(cluster_of(DECLARED, "orders", "users")), broker)
    assert result.success
    observed = [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]
    return {
        one.asset_key.path[-1]: {row.data["topic"]: row.data for row in one.metadata["topics"].records}
        for one in observed
    }


def test_retention_and_compaction_are_shown_as_the_cluster_has_them(broker):
    shown = settings(broker)
    assert shown.keys() == {"retention", "compaction"}
    assert shown["retention"].keys() == {"orders", "users"}, "a topic that is not made yet has no settings"
    orders, users = shown["retention"]["orders"], shown["compaction"]["users"]
    assert (orders["records"], orders["oldest record"]) == (40, "2026-03-01 12:00:00+00:00")
    assert (orders["retention.ms"], orders["cleanup.policy"], orders["set for the topic"]) == (
        *("-1", "delete"),
        "retention.ms",
    )
    assert (users["records"], users["oldest record"], users["cleanup.policy"]) == (0, "", "compact")
    assert users["min.cleanable.dirty.ratio"] == "0.5"


def test_a_topic_whose_settings_the_cluster_keeps_to_itself_has_its_sentence(broker):
    entry = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "users",
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:ANONYMOUS",
        "host": "*",
        "operation": AclOperation.DESCRIBE,
        "permission_type": PermissionType.ALLOW,
    }
    with RawConnection(broker.bootstrap) as connection:
        connection.request(ApiKey.CREATE_ACLS, 3, {"creations": [entry]})
    shown = settings(broker)["retention"]
    assert "users" in shown["users"]["set for the topic"]
    assert "authoriz" in shown["users"]["set for the topic"].lower()
    assert shown["users"]["retention.ms"] == ""
    assert shown["orders"]["retention.ms"] == "-1"
    metadata, evaluation = checked(broker, topics=["use*", "orders"], whole=True)
    assert (evaluation.passed, metadata["batches"].value) == (False, 40)
    assert "`users-0` at offset 0: " in evaluation.metadata["findings"].value


def checked(broker, **config):
    """The metadata of a check of the logs, and its result."""
    asset = log_check_asset(cluster_of(DECLARED, "orders"))
    result = run(asset, broker, **config)
    assert result.success
    [materialization] = result.asset_materializations_for_node(asset.op.name)
    [evaluation] = result.get_asset_check_evaluations()
    return materialization.metadata, evaluation


def test_each_night_begins_a_seventh_later_in_the_tables_topics(broker, monkeypatch):
    batches = []
    for night in range(7):
        monkeypatch.setattr("millrace_pipelines.defs.maintenance_by_protocol.CLOCK", At(night))
        metadata, evaluation = checked(broker)
        assert evaluation.passed
        assert metadata["part of the offsets"].value == f"{night + 1} of 7"
        batches.append(metadata["batches"].value)
    metadata, _ = checked(broker, whole=True)
    assert metadata["batches"].value == 40
    assert batches == [2 * (20 - 20 * night // 7) for night in range(7)], "one answer has the rest of so small a log"


class At:
    """A clock at noon of a day, counted from 1970."""

    def __init__(self, day):
        self.day = day

    def now_ms(self):
        return self.day * 86_400_000 + 43_200_000


@pytest.mark.broker_errors(r"orders-1")
def test_a_flipped_bit_is_a_finding_at_its_offset(broker):
    log = broker.data_dir / "orders-1" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 0xFF
    log.write_bytes(data)
    metadata, evaluation = checked(broker, whole=True)
    assert not evaluation.passed
    assert metadata["findings"].value >= 1
    assert "`orders-1` at offset 19" in evaluation.metadata["findings"].value
