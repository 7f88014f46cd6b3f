"""Tables in Iceberg's format that are declared: Dagster loads, checks and keeps them, and so does a load by hand."""

import json
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
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_support.declared import cluster_of, definitions_of
from millrace_support.iceberg_tables import other_engine

pytestmark = pytest.mark.usefixtures("warm_loads")

EVENTS = dg.AssetKey(["millrace", "table", "events"])
UPKEEP = dg.AssetKey(["millrace", "table_upkeep"])
FS = OsFileSystem()


@pytest.fixture
def declared(broker, tmp_path, monkeypatch):
    """A declaration of a table of an embedded catalog, without a warehouse."""
    monkeypatch.delenv("MILLRACE_WAREHOUSE_DIR", raising=False)
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 1)
        SyncProducer(cluster).send("events", 0, [NewRecord(b"v")] * 3)
    return {
        "bootstrap": broker.bootstrap,
        "format": "iceberg",
        "catalog": f"{tmp_path}/lake",
        "master": "local[1,3]",
        "tables": [{"topic": "events"}],
    }


@pytest.fixture
def address(tmp_path):
    return f"iceberg:{tmp_path}/lake/millrace.events"


def materialized(declared, *keys):
    """Returns the metadata of a run's materializations, by the last part of the asset's key."""
    millrace = MillraceComponent(ClusterDeclaration.model_validate(declared)).resource()
    definitions = definitions_of(cluster_of(yaml.safe_dump(declared), "events"), millrace)
    job = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={*keys})
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(instance=instance, resources={"millrace": millrace}, raise_on_error=False)
        assert result.success, [event.message for event in result.all_events if event.is_failure]
        made = [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]
    return {one.asset_key.path[-1]: one.metadata for one in made}


def test_dagster_loads_and_keeps_tables_and_shows_their_snapshots(declared, address):
    shown = materialized(declared, EVENTS)["events"]
    table = load_table(address, FS)
    assert ledger_of(table).next_offset(0) == 3
    assert shown["snapshot id"].value == str(other_engine(address).current_snapshot().snapshot_id)
    assert shown["dagster/storage_kind"].value == "iceberg"
    assert shown["dagster/table_name"].value == "millrace.events"
    assert shown["table address"].value == address
    kept = materialized(declared, UPKEEP)["table_upkeep"]
    assert [row.data["table"] for row in kept["tables"].records] == [address, dead_letters_dir(address)]


def test_a_load_by_hand_reads_the_same_file(declared, address, tmp_path):
    file = tmp_path / "defs.yaml"
    command = [sys.executable, "-m", "millrace_ops", "warehouse", "load", "--defs", str(file), "--json"]

    def load(attributes):
        file.write_text(yaml.safe_dump({"type": "millrace_pipelines.MillraceComponent", "attributes": attributes}))
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=400, cwd=tmp_path)

    result = load(declared)
    assert result.returncode == 0, result.stderr[-4000:]
    assert [one["rows"] for one in json.loads(result.stdout)] == [3]
    assert ledger_of(load_table(address, FS)).next_offset(0) == 3
    result = load({**declared, "catalog": "nobodys"})
    assert result.returncode != 0
    assert "nobodys: PyIceberg's configuration has no such catalog; it has none" in result.stderr
    result = load({**declared, "format": "delta"})
    assert result.returncode != 0
    assert "a catalog is for tables with format: iceberg" in result.stderr
