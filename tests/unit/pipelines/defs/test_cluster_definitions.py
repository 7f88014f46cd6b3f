"""The definitions of a cluster as a whole."""

import warnings

import dagster as dg

from millrace_pipelines.defs.cluster import cluster_definitions
from millrace_pipelines.defs.downstream import ConsumerGroupResource
from millrace_pipelines.defs.resources import MillraceResource
from millrace_support.declared import cluster_of, definitions_of

NOWHERE = MillraceResource(bootstrap="127.0.0.1:1", admin_url="", warehouse_dir="/nowhere", schema_dir="", master="")
GROUPS = ConsumerGroupResource(zookeeper="127.0.0.1:1", bootstrap="127.0.0.1:1", output_dir="/nowhere")
DECLARED = """
undeclared_topics: load
tables:
  - {topic: flights, partitions: 2, schema: flights.json, schedule: "0 * * * *", freshness: 1h, tags: {a: b}}
  - {topic: airlines, lag_bound: 10, owners: [team:data]}
"""


def test_no_preview_of_dagster_is_used():
    with warnings.catch_warnings():
        warnings.simplefilter("error", dg.PreviewWarning)
        cluster = cluster_of(DECLARED, "orders", has_zookeeper=True)
        definitions_of(cluster, NOWHERE, GROUPS).get_repository_def()


def test_alerts_are_there_where_a_webhook_is(tmp_path):
    cluster = cluster_of("cluster: eu")
    without = cluster_definitions(cluster, {"eu": NOWHERE}, tmp_path)
    told = cluster_definitions(cluster, {"eu": NOWHERE}, tmp_path, "http://127.0.0.1:1/secret")
    assert not without.get_repository_def().has_sensor_def("alerts_eu")
    sensor = told.get_repository_def().get_sensor_def("alerts_eu")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
