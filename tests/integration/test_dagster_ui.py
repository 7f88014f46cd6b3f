"""What Dagster's pages ask and do, on a whole platform with two declared tables: by GraphQL, with real runs.

The tests follow one another: each goes on with the tables as the one before left them.
"""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from millrace.client import Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace_pipelines.defs.load_due import FAILED_TABLES, FROM_FAILURE, PARENT_RUN
from millrace_pipelines.project import write_definitions
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.ledger.ledger import read_ledger
from millrace_support.dagster_platform import dagster_platform
from millrace_support.dagster_ui import PLACE, DagsterUi, asset_key, await_it

pytestmark = pytest.mark.timeout(900)

DEFINITIONS = """
type: millrace_pipelines.MillraceComponent
attributes:
  undeclared_topics: observe
  load_new_records: false
  tables:
    - topic: flights
      partitions: 2
      config: {retention.ms: -1}
      schema: flights.json
      freshness: 1d
      max_dead_letter_share: 0.5
      owners: ["team:data"]
    - topic: gates
      partitions: 1
      config: {retention.ms: -1}
      schedule: "0 0 1 1 *"
"""
ASSETS = {
    *(f"{kind}/{topic}" for kind in ("topic", "table", "reload") for topic in ("flights", "gates")),
    *("dead_letters/flights", "retention", "compaction", "recovery_check", "table_upkeep", "consumer_groups"),
    "declaration",
}
TABLE_CHECKS = {
    *("load_completeness", "completeness", "skipped_offsets", "dead_letters", "freshness", "lag", "schema_drift"),
    "stored_files",
}
CHECKS = {
    *((f"table/{topic}", check) for topic in ("flights", "gates") for check in TABLE_CHECKS),
    *(("topic/flights", "as_declared"), ("topic/gates", "as_declared")),
    *(("recovery_check", "no_findings"), ("consumer_groups", "one_live_owner"), ("declaration", "as_written")),
}
JOBS = {"load_millrace", "reload_millrace", "backfill_millrace", "replay_millrace", "erase_millrace", "prune_runs"}
SENSORS = {
    "default_automation_condition_sensor": "RUNNING",
    "new_records_millrace": "STOPPED",
    "project_files": "RUNNING",
    "table_history_millrace": "RUNNING",
    "table_lag_millrace": "RUNNING",
    "topics_millrace": "RUNNING",
}
LOAD_SCHEDULE = "load_gates_millrace"
SCHEDULES = {
    *("hourly_pruning", "bounds_millrace", "hourly_compaction_millrace", "hourly_ownership_check_millrace"),
    *("hourly_retention_millrace", LOAD_SCHEDULE, "nightly_audit_millrace"),
    *("nightly_recovery_check_millrace", "nightly_table_upkeep_millrace"),
}
EVERYTHING = """
query Everything($place: RepositorySelector!) {
  repositoryOrError(repositorySelector: $place) { ... on Repository {
    assetNodes { assetKey { path } assetChecksOrError { ... on AssetChecks { checks { name } } } }
    jobs { name }
    sensors { name sensorState { status } }
    schedules { name scheduleState { status } futureTicks(limit: 1) { results { timestamp } } }
  } }
}"""
LAUNCHPAD = """
query Launchpad($job: PipelineSelector!) {
  runConfigSchemaOrError(selector: $job) { __typename ... on RunConfigSchema { rootDefaultYaml } }
}"""
DAYS_TO_RELOAD = """
query Days($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode { partitionKeys } } }"""
BACKFILL = """
mutation Backfill($parameters: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $parameters) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
  }
}"""
START_SENSOR = "mutation Start($of: SensorSelector!) { startSensor(sensorSelector: $of) { __typename } }"
STOP_SENSOR = "mutation Stop($id: String!) { stopSensor(id: $id) { __typename } }"
SENSOR = """
query Sensor($of: SensorSelector!) { sensorOrError(sensorSelector: $of) { ... on Sensor {
  id sensorState { id status ticks(limit: 1) { status skipReason } }
} } }"""
START_SCHEDULE = "mutation Start($of: ScheduleSelector!) { startSchedule(scheduleSelector: $of) { __typename } }"
STOP_SCHEDULE = "mutation Stop($id: String!) { stopRunningSchedule(id: $id) { __typename } }"

FIRST_DAY = date(2026, 3, 1)
DAYS = 5


@pytest.fixture(scope="module")
def platform(tmp_path_factory, warm_loads):
    """A platform whose topics have a record in each partition for each of five days, and a letter without a delay."""
    directory = tmp_path_factory.mktemp("ui") / "state"
    write_schema(directory, nullable=False)
    with dagster_platform(directory, DEFINITIONS, {"flights", "gates"}) as platform:
        with Cluster(platform.addresses.broker) as cluster:
            send_days(SyncProducer(cluster))
        yield platform


def write_schema(directory, *, nullable):
    fields = [
        {"name": "carrier", "type": "string", "nullable": False},
        {"name": "delay", "type": "integer", "nullable": nullable},
    ]
    write_definitions(str(directory), "cluster/flights.json", json.dumps({"fields": fields}))


def send_days(producer):
    for day in range(DAYS):
        for partition, carrier in enumerate(("AA", "UA")):
            producer.send("flights", partition, [record({"carrier": carrier, "delay": day}, day)])
        producer.send("gates", 0, [record({"gate": day}, day)])
    producer.send("flights", 0, [record({"carrier": "DL"}, DAYS)])


def record(value, day):
    noon = datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, 12, tzinfo=UTC) + timedelta(days=day)
    carrier = value.get("carrier", "")
    return NewRecord(json.dumps(value).encode(), carrier.encode(), int(noon.timestamp() * 1000))


@pytest.fixture(scope="module")
def ui(platform):
    return DagsterUi(platform.addresses.dagster)


@pytest.fixture(scope="module")
def table(platform):
    return lambda topic: str(Path(platform.path("warehouse"), topic))


def names(found):
    return {one["name"] for one in found}


def test_everything_is_there_and_loads(ui):
    there = ui.ask(EVERYTHING, place=PLACE)["repositoryOrError"]
    checks = {"/".join(node["assetKey"]["path"][1:]): node["assetChecksOrError"] for node in there["assetNodes"]}
    assert set(checks) == ASSETS
    assert {(asset, check) for asset, of in checks.items() for check in names(of["checks"])} == CHECKS
    jobs = names(there["jobs"])
    assert {name for name in jobs if not name.startswith("__")} == JOBS
    assert {one["name"]: one["sensorState"]["status"] for one in there["sensors"]} == SENSORS
    assert names(there["schedules"]) == SCHEDULES
    for schedule in there["schedules"]:
        assert schedule["scheduleState"]["status"] == "RUNNING"
        assert schedule["futureTicks"]["results"], schedule
    for job in jobs:
        schema = ui.ask(LAUNCHPAD, job={**PLACE, "pipelineName": job})["runConfigSchemaOrError"]
        assert schema["__typename"] == "RunConfigSchema", job


def test_one_run_loads_both_tables_and_checks_them(ui):
    run = ui.finished(ui.launch(assets=["table/flights", "table/gates"]))
    assert run.status == "SUCCESS", run.error
    assert {name: (figures["rows"], figures["lag"]) for name, figures in run.loaded.items()} == {
        "table/flights": (2 * DAYS, 0),
        "table/gates": (DAYS, 0),
    }
    assert run.loaded["table/flights"]["dead letters"] == 1
    assert all(run.checks.values()), run.checks
    assert ("table/flights", "load_completeness") in run.checks


@pytest.mark.broker_errors(
    r"flights\.json: a schema is a JSON object: ",
    r"dagster - ERROR - .* failed: \['millrace_load_tables'\]. Not executing",
)
def test_a_failing_load_stops_no_other_and_a_re_execution_does_only_what_failed(platform, ui):
    write_definitions(platform.directory, "cluster/flights.json", "{")
    with Cluster(platform.addresses.broker) as cluster:
        send_days(SyncProducer(cluster))
        failed_id = ui.launch(assets=["table/flights", "table/gates"])
        failed = ui.finished(failed_id)
        assert failed.status == "FAILURE"
        assert "millrace/table/flights: " in failed.error
        assert "flights.json: a schema is a JSON object: Expecting property name" in failed.error
        assert json.loads(failed.tags[FAILED_TABLES]) == ["millrace/table/flights"]
        assert {name: figures["rows"] for name, figures in failed.loaded.items()} == {"table/gates": DAYS}
        assert ui.checked("table/gates")["load_completeness"] == "SUCCEEDED"
        send_days(SyncProducer(cluster))

    write_schema(platform.directory, nullable=True)
    again = ui.finished(ui.launch_again(failed_id))
    assert again.status == "SUCCESS", again.error
    assert (again.tags[PARENT_RUN], again.tags[FROM_FAILURE]) == (failed_id, "true")
    assert {name: figures["rows"] for name, figures in again.loaded.items()} == {"table/flights": 2 * (2 * DAYS + 1)}
    assert {asset for asset, _ in again.checks} == {"table/flights"}
    assert all(again.checks.values()), again.checks
    assert ui.checked("table/gates")["load_completeness"] == "SUCCEEDED"


def test_a_range_of_days_is_one_run_and_one_reload_of_these_days(ui, table):
    """The days begin with the topic's first record, once the sensor has seen it, which has the definitions reloaded."""
    key = asset_key("reload/flights")
    begins = FIRST_DAY.isoformat()
    await_it(lambda: ui.ask(DAYS_TO_RELOAD, key=key)["assetNodeOrError"]["partitionKeys"][0] == begins)
    chosen = [(FIRST_DAY + timedelta(days=day)).isoformat() for day in (1, 2, 3)]
    parameters = {"assetSelection": [asset_key("reload/flights")], "partitionNames": chosen, "tags": []}
    backfill = ui.ask(BACKFILL, parameters=parameters)["launchPartitionBackfill"]
    assert backfill["__typename"] == "LaunchBackfillSuccess", backfill

    [run_id] = ui.backfilled(backfill["backfillId"])
    run = ui.run(run_id)
    assert run.tags["dagster/asset_partition_range_start"] == chosen[0]
    assert run.tags["dagster/asset_partition_range_end"] == chosen[-1]
    reloaded = run.loaded["reload/flights"]
    assert (reloaded["removed rows"], reloaded["rows"]) == (2 * 3, 2 * 3)
    assert reloaded["dagster/row_count"] == 3 * 2 * DAYS + 2
    assert audit(table("flights")) == []
    assert ui.checked("table/flights") == dict.fromkeys(TABLE_CHECKS, "SUCCEEDED")


def test_jobs_reload_replay_and_erase(ui, table):
    days = {"topics": ["flights"], "from_time": "2026-03-01", "until_time": "2026-03-02"}
    before = read_ledger(table("flights"))
    dry = ui.mended("reload", "reload_range", {**days, "dry_run": True})
    assert dry.observed["table/flights"] == {"offsets to reload": 2, "rows to remove": 2}
    assert dry.loaded == {}
    wet = ui.mended("reload", "reload_range", days).loaded["table/flights"]
    assert (wet["removed rows"], wet["rows"]) == (2, 2)
    assert read_ledger(table("flights")) == before

    replayed = ui.mended("replay", "replay_letters", {"topics": ["flights"]}).loaded["table/flights"]
    assert (replayed["letters replayed"], replayed["dead letters that wait"]) == (1, 0)

    keys = {"topics": ["flights"], "keys": ["UA"], "key_format": "text", "vacuum": True}
    erased = ui.mended("erase", "erase_keys", keys).loaded["table/flights"]
    assert (erased["rows erased"], erased["dagster/row_count"]) == (3 * DAYS, 3 * (DAYS + 1))
    assert erased["files removed"] > 0
    assert ui.checked("table/flights") == dict.fromkeys(TABLE_CHECKS, "SUCCEEDED")


def test_a_sensor_and_a_schedule_are_toggled(ui):
    sensor, schedule = {**PLACE, "sensorName": "new_records_millrace"}, {**PLACE, "scheduleName": LOAD_SCHEDULE}

    def sensor_state():
        return ui.ask(SENSOR, of=sensor)["sensorOrError"]["sensorState"]

    ui.ask(START_SENSOR, of=sensor)
    tick = await_it(lambda: next((one for one in sensor_state()["ticks"] if one["status"] != "STARTED"), None))
    assert (tick["status"], tick["skipReason"]) == ("SKIPPED", "1 topic: 1 up to date")
    ui.ask(STOP_SENSOR, id=sensor_state()["id"])
    assert sensor_state()["status"] == "STOPPED"

    ui.ask(STOP_SCHEDULE, id=ui.schedule(LOAD_SCHEDULE)["id"])
    assert ui.schedule(LOAD_SCHEDULE)["status"] == "STOPPED"
    ui.ask(START_SCHEDULE, of=schedule)
    assert ui.schedule(LOAD_SCHEDULE)["status"] == "RUNNING"
