"""A load as Dagster runs it: in its own process, with what it did as metadata, and audited."""

import json
from dataclasses import replace

import confluent_kafka
import dagster as dg
import pytest
from dagster_shared.error import DagsterError

from millrace.client import Admin, Cluster, SyncProducer
from millrace.clock import SystemClock
from millrace.records.record import NewRecord
from millrace_pipelines.defs.loads.assets import warehouse_table
from millrace_pipelines.defs.loads.checks import table_checks
from millrace_pipelines.defs.loads.history import table_history
from millrace_pipelines.defs.loads.runs import RETRY_AFTER_MS, load_runs
from millrace_pipelines.defs.loads.sensors import new_records, table_lag
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.tables.checks.results import Check
from millrace_pipelines.defs.tables.runs import UNFINISHED
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
        resources={"millrace": millrace},
    )
    assert result.success
    [materialization] = result.asset_materializations_for_node("warehouse_table")
    return materialization, {check.check_name: check for check in result.get_asset_check_evaluations()}


def decided(instance, millrace):
    return new_records(dg.build_sensor_context(instance=instance), millrace=millrace)


def requested(instance, millrace):
    return [request.partition_key for request in decided(instance, millrace).run_requests]


def observed(instance, millrace, cursor=None):
    """The lags that a look reports, and what the sensor says."""
    result = table_lag(dg.build_sensor_context(instance=instance, cursor=cursor), millrace=millrace)
    lags = {event.partition: event.metadata["lag"].value for event in result.asset_events}
    return lags, result.skip_reason.skip_message, result.cursor


def test_two_loads_and_the_sensors_that_ask_for_them(tmp_path, instance, millrace, send):
    (tmp_path / "events.json").write_text(json.dumps(SCHEMA))
    assert decided(instance, millrace).skip_reason.skip_message == "1 topic: 1 up to date"
    send(0, [b'{"id": 1}', b'{"id": 2}', b"not JSON"])
    assert requested(instance, millrace) == ["events"]
    assert observed(instance, millrace)[:2] == ({}, "0 tables, none behind")

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
    lags, said, cursor = observed(instance, millrace)
    assert (lags, said) == ({}, "1 table, none behind")

    send(1, [b'{"id": 3}'])
    assert requested(instance, millrace) == ["events"]
    for _ in range(2):
        lags, said, cursor = observed(instance, millrace, cursor)
        assert (lags, said) == ({"events": 1}, "1 table, 1 behind")
    materialization, checks = materialize(instance, millrace)
    assert materialization.metadata["rows"].value == 1
    assert set(checks) == set(Check)
    assert checks["load_completeness"].passed
    assert checks["load_completeness"].metadata["offsets"].value == 1
    assert checks["completeness"].passed
    lags, said, cursor = observed(instance, millrace, cursor)
    assert (lags, said) == ({"events": 0}, "1 table, none behind")
    assert observed(instance, millrace, cursor)[0] == {}


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
        run = instance.create_run_for_job(load, status=status, tags={"dagster/partition": "events"})
        assert decided(instance, millrace).skip_reason.skip_message == "1 topic: 1 with a load that waits or runs"
        instance.report_run_canceled(run)
        assert requested(instance, millrace) == ["events"]


def test_a_load_that_has_just_failed_is_asked_for_later(instance, millrace, send):
    send(0, [b"{}"])
    tags = {"dagster/partition": "events"}
    run = instance.create_run_for_job(load, status=dg.DagsterRunStatus.STARTED, tags=tags)
    instance.report_run_failed(run)
    assert decided(instance, millrace).skip_reason.skip_message == "1 topic: 1 with a load that failed lately"
    now_ms = SystemClock().now_ms()
    assert load_runs(instance, now_ms).failed_lately == {"events"}
    assert load_runs(instance, now_ms + RETRY_AFTER_MS).failed_lately == frozenset()
    instance.create_run_for_job(load, status=dg.DagsterRunStatus.SUCCESS, tags=tags)
    assert load_runs(instance, now_ms).failed_lately == frozenset()


def test_runs_of_other_jobs_delay_no_load(instance, millrace, send):
    send(0, [b"{}"])
    tags = {"dagster/partition": "events"}
    instance.create_run_for_job(other, status=dg.DagsterRunStatus.STARTED, tags=tags)
    instance.report_run_failed(instance.create_run_for_job(other, status=dg.DagsterRunStatus.STARTED, tags=tags))
    assert requested(instance, millrace) == ["events"]


def test_an_open_transaction_requests_no_load_until_it_ends(broker, instance, millrace, send):
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "bank"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("events", b"{}", partition=0)
    producer.flush(30)
    for _ in range(20):
        assert decided(instance, millrace).skip_reason.skip_message == "1 topic: 1 up to date"
    producer.commit_transaction(30)
    assert requested(instance, millrace) == ["events"]


def test_one_damaged_table_stops_no_other_topic(broker, tmp_path, instance, millrace, send):
    send(0, [b"{}"])
    broker.create_topic("damaged")
    instance.add_dynamic_partitions("topics", ["damaged"])
    log = tmp_path / "warehouse" / "damaged" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_bytes(b"{torn")
    assert requested(instance, millrace) == ["events", "damaged"]
    assert observed(instance, millrace)[:2] == ({}, "1 table, none behind, 1 whose load has an error to report")


def test_loads_of_the_sensor_have_a_priority_below_those_that_people_launch(instance, millrace, send):
    send(0, [b"{}"])
    [request] = decided(instance, millrace).run_requests
    assert request.tags["dagster/priority"] == "-1"


def test_without_the_broker_the_ticks_fail_with_one_sentence(broker, instance, millrace):
    broker.stop()
    for tick in (decided, observed):
        with pytest.raises(DagsterError, match=r"^no broker answers at [0-9.:]+: Connection refused$"):
            tick(instance, millrace)


@dg.job
def load():
    """Stands for a load."""


@dg.job
def other():
    """Stands for the job of another asset with the same partitions."""
