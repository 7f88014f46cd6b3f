"""Retention and the recovery check as Dagster runs them, on a real broker's logs."""

import dagster as dg
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace_pipelines.defs.recovery.assets import recovery_check
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.retention.assets import retention

VALUE = b"v" * 1000


@pytest.fixture
def millrace(broker, tmp_path):
    return MillraceResource(
        bootstrap=broker.bootstrap,
        admin_url=broker.admin_url,
        warehouse_dir=str(tmp_path / "warehouse"),
        schema_dir=str(tmp_path / "schemas"),
        master="local[1,3]",
    )


def materialize(asset, millrace):
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([asset], instance=instance, resources={"millrace": millrace}, raise_on_error=False)
        assert result.success
        [materialization] = result.asset_materializations_for_node(asset.op.name)
        return materialization.metadata, result.get_asset_check_evaluations()


def fill(bootstrap, config):
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic("events", 1, config=config)
        producer = SyncProducer(cluster)
        for _ in range(5):
            producer.send("events", 0, [NewRecord(VALUE)] * 10)


def test_retention_says_what_it_deleted(broker, millrace):
    fill(broker.bootstrap, {"segment.bytes": "20000", "retention.bytes": "20000"})
    metadata, _ = materialize(retention, millrace)
    assert metadata["segments deleted"].value > 0
    assert metadata["bytes deleted"].value > 10_000
    [row] = [record.data for record in metadata["partitions"].records]
    assert (row["topic"], row["partition"]) == ("events", 0)
    assert row["log start offset"] > 0
    again, _ = materialize(retention, millrace)
    assert again["segments deleted"].value == 0


def test_a_sound_log_passes_the_recovery_check(broker, millrace):
    fill(broker.bootstrap, {})
    metadata, [check] = materialize(recovery_check, millrace)
    assert metadata["records"].value == 50
    assert metadata["findings"].value == 0
    assert check.passed


def test_a_damaged_batch_fails_the_recovery_check_at_its_byte(broker, millrace):
    fill(broker.bootstrap, {"segment.bytes": "20000"})
    log = broker.data_dir / "events-0" / f"{0:020}.log"
    damaged = bytearray(log.read_bytes())
    damaged[-1] ^= 0xFF
    log.write_bytes(damaged)
    metadata, [check] = materialize(recovery_check, millrace)
    assert metadata["findings"].value == 1
    assert not check.passed
    assert f"{0:020}.log" in check.metadata["findings"].value
