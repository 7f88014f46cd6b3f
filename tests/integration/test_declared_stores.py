"""Options of stores in a file of declarations: loads of Dagster and by hand reach the bucket, no secret is shown."""

import json
import os
import subprocess
import sys

import dagster as dg
import pytest
import yaml

from millrace.client import Admin, Cluster, SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace_pipelines.declaration.attributes import ClusterDeclaration
from millrace_pipelines.definitions import MillraceComponent
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.stores.options import store_options, use_store_options
from millrace_support.declared import cluster_of, definitions_of
from millrace_support.stores.stand_ins import SECRET, moto

pytestmark = pytest.mark.usefixtures("warm_loads")

VARIABLE = "SECRET_OF_THE_LAKE"
EVENTS = dg.AssetKey(["millrace", "table", "events"])
FS = OsFileSystem()


@pytest.fixture(scope="module")
def store():
    with moto() as running:
        yield running


@pytest.fixture
def declaration(store, broker, monkeypatch):
    """A declaration of a table in the bucket, with the secret's variable."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv(VARIABLE, SECRET)
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 1)
        SyncProducer(cluster).send("events", 0, [NewRecord(b"v")] * 3)
    yield {
        "bootstrap": broker.bootstrap,
        "stores": {store.address: store.options | {"aws_secret_access_key": f"env:{VARIABLE}"}},
        "tables": [{"topic": "events"}],
    }
    use_store_options(None)


def loaded(location):
    """The offsets that a table in the bucket has, read with the options that this process was given."""
    return ledger_of(Table.load(location, FS)).next_offset(0)


def test_dagster_loads_and_keeps_no_secret(store, declaration):
    declared = {**declaration, "warehouse": f"{store.address}/dagster", "master": "local[1,3]"}
    millrace = MillraceComponent(ClusterDeclaration.model_validate(declared)).resource()
    definitions = definitions_of(cluster_of(yaml.safe_dump(declared), "events"), millrace)
    job = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={EVENTS})
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(instance=instance, resources={"millrace": millrace})
        kept = [str(entry) for entry in instance.all_logs(result.run_id)] + [str(millrace.model_dump())]
        [run] = instance.get_run_records()
    assert loaded(f"{store.address}/dagster/events") == 3
    assert f"env:{VARIABLE}" in kept[-1]
    assert SECRET not in "".join([*kept, str(run), repr(store_options())])


def test_a_load_by_hand_reads_the_same_file(store, declaration, tmp_path):
    declared = {**declaration, "warehouse": f"{store.address}/by-hand"}
    file = tmp_path / "defs.yaml"
    file.write_text(yaml.safe_dump({"type": "millrace_pipelines.MillraceComponent", "attributes": declared}))
    command = [sys.executable, "-m", "millrace_ops", "warehouse", "load", "--defs", str(file), "--json"]
    how = {"capture_output": True, "text": True, "timeout": 400, "cwd": tmp_path}
    result = subprocess.run([*command, "--master", "local[1,3]"], check=False, **how)
    assert result.returncode == 0, result.stderr[-4000:]
    assert [one["rows"] for one in json.loads(result.stdout)] == [3]
    assert SECRET not in result.stdout + result.stderr
    use_store_options({store.address: store.options})
    assert loaded(f"{store.address}/by-hand/events") == 3

    unset = {name: value for name, value in os.environ.items() if name != VARIABLE}
    refused = subprocess.run(command, check=False, env=unset, **how)
    assert refused.returncode != 0
    assert f"{store.address}: aws_secret_access_key: the environment variable {VARIABLE} is not set" in refused.stderr
