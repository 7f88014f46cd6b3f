"""What is not declared comes from the environment of the process in which a step begins, not while definitions load."""

import dagster as dg
import pytest

from millrace_pipelines.defs.downstream import ConsumerGroupResource
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.warehouse.tasks import THREADS

VARIABLES = {
    "MILLRACE_CLIENT_CONFIG": "client.properties",
    "MILLRACE_ADMIN_URL": "http://a:1",
    "MILLRACE_SCHEMA_DIR": "/schemas",
    "MILLRACE_SPARK_MASTER": "local[2]",
    "MILLRACE_DAGSTER_URL": "http://d:1",
    "MILLRACE_ZOOKEEPER": "z:1",
}


def millrace(**declared):
    fields = {"admin_url": "", "schema_dir": "", "master": ""} | declared
    return MillraceResource(bootstrap="b:1", warehouse_dir="/w", **fields)


def in_a_step(resource):
    """Returns a resource as a step sees it."""
    seen = []

    @dg.op(required_resource_keys={"one"})
    def look(context):
        seen.append(context.resources.one)

    @dg.job(resource_defs={"one": resource})
    def job():
        look()

    assert job.execute_in_process().success
    return seen[0]


@pytest.fixture
def environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def is_set():
        for name, value in VARIABLES.items():
            monkeypatch.setenv(name, value)

    return is_set


def test_what_is_declared_stays(environment):
    environment()
    seen = in_a_step(millrace(admin_url="http://b:2", master="local[1]"))
    assert (seen.admin_url, seen.master, seen.schema_dir) == ("http://b:2", "local[1]", "/schemas")


def test_what_is_not_declared_is_read_when_the_step_begins(environment):
    seen = in_a_step(millrace())
    assert (seen.client_config, seen.admin_url, seen.schema_dir, seen.master, seen.dagster_url) == ("",) * 5
    environment()
    seen = in_a_step(millrace())
    assert isinstance(seen, MillraceResource)
    assert [seen.client_config, seen.admin_url, seen.schema_dir, seen.master, seen.dagster_url] == [
        *VARIABLES.values()
    ][:5]


def test_groups_are_where_the_environment_says(environment):
    groups = ConsumerGroupResource(zookeeper="", bootstrap="b:1", output_dir="/w")
    environment()
    seen = in_a_step(groups)
    assert (seen.zookeeper, seen.client_config) == ("z:1", "client.properties")


@pytest.mark.parametrize("master", ["", "local", "local[2,3]"])
def test_tables_are_rewritten_in_threads_where_the_master_has_no_executors(master):
    with millrace(master=master).tasks("upkeep") as tasks:
        assert tasks is THREADS
