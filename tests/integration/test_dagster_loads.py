"""A load as Dagster runs it: in its own process, with what it did as metadata, and audited."""

import json
from dataclasses import replace

import dagster as dg
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.clock import SystemClock
from millrace.records.record import NewRecord
from millrace_pipelines.defs.loads.assets import warehouse_table
from millrace_pipelines.defs.loads.checks import table_checks
from millrace_pipelines.defs.loads.history import table_history
from millrace_pipelines.defs.loads.sensors import RETRY_AFTER_MS, UNFINISHED, has_just_failed, new_records
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.tables.checks.results import Check
from millrace_pipelines.defs.topics.assets import topic
from millrace_pipelines.warehouse import LoadOptions, load_topic

SCHEMA = {"fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("topics", ["events"])
        yield instance


@pytest.fixture
def millrace(broker, tmp_path):
    return MillraceResource(
        bootstrap=broker.bootstrap,
        admin_url=broker.admin_url,
        warehouse_dir=str(tmp_path / "warehouse"),
        schema_dir=str(tmp_path),
        master="local[1,3]",
    )


@pytest.fixture
def send(broker):
    """Sends records to a partition of the topic `events`, which has two."""
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 2)
        producer = SyncProducer(cluster)
        yield lambda partition, values: producer.send("events", partition, [NewRecord(value) for value in values])


def materialize(instance, millrace):
    result = dg.materialize(
        [topic, warehouse_table, table_checks],
        selection=[warehouse_table],
        instance=instance,
        partition_key="events",
        resources={"millrace": millrace, "pipes": dg.PipesSubprocessClient()},
    )
    assert result.success
    [materialization] = result.asset_materializations_for_node("warehouse_table")
    return materialization, {check.check_name: check for check in result.get_asset_check_evaluations()}


def requested(instance, millrace):
    context = dg.build_sensor_context(instance=instance)
    return [request.partition_key for request in new_records(context, millrace=millrace)]


def test_two_loads_and_the_sensor_that_asks_for_them(tmp_path, instance, millrace, send):
    (tmp_path / "events.json").write_text(json.dumps(SCHEMA))
    assert requested(instance, millrace) == []
    send(0, [b'{"id": 1}', b'{"id": 2}', b"not JSON"])
    assert requested(instance, millrace) == ["events"]

    materialization, checks = materialize(instance, millrace)
    metadata = materialization.metadata
    assert materialization.partition == "events"
    assert (metadata["rows"].value, metadata["dead letters"].value) == (2, 1)
    assert metadata["bytes"].value > 0
    assert metadata["seconds"].value > 0
    rows = [record.data for record in metadata["offsets"].records]
    assert [(row["partition"], row["from offset"], row["until offset"]) for row in rows] == [(0, 0, 3)]
    assert {name for name, check in checks.items() if not check.passed} == {"dead_letters"}
    assert requested(instance, millrace) == []

    send(1, [b'{"id": 3}'])
    assert requested(instance, millrace) == ["events"]
    materialization, checks = materialize(instance, millrace)
    assert materialization.metadata["rows"].value == 1
    assert set(checks) == set(Check)
    assert checks["load_completeness"].passed
    assert checks["load_completeness"].metadata["offsets"].value == 1
    assert checks["completeness"].passed


def test_what_is_shown_of_loads_by_dagster_and_by_hand(instance, millrace, send):
    send(0, [b"first"])
    materialization, _ = materialize(instance, millrace)
    metadata = materialization.metadata
    assert (metadata["dagster/row_count"].value, metadata["table files"].value) == (1, 1)
    assert "| 0 | 0 |" in metadata["newest rows"].value
    assert metadata["dagster/column_schema"].value.columns[0].name == "topic"

    send(1, [b"second", b"third"])
    options = LoadOptions(topic="events", table=millrace.table_dir("events"), bootstrap=millrace.bootstrap)
    load_topic(replace(options, master=millrace.master))
    context = dg.build_sensor_context(instance=instance)
    found = table_history(context, millrace=millrace)
    [event] = found.asset_events
    assert (event.asset_key, event.partition) == (warehouse_table.key, "events")
    assert event.metadata["rows"].value == 2
    assert event.metadata["dagster/row_count"].value == 3
    instance.report_runless_asset_event(event)
    for cursor in (found.cursor, None):
        again = table_history(dg.build_sensor_context(instance=instance, cursor=cursor), millrace=millrace)
        assert isinstance(again, dg.SkipReason) or again.asset_events == []


def test_a_load_that_waits_or_runs_is_not_asked_for_again(instance, millrace, send):
    send(0, [b"{}"])
    for status in set(UNFINISHED) - {dg.DagsterRunStatus.QUEUED}:  # a queued run needs a code location
        run = instance.create_run_for_job(noop, status=status, tags={"dagster/partition": "events"})
        assert requested(instance, millrace) == []
        instance.report_run_canceled(run)
        assert requested(instance, millrace) == ["events"]


def test_a_load_that_has_just_failed_is_asked_for_later(instance, millrace, send):
    send(0, [b"{}"])
    tags = {"dagster/partition": "events"}
    run = instance.create_run_for_job(noop, status=dg.DagsterRunStatus.STARTED, tags=tags)
    instance.report_run_failed(run)
    assert requested(instance, millrace) == []
    now_ms = SystemClock().now_ms()
    assert has_just_failed(instance, "events", now_ms)
    assert not has_just_failed(instance, "events", now_ms + RETRY_AFTER_MS)


@dg.job
def noop():
    """Stands for a load."""
