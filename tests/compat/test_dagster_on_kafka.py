"""Dagster beside a secured Apache Kafka: what is declared loads by itself, and no scheduled run fails."""

import sys

import dagster as dg
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.security.client_security import ClientSecurity
from millrace_benchmarks.kafka_broker import find_kafka
from millrace_pipelines.definitions import load_project, refresh_project
from millrace_pipelines.project import make_project, write_definitions
from millrace_support.declared import ticked
from millrace_support.secured_kafka import SecuredKafka

RECORDS = 40
DEFINITIONS = """
type: millrace_pipelines.MillraceComponent
attributes:
  bootstrap: {bootstrap}
  client_config: {client_config}
  warehouse: {warehouse}
  tables:
    - topic: orders
      schedule: "*/15 * * * *"
      freshness: 1d
    - topic: parcels
      config: {{retention.ms: 86400000}}
"""
OTHERS = ("users", "users-archive")


@pytest.fixture(scope="module", params=["3.9", "4.1"])
def kafka(request, tmp_path_factory):
    zookeeper = request.getfixturevalue("zookeeper").address + "/dagster" if request.param == "3.9" else None
    with SecuredKafka(find_kafka(request.param), tmp_path_factory.mktemp("kafka"), zookeeper) as started:
        security = ClientSecurity.from_properties(started.passwords("PLAIN"))
        with Cluster(started.address("PASSWORDS"), security=security) as cluster:
            for topic in ("orders", "parcels", *OTHERS):
                Admin(cluster).create_topic(topic, 2, config={"cleanup.policy": "compact"} if topic in OTHERS else {})
                for partition in (0, 1):
                    for number in range(RECORDS // 2):
                        SyncProducer(cluster).send(topic, partition, [NewRecord(b"%d" % number, b"key")])
        yield started


@pytest.fixture(scope="module")
def defs(kafka, tmp_path_factory, warm_loads):
    """The definitions of a project that names the cluster, and neither an admin endpoint nor a ZooKeeper."""
    folder = tmp_path_factory.mktemp("project")
    declared = DEFINITIONS.format(
        bootstrap=kafka.address("PASSWORDS"),
        client_config=kafka.file(kafka.passwords("SCRAM-SHA-512")),
        warehouse=folder / "warehouse",
    )
    write_definitions(str(folder), "kafka/defs.yaml", declared)
    make_project(str(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.path", sys.path[:])
        patch.setenv("MILLRACE_SPARK_MASTER", "local[1,3]")
        for name in ("MILLRACE_ADMIN_URL", "MILLRACE_ZOOKEEPER", "MILLRACE_BOOTSTRAP", "MILLRACE_WAREHOUSE_DIR"):
            patch.delenv(name, raising=False)
        for name in [name for name in sys.modules if name.split(".")[0] == "defs"]:
            patch.delitem(sys.modules, name)
        refresh_project(str(folder))
        yield load_project(str(folder))


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("dagster"))) as instance:
        yield instance


def said(defs, instance, name):
    """What a tick of a sensor answers."""
    millrace = defs.resources["millrace"].create_resource(dg.build_init_resource_context())
    [sensor] = [one for one in defs.sensors if one.name == name]
    return ticked(sensor, instance, millrace)


def test_its_topics_have_assets_and_their_offsets_are_reported(defs, instance):
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    assert {f"millrace/topic/{topic}" for topic in ("orders", "parcels", *OTHERS)} <= keys
    looked = said(defs, instance, "topics_millrace")
    assert looked.skip_reason.skip_message.startswith("4 topics, 4 moved")
    records = {event.asset_key.path[-1]: event.metadata["records"].value for event in looked.asset_events
               if isinstance(event, dg.AssetMaterialization)}  # fmt: skip
    assert records == dict.fromkeys(("orders", "parcels", *OTHERS), RECORDS)


def test_a_table_without_a_schedule_is_loaded_by_the_sensor(defs, instance):
    [request] = said(defs, instance, "new_records_millrace").run_requests
    assert [key.to_user_string() for key in request.asset_selection] == ["millrace/table/parcels"]
    job = defs.resolve_implicit_global_asset_job_def()
    done = job.execute_in_process(instance=instance, asset_selection=request.asset_selection)
    [loaded] = done.asset_materializations_for_node("millrace_load_tables")
    assert loaded.metadata["dagster/row_count"].value == RECORDS


@pytest.mark.timeout(600)
def test_no_scheduled_run_fails(defs, instance):
    failed = {}
    checks = {}
    for schedule in defs.schedules:
        done = defs.resolve_job_def(schedule.job_name).execute_in_process(instance=instance, raise_on_error=False)
        if not done.success:
            failed[schedule.name] = [event.event_specific_data for event in done.get_step_failure_events()]
        checks |= {(one.asset_key.path[-1], one.check_name): one.passed for one in done.get_asset_check_evaluations()}
    assert failed == {}
    assert checks["recovery_check", "no_findings"]
    # parcels is not as it is declared, and that is what its check is for
    assert [check for check, passed in checks.items() if not passed] == [("parcels", "as_declared")]
    observed = {name: instance.fetch_observations(dg.AssetKey(["millrace", name]), 1).records[0].asset_observation
                for name in ("retention", "compaction")}  # fmt: skip
    rows = {record.data["topic"]: record.data for record in observed["compaction"].metadata["topics"].records}
    assert {topic: row["cleanup.policy"] for topic, row in rows.items()} == {
        **dict.fromkeys(("orders", "parcels"), "delete"),
        **dict.fromkeys(OTHERS, "compact"),
    }
    assert all(row["oldest record"] and row["records"] == RECORDS for row in rows.values())


def test_a_flipped_bit_in_kafkas_log_is_a_finding(kafka, defs, instance):
    [log] = kafka.broker.data_dir.rglob(f"orders-1/{0:020}.log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 0xFF
    log.write_bytes(data)
    job = defs.resolve_implicit_global_asset_job_def()
    config = {"ops": {"millrace__recovery_check": {"config": {"whole": True}}}}
    key = dg.AssetKey(["millrace", "recovery_check"])
    done = job.execute_in_process(instance=instance, asset_selection=[key], run_config=config)
    [check] = done.get_asset_check_evaluations()
    assert not check.passed
    assert f"`orders-1` at offset {RECORDS // 2 - 1}: CRC-32C" in check.metadata["findings"].value
