"""A load as Dagster runs it: in its own process, with what it did as metadata, and audited."""

import json
from dataclasses import replace
from uuid import uuid4

import confluent_kafka
import dagster as dg
import pytest
from dagster_shared.error import DagsterError
from prometheus_client.parser import text_string_to_metric_families

from millrace.client import Admin, Cluster, SyncProducer
from millrace.clock import SystemClock
from millrace.records.record import NewRecord
from millrace_benchmarks.kafka_broker import await_markers
from millrace_pipelines.declaration.attributes import Check
from millrace_pipelines.defs.load_automation import new_records_sensor, table_history_sensor, table_lag_sensor
from millrace_pipelines.defs.load_due import FAILED_TABLES, RETRY_AFTER_MS, load_runs
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.table_checks import AFTER_EACH_LOAD, AT_NIGHT
from millrace_pipelines.defs.ticks import UNFINISHED
from millrace_pipelines.warehouse import LoadOptions, load_topic
from millrace_support.dagster_checks import counts_now
from millrace_support.declared import LOAD_ALL, cluster_of, definitions_of, ticked

pytestmark = pytest.mark.usefixtures("warm_loads")

EVENTS = dg.AssetKey(["millrace", "table", "events"])
TOPICS = ("broken", "empty", "events")
SCHEMA = {"fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def millrace(broker, tmp_path):
    return MillraceResource(
        bootstrap=broker.bootstrap,
        admin_url=broker.admin_url,
        warehouse_dir=str(tmp_path / "warehouse"),
        schema_dir=str(tmp_path),
        master="local[1,3]",
        load_metrics=str(tmp_path),
    )


@pytest.fixture
def send(broker):
    """Sends records to a partition of the topic `events`, which has two."""
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 2)
        producer = SyncProducer(cluster)
        yield lambda partition, values: producer.send("events", partition, [NewRecord(value) for value in values])


@pytest.fixture
def world(instance, millrace):
    return instance, millrace


@pytest.fixture
def cluster(tmp_path):
    """The cluster of the topic `events`, whose schema is in the folder of schemas, if it has one."""
    return lambda *others, text=LOAD_ALL: cluster_of(text, "events", *others, schema_dir=str(tmp_path))


def run(instance, millrace, cluster, *keys, **how):
    """A run of the load of these tables, with all of their checks."""
    job = definitions_of(cluster, millrace).resolve_implicit_global_asset_job_def()
    checks = {key for key in job.asset_layer.asset_graph.asset_check_keys if key.asset_key in keys}
    selected = job.get_subset(asset_selection=set(keys), asset_check_selection=checks)
    return selected.execute_in_process(instance=instance, resources={"millrace": millrace}, raise_on_error=False, **how)


def materialize(instance, millrace, cluster):
    result = run(instance, millrace, cluster, EVENTS)
    assert result.success
    [materialization] = result.asset_materializations_for_node("millrace_load_tables")
    assert materialization.asset_key == EVENTS
    return materialization, {check.check_name: check for check in result.get_asset_check_evaluations()}


def decided(instance, millrace, cluster):
    return ticked(new_records_sensor(cluster), instance, millrace)


def requested(instance, millrace, cluster):
    requests = decided(instance, millrace, cluster).run_requests
    assert len(requests) <= 1, "one run loads all that is due"
    return [key.path[-1] for request in requests for key in request.asset_selection]


def observed(instance, millrace, cluster, cursor=None):
    """The lags that a look reports, and what the sensor says."""
    result = ticked(table_lag_sensor(cluster), instance, millrace, cursor)
    lags = {event.asset_key.path[-1]: event.metadata["lag"].value for event in result.asset_events}
    return lags, result.skip_reason.skip_message, result.cursor


def said(result):
    return result.skip_reason.skip_message


def run_of(instance, status, *topics, tags=None):
    """A run that loads these topics, as the instance has it."""
    keys = frozenset(dg.AssetKey(["millrace", "table", topic]) for topic in topics)
    run = dg.DagsterRun("load", str(uuid4()), status=status, asset_selection=keys, tags=tags or {})
    return instance.add_run(run)


def test_two_loads_and_the_sensors_that_ask_for_them(tmp_path, instance, millrace, send, cluster):
    (tmp_path / "events.json").write_text(json.dumps(SCHEMA))
    events = cluster()
    assert said(decided(instance, millrace, events)) == "1 topic: 1 up to date"
    send(0, [b'{"id": 1}', b'{"id": 2}', b"not JSON"])
    assert requested(instance, millrace, events) == ["events"]
    assert observed(instance, millrace, events)[:2] == ({}, "0 tables, none behind")

    materialization, checks = materialize(instance, millrace, events)
    metadata = materialization.metadata
    assert (metadata["rows"].value, metadata["dead letters"].value) == (2, 1)
    assert metadata["bytes"].value > 0
    assert metadata["seconds"].value > 0
    rows = [record.data for record in metadata["offsets"].records]
    assert [(row["partition"], row["from offset"], row["until offset"]) for row in rows] == [(0, 0, 3)]
    assert {name for name, check in checks.items() if not check.passed} == {"dead_letters"}
    assert requested(instance, millrace, events) == []
    lags, says, cursor = observed(instance, millrace, events)
    assert (lags, says) == ({}, "1 table, none behind")

    send(1, [b'{"id": 3}'])
    assert requested(instance, millrace, events) == ["events"]
    for _ in range(2):
        lags, says, cursor = observed(instance, millrace, events, cursor)
        assert (lags, says) == ({"events": 1}, "1 table, 1 behind")
    materialization, checks = materialize(instance, millrace, events)
    assert materialization.metadata["rows"].value == 1
    assert set(checks) == set(Check)
    assert checks["load_completeness"].passed
    assert checks["load_completeness"].metadata["offsets"].value == 1
    assert checks["completeness"].passed
    lags, says, cursor = observed(instance, millrace, events, cursor)
    assert (lags, says) == ({"events": 0}, "1 table, none behind")
    assert observed(instance, millrace, events, cursor)[0] == {}


def test_tables_of_a_run_load_by_themselves_and_a_re_execution_loads_what_failed(
    broker, tmp_path, world, send, cluster
):
    """One process loads all; the failure of one stops no other, and the run from the failure is of that one alone."""
    instance, millrace = world
    broker.create_topic("broken")
    broker.create_topic("empty")
    send(0, [b"one"])
    (tmp_path / "broken.json").write_text("{")
    tables = cluster("broken", "empty")
    keys = [table.keys.table for table in tables.tables]
    broken, _, events = keys
    previewed = run(instance, millrace, tables, events, run_config=launchpad(dry_run=True))
    [observation] = previewed.filter_events(lambda event: event.event_type_value == "ASSET_OBSERVATION")
    assert observation.event_specific_data.asset_observation.metadata["offsets to load"].value == 1
    assert not (tmp_path / "warehouse").exists()

    failed = run(instance, millrace, tables, *keys)
    assert not failed.success
    loaded = failed.asset_materializations_for_node("millrace_load_tables")
    assert [one.asset_key for one in loaded] == [events]
    [step] = failed.filter_events(lambda event: event.is_step_failure and event.node_name == "millrace_load_tables")
    assert step.event_specific_data.user_failure_data.description.startswith("millrace/table/broken: ")
    checks = [dg.AssetCheckKey(table, "load_completeness") for table in keys]
    known = instance.event_log_storage.get_latest_asset_check_execution_by_key(checks)
    assert {key.asset_key for key, check in known.items() if check.status.value == "SUCCEEDED"} == {events}
    tags = instance.get_run_by_id(failed.run_id).tags
    assert json.loads(tags[FAILED_TABLES]) == ["millrace/table/broken"]
    assert {file.name for file in tmp_path.glob("*.prom")} == {f"millrace.table.{one}.prom" for one in TOPICS}
    assert not failing(tmp_path / "millrace.table.events.prom")
    [(error, is_failing)] = failing(tmp_path / "millrace.table.broken.prom").items()
    assert is_failing

    (tmp_path / "broken.json").write_text(json.dumps(SCHEMA))
    SyncProducer(Cluster(broker.bootstrap)).send("broken", 0, [NewRecord(b'{"id": 1}')])
    send(0, [b"two"])
    again = re_executed(instance, millrace, tables, failed.run_id, keys)
    assert again.success
    loaded = again.asset_materializations_for_node("millrace_load_tables")
    assert [one.asset_key for one in loaded] == [broken]
    assert failing(tmp_path / "millrace.table.broken.prom") == {error: False}


def failing(file):
    """Whether the newest load failed with it, by the errors with which loads have failed."""
    families = text_string_to_metric_families(file.read_text())
    samples = [sample for family in families for sample in family.samples]
    return {one.labels["error"]: bool(one.value) for one in samples if one.name == "millrace_table_load_failing"}


def launchpad(**config):
    return {"ops": {"millrace_load_tables": {"config": config}}}


def re_executed(instance, millrace, cluster, run_id, keys):
    """A run as Dagster's "Re-execute from failure" makes it."""
    tags = {"dagster/is_resume_retry": "true", "dagster/parent_run_id": run_id, "dagster/root_run_id": run_id}
    job = definitions_of(cluster, millrace).resolve_implicit_global_asset_job_def()
    subset = job.get_subset(asset_selection=set(keys))
    parent = dg.DagsterRun(job_name=job.name, run_id=run_id)
    assert parent.run_id
    return subset.execute_in_process(instance=instance, resources={"millrace": millrace}, tags=tags)


def test_what_is_shown_of_loads_by_dagster_and_by_hand(instance, millrace, send, cluster):
    send(0, [b"first"])
    table_history = table_history_sensor(cluster())
    materialization, _ = materialize(instance, millrace, cluster())
    metadata = materialization.metadata
    assert (metadata["dagster/row_count"].value, metadata["table files"].value) == (1, 1)
    assert "| 0 | 0 |" in metadata["newest rows"].value
    assert metadata["dagster/column_schema"].value.columns[0].name == "topic"

    send(1, [b"second", b"third"])
    options = LoadOptions(topic="events", table=millrace.table_dir("events"), bootstrap=millrace.bootstrap)
    load_topic(replace(options, master=millrace.master))
    found = ticked(table_history, instance, millrace)
    event, *checks = found.asset_events
    assert event.asset_key == EVENTS
    assert event.metadata["rows"].value == 2
    assert event.metadata["dagster/row_count"].value == 3
    assert {check.check_name for check in checks if check.passed} == {check.value for check in AFTER_EACH_LOAD}
    for reported in found.asset_events:
        instance.report_runless_asset_event(reported)
    assert all(counts_now(instance, EVENTS, check.value) for check in AFTER_EACH_LOAD)
    for cursor in (found.cursor, None):
        again = ticked(table_history, instance, millrace, cursor)
        assert isinstance(again, dg.SkipReason) or again.asset_events == []


def test_a_load_that_waits_or_runs_is_not_asked_for_again(instance, millrace, send, cluster):
    send(0, [b"{}"])
    for status in set(UNFINISHED) - {dg.DagsterRunStatus.QUEUED}:  # a queued run needs a code location
        run = run_of(instance, status, "events")
        assert said(decided(instance, millrace, cluster())) == "1 topic: 1 with a load that waits or runs"
        instance.report_run_canceled(run)
        assert requested(instance, millrace, cluster()) == ["events"]


def test_a_load_that_has_just_failed_is_asked_for_later(instance, millrace, send, cluster):
    send(0, [b"{}"])
    started = dg.DagsterRunStatus.STARTED
    instance.report_run_failed(run_of(instance, started, "events"))
    assert said(decided(instance, millrace, cluster())) == "1 topic: 1 with a load that failed lately"
    now_ms = SystemClock().now_ms()
    assert load_runs(instance, {EVENTS}, now_ms).failed_lately == {EVENTS}
    assert load_runs(instance, {EVENTS}, now_ms + RETRY_AFTER_MS).failed_lately == frozenset()
    instance.report_run_failed(
        run_of(instance, started, "events", "other", tags={FAILED_TABLES: '["millrace/table/other"]'})
    )
    assert load_runs(instance, {EVENTS}, now_ms).failed_lately == frozenset(), "it failed at another table"
    instance.report_run_failed(run_of(instance, started, "events", tags={FAILED_TABLES: '["millrace/table/events"]'}))
    assert load_runs(instance, {EVENTS}, now_ms).failed_lately == {EVENTS}
    run_of(instance, dg.DagsterRunStatus.SUCCESS, "events")
    assert load_runs(instance, {EVENTS}, now_ms).failed_lately == frozenset()


def test_runs_of_other_assets_delay_no_load(instance, millrace, send, cluster):
    send(0, [b"{}"])
    run_of(instance, dg.DagsterRunStatus.STARTED, "other")
    instance.report_run_failed(run_of(instance, dg.DagsterRunStatus.STARTED))
    assert requested(instance, millrace, cluster()) == ["events"]


def test_tables_wait_for_their_lag_bound_and_those_with_a_schedule_for_it(instance, millrace, send, cluster):
    bounded = cluster(text="tables: [{topic: events, lag_bound: 3}]")
    scheduled = cluster(text="tables: [{topic: events, schedule: '@hourly'}]")
    for lag in (1, 2, 3):
        send(lag % 2, [b"{}"])
        assert requested(instance, millrace, bounded) == (["events"] if lag == 3 else [])
    assert said(decided(instance, millrace, scheduled)) == "0 topics"
    running = {sensor.name: sensor.default_status.value for sensor in definitions_of(bounded, millrace).sensors}
    assert running["new_records_millrace"] == "RUNNING"


def test_an_open_transaction_requests_no_load_until_it_ends(broker, instance, millrace, send, cluster):
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "bank", "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("events", b"{}", partition=0)
    producer.flush()
    for _ in range(20):
        assert said(decided(instance, millrace, cluster())) == "1 topic: 1 up to date"
    uncommitted = cluster(text="tables: [{topic: events, isolation: read_uncommitted}]")
    assert requested(instance, millrace, uncommitted) == ["events"]
    producer.commit_transaction()
    await_markers(broker.bootstrap, "events")
    assert requested(instance, millrace, cluster()) == ["events"]


def test_one_damaged_table_stops_no_other_topic(broker, tmp_path, world, send, cluster):
    instance, millrace = world
    send(0, [b"{}"])
    broker.create_topic("damaged")
    log = tmp_path / "warehouse" / "damaged" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_bytes(b"{torn")
    both = cluster("damaged")
    assert sorted(requested(instance, millrace, both)) == ["damaged", "events"]
    assert observed(instance, millrace, both)[:2] == ({}, "1 table, none behind, 1 whose load has an error to report")


def test_loads_of_the_sensor_have_a_priority_below_those_that_people_launch(instance, millrace, send, cluster):
    send(0, [b"{}"])
    [request] = decided(instance, millrace, cluster()).run_requests
    assert {key.name for key in request.asset_check_keys} == set(Check) - set(AT_NIGHT)
    assert request.tags["dagster/priority"] == "-1"


def test_without_the_broker_the_ticks_fail_with_one_sentence(broker, instance, millrace, cluster):
    broker.stop()
    for tick in (decided, observed):
        with pytest.raises(DagsterError, match=r"^no broker answers at [0-9.:]+: Connection refused$"):
            tick(instance, millrace, cluster())
