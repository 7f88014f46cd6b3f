"""The shape of a cluster's definitions: assets, lineage, groups, checks, jobs, sensors, schedules."""

from datetime import UTC, date, datetime
from pathlib import Path

import dagster as dg
import pytest

from millrace_pipelines.declaration.attributes import Check, TableDeclaration
from millrace_pipelines.defs.downstream import ConsumerGroupResource
from millrace_pipelines.defs.load_automation import schedule_names
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.table_checks import AFTER_EACH_LOAD, AT_NIGHT
from millrace_support.declared import LOAD_ALL, cluster_of, definitions_of

ROOT = Path(__file__).parents[4]
DECLARED = """
cluster: lake
tables:
  - {topic: flights, schema: flights.json, schedule: "*/15 * * * *", blocking_checks: [load_completeness, freshness]}
  - {topic: flights.delays, schedule: "*/15 * * * *", freshness: 1h, owners: ["team:data"], tags: {tier: gold}}
"""
MAINTENANCE = {"lake/retention", "lake/compaction", "lake/recovery_check", "lake/table_upkeep"}


def millrace():
    return MillraceResource(
        bootstrap=dg.EnvVar("MILLRACE_BOOTSTRAP"), admin_url="", warehouse_dir="", schema_dir="", master=""
    )


def consumer_groups():
    return ConsumerGroupResource(zookeeper="127.0.0.1:1", bootstrap="127.0.0.1:1", output_dir="")


@pytest.fixture(scope="module")
def defs():
    return definitions_of(cluster_of(DECLARED, "orders", has_admin=True), millrace())


@pytest.fixture(scope="module")
def graph(defs):
    return defs.resolve_asset_graph()


def test_everything_loads(defs):
    dg.Definitions.validate_loadable(defs)


def test_the_workspace_names_the_module():
    assert "module_name: millrace_pipelines.definitions\n" in (ROOT / "workspace.yaml").read_text()


def test_assets_and_what_they_are_made_from(graph):
    parents = {
        key.to_user_string(): {parent.to_user_string() for parent in graph.get(key).parent_keys}
        for key in graph.get_all_asset_keys()
    }
    assert parents == {
        "lake/topic/flights": set(),
        "lake/table/flights": {"lake/topic/flights"},
        "lake/dead_letters/flights": {"lake/table/flights"},
        "lake/reload/flights": set(),
        "lake/topic/flights.delays": set(),
        "lake/table/flights.delays": {"lake/topic/flights.delays"},
        "lake/reload/flights.delays": set(),
        "lake/topic/orders": set(),  # not declared, and shown
    } | {key: set() for key in MAINTENANCE}


def test_assets_lie_in_the_group_of_their_topics_name(graph):
    groups = {key.to_user_string(): graph.get(key).group_name for key in graph.get_all_asset_keys()}
    assert {groups[key] for key in groups if key.split("/")[1] in ("topic", "table", "dead_letters")} == {
        "flights", "orders",
    }  # fmt: skip
    assert {groups[key] for key in MAINTENANCE} == {"maintenance_lake"}
    assert groups["lake/reload/flights"] == "reload_lake"
    assert all(graph.get(key).description for key in graph.get_all_asset_keys())


def test_owners_and_tags_are_those_declared(graph):
    node = graph.get(dg.AssetKey(["lake", "table", "flights.delays"]))
    assert (node.owners, node.tags["tier"]) == (("team:data",), "gold")


def test_one_step_loads_all_tables(defs):
    """It has no retry policy, by which Dagster would retry a run that is cancelled: the step asks for retries."""
    [loads] = {defs.get_assets_def(dg.AssetKey(["lake", "table", topic])).op for topic in ("flights", "flights.delays")}
    assert (loads.name, loads.pool, loads.retry_policy) == ("lake_load_tables", "spark", None)


def test_checks_and_those_that_block(graph):
    names = {(key.asset_key.to_user_string(), key.name) for key in graph.asset_check_keys}
    tables = [f"lake/table/{topic}" for topic in ("flights", "flights.delays")]
    assert names == {("lake/recovery_check", "no_findings"), *((table, check) for table in tables for check in Check)}
    blocking = {(key.asset_key.path[-1], key.name) for key in graph.asset_check_keys if graph.get(key).blocking}
    assert blocking == {
        ("flights", "load_completeness"),
        ("flights", "freshness"),
        ("flights.delays", "load_completeness"),
    }


def test_assets_have_links_to_their_code(graph):
    for key in graph.materializable_asset_keys:
        [link] = graph.get(key).metadata["dagster/code_references"].code_references
        assert link.file_path.startswith(str(ROOT / "pipelines" / "millrace_pipelines" / "defs"))
        assert link.line_number > 1


def test_the_whole_table_is_audited_at_night_alone(defs):
    [audit] = [schedule.job_name for schedule in defs.schedules if schedule.name == "nightly_audit_lake"]
    for job, checks in {"load_lake": set(AFTER_EACH_LOAD), audit: set(AT_NIGHT)}.items():
        keys = defs.resolve_job_def(job).asset_layer.asset_graph.asset_check_keys
        assert {key.name for key in keys} == checks


def test_schedules_and_sensors_run(defs):
    status = {each.name: each.default_status.value for each in [*defs.sensors, *defs.schedules]}
    assert status == {
        "load_flights_lake": "RUNNING",  # one for both tables, whose schedule is the same
        "topics_lake": "RUNNING",
        "new_records_lake": "RUNNING",
        "table_history_lake": "RUNNING",
        "table_lag_lake": "RUNNING",
        "bounds_lake": "RUNNING",
        "hourly_retention_lake": "RUNNING",
        "hourly_compaction_lake": "RUNNING",
        "nightly_audit_lake": "RUNNING",
        "nightly_recovery_check_lake": "RUNNING",
        "nightly_table_upkeep_lake": "RUNNING",
    }


@pytest.mark.parametrize(
    ("cluster", "table", "status", "words"),
    [
        ("", "schedule: '@hourly'", "RUNNING", "The schedule @hourly (UTC) loads it."),
        ("", "lag_bound: 10000", "RUNNING", "loads it as soon as it lacks 10,000 records of the topic."),
        ("", "mode: append", "RUNNING", "The sensor new_records_lake loads it as soon as it lacks any record of"),
        ("load_new_records: false", "mode: append", "STOPPED", "_lake, once that is switched on, loads it as"),
    ],
)
def test_a_tables_page_says_what_loads_it(cluster, table, status, words):
    text = f"cluster: lake\ntables: [{{topic: orders, {table}}}]\n{cluster}"
    defs = definitions_of(cluster_of(text), millrace())
    assert defs.get_sensor_def("new_records_lake").default_status.value == status
    assert words in defs.resolve_asset_graph().get(dg.AssetKey(["lake", "table", "orders"])).description


def test_without_an_admin_endpoint_nothing_is_scheduled_that_needs_one(defs):
    """The assets keep their keys; their runs ask in the client protocol alone."""
    foreign = definitions_of(cluster_of(DECLARED, "orders"), millrace())
    graph, own = foreign.resolve_asset_graph(), defs.resolve_asset_graph()
    assert (graph.get_all_asset_keys(), graph.asset_check_keys) == (own.get_all_asset_keys(), own.asset_check_keys)
    observed = {"lake/retention", "lake/compaction"}
    steps = {foreign.get_assets_def(dg.AssetKey(key.split("/"))).op.name for key in observed}
    assert steps == {"lake__log_settings"}
    schedules = {each.name: each.job_name for each in foreign.schedules}
    assert schedules.keys() == {each.name for each in defs.schedules} - {
        *("hourly_retention_lake", "hourly_compaction_lake"),
    } | {"nightly_log_settings_lake"}
    keys = foreign.resolve_job_def(schedules["nightly_log_settings_lake"]).asset_layer.asset_graph.get_all_asset_keys()
    assert {key.to_user_string() for key in keys} == observed


@pytest.mark.parametrize(
    ("text", "environment", "has_admin"),
    [
        ("cluster: lake", {}, False),
        ("cluster: lake", {"has_admin": True}, True),
        ("admin_url: http://broker:9644", {}, True),
    ],
)
def test_an_admin_endpoint_is_declared_or_in_the_environment(text, environment, has_admin):
    assert cluster_of(text, **environment).has_admin is has_admin


NIGHTLY, HOURLY = "0 4 * * *", "0 * * * *"


@pytest.mark.parametrize(
    ("declared", "names"),
    [
        ([("flights", NIGHTLY)], {NIGHTLY: "load_flights"}),
        ([("flights", NIGHTLY), ("airports", NIGHTLY)], {NIGHTLY: "load_flights"}),
        ([("flights", None), ("airports", HOURLY)], {HOURLY: "load_airports"}),
        ([("shop.orders-eu", HOURLY)], {HOURLY: "load_shop_orders_eu"}),
        ([("orders-.*", HOURLY)], {HOURLY: "load_orders"}),
        ([(".*", HOURLY)], {HOURLY: "load"}),
        (
            [("shop.orders", HOURLY), ("shop_orders", NIGHTLY)],
            {HOURLY: "load_shop_orders_0d896317", NIGHTLY: "load_shop_orders_3a688484"},
        ),
    ],
)
def test_schedules_are_called_by_their_first_table(declared, names):
    tables = [
        TableDeclaration(**{"pattern" if "*" in name else "topic": name}, schedule=cron) for name, cron in declared
    ]
    assert schedule_names(tables) == names


def test_days_to_reload_begin_with_the_topics_first_record():
    first_days = {"flights": date(2026, 3, 1), "orders": date(2026, 5, 7)}

    def begin(declared=LOAD_ALL):
        cluster = cluster_of(declared, "flights", "orders", "empty", first_days=first_days)
        graph = definitions_of(cluster, millrace()).resolve_asset_graph()
        return {
            topic: graph.get(dg.AssetKey(["millrace", "reload", topic])).partitions_def.get_first_partition_key()
            for topic in ("flights", "orders", "empty")
        }

    today = datetime.now(UTC).date().isoformat()
    assert begin() == {"flights": "2026-03-01", "orders": "2026-05-07", "empty": today}
    assert set(begin(LOAD_ALL + "\nreload_since: 2025-01-01").values()) == {"2025-01-01"}


def test_two_clusters_have_nothing_in_common(defs):
    other = definitions_of(cluster_of(DECLARED.replace("lake", "sea"), "orders"), millrace())
    both = dg.Definitions.merge(defs, other)
    dg.Definitions.validate_loadable(both)
    keys = both.resolve_asset_graph().get_all_asset_keys()
    assert {key.path[0] for key in keys} == {"lake", "sea"}
    names = [one.name for one in (*both.sensors, *both.schedules, *both.jobs)]
    assert len(set(names)) == len(names)


def test_addresses_are_resolved_when_a_run_starts_and_a_missing_one_is_named(defs, monkeypatch):
    monkeypatch.delenv("MILLRACE_BOOTSTRAP", raising=False)
    job = defs.resolve_implicit_global_asset_job_def()
    with pytest.raises(dg.DagsterInvalidConfigError, match="MILLRACE_BOOTSTRAP"):
        job.execute_in_process(asset_selection=[dg.AssetKey(["lake", "retention"])])


def test_the_groups_of_a_zookeeper_have_a_check():
    defs = definitions_of(cluster_of("cluster: lake", has_zookeeper=True), millrace(), consumer_groups())
    checks = {(key.asset_key.to_user_string(), key.name) for key in defs.resolve_asset_graph().asset_check_keys}
    assert ("lake/consumer_groups", "one_live_owner") in checks
    assert "hourly_ownership_check_lake" in {schedule.name for schedule in defs.schedules}


def test_a_cluster_without_tables_has_its_topics_and_its_maintenance():
    graph = definitions_of(cluster_of("cluster: lake", "orders"), millrace()).resolve_asset_graph()
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == {"lake/topic/orders"} | MAINTENANCE


def test_topics_whose_names_dagster_holds_equal_have_assets_and_checks_of_their_own():
    names = ["shop.orders", "shop_orders", "shop-orders", "Shop.orders"]
    declared = "\n".join(["tables:", *(f"  - {{topic: {name}, partitions: 1}}" for name in names)])
    defs = definitions_of(cluster_of(declared), millrace())
    dg.Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    for name in names:
        keys = [dg.AssetKey(["millrace", kind, name]) for kind in ("topic", "table", "reload")]
        assert {*keys} <= graph.get_all_asset_keys()
        assert graph.get(keys[1]).parent_keys == {keys[0]}
        checks = {key.name for key in graph.asset_check_keys if key.asset_key == keys[1]}
        assert checks == {check.value for check in Check}
        assert dg.AssetCheckKey(keys[0], "as_declared") in graph.asset_check_keys
