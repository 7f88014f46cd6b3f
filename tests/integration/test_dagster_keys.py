"""A new topic whose name Dagster holds equal to another's: the other one keeps its keys, history and checks."""

import dagster as dg
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace_pipelines.declaration.attributes import Check
from millrace_pipelines.defs.alert_sensor import alerts_sensor
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.warehouse.tables.query import query
from millrace_support.dagster_checks import counts_now
from millrace_support.declared import LOAD_ALL, cluster_of, definitions_of, ticked

pytestmark = pytest.mark.usefixtures("warm_loads")

OLD, NEW = "shop.orders", "shop-orders"
DECLARED = f"{LOAD_ALL}\ntables: [{{topic: {OLD}, partitions: 1}}, {{topic: {NEW}, partitions: 1}}]"


def table(topic):
    return dg.AssetKey(["millrace", "table", topic])


def run(instance, millrace, cluster, *topics):
    job = definitions_of(cluster, millrace).resolve_implicit_global_asset_job_def()
    keys = {table(topic) for topic in topics}
    checks = {key for key in job.asset_layer.asset_graph.asset_check_keys if key.asset_key.path[-1] in topics}
    selected = job.get_subset(asset_selection=keys, asset_check_selection=checks)
    return selected.execute_in_process(instance=instance, resources={"millrace": millrace}, raise_on_error=False)


def materialized(instance, topic):
    return len(instance.fetch_materializations(table(topic), limit=10).records)


def test_a_topic_keeps_its_history_when_one_with_a_similar_name_comes(broker, tmp_path):
    millrace = MillraceResource(
        bootstrap=broker.bootstrap, admin_url="", warehouse_dir=str(tmp_path), schema_dir="", master="local[1,3]"
    )
    with dg.DagsterInstance.ephemeral() as instance, Cluster(broker.bootstrap) as cluster:
        producer = SyncProducer(cluster)
        Admin(cluster).create_topic(OLD, 1)
        producer.send(OLD, 0, [NewRecord(b"{}")])
        before = cluster_of(f"{LOAD_ALL}\ntables: [{{topic: {OLD}, partitions: 1}}]", OLD)
        assert run(instance, millrace, before, OLD).success
        cursor = ticked(alerts_sensor(before, "http://127.0.0.1:1/"), instance, millrace).cursor

        Admin(cluster).create_topic(NEW, 1)
        after = cluster_of(DECLARED, OLD, NEW)
        assert materialized(instance, OLD) == 1
        assert counts_now(instance, table(OLD), Check.LOAD_COMPLETENESS.value)
        alerts = ticked(alerts_sensor(after, "http://127.0.0.1:1/"), instance, millrace, cursor)
        assert alerts.skip_reason.skip_message == "0 alerts sent"

        producer.send(OLD, 0, [NewRecord(b"{}")])
        producer.send(NEW, 0, [NewRecord(b"{}")])
        assert run(instance, millrace, after, OLD, NEW).success
        assert (materialized(instance, OLD), materialized(instance, NEW)) == (2, 1)
        assert {key.path[-1] for key in instance.all_asset_keys()} == {OLD, NEW}


def test_columns_get_the_names_that_a_declaration_gives(broker, tmp_path):
    (tmp_path / "schema.json").write_text(
        '{"fields": [{"name": "timestamp", "type": "long"}, {"name": "in", "type": '
        '{"type": "struct", "fields": [{"name": "zip code", "type": "string"}]}}], "columns": {"in/zip code": "zip"}}'
    )
    declared = "tables: [{topic: shop, schema: schema.json, columns: {timestamp: sent_at}}]"
    cluster = cluster_of(declared, "shop", directory=str(tmp_path))
    millrace = MillraceResource(
        bootstrap=broker.bootstrap, admin_url="", warehouse_dir=str(tmp_path), schema_dir="", master="local[1,3]"
    )
    with dg.DagsterInstance.ephemeral() as instance, Cluster(broker.bootstrap) as client:
        Admin(client).create_topic("shop", 1)
        SyncProducer(client).send("shop", 0, [NewRecord(b'{"timestamp": 5, "in": {"zip code": "x"}}')])
        assert run(instance, millrace, cluster, "shop").success
        assert counts_now(instance, table("shop"), Check.SCHEMA_DRIFT.value)
    with query(str(tmp_path), 'SELECT sent_at, "in".zip AS zip FROM shop') as rows:
        assert rows.read_all().to_pylist() == [{"sent_at": 5, "zip": "x"}]
