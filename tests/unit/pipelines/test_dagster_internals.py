"""What Millrace relies on of Dagster beside its public interface; what a release lacks of it fails here, by name."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

from millrace_pipelines import dagster_internals
from millrace_pipelines.dagster_internals import runs, storage

ROOT = Path(__file__).parents[3]
SOURCES = [path for root in ("platform", "broker", "pipelines", "ops") for path in (ROOT / root).rglob("*.py")]
PARAMETERS = {
    # A function, or a class that is called: the parameters that Millrace gives.
    "CheckRunHealthResult": {"status", "msg"},
    "DagsterSqliteStorage": {"base_dir", "inst_data"},
    "SqliteEventLogStorage": {"base_dir"},
    "capture_interrupts": set(),
    "core_execute_run": {"recon_job", "dagster_run", "instance", "inject_env_vars"},
    "recon_job_from_origin": {"origin"},
}
FIELDS = {"AssetCheckEvaluationTargetMaterializationData": {"storage_id", "run_id", "timestamp"}}
MEMBERS = {
    # A class whose instances Millrace gets, or from which it derives: what they have.
    "ConfigurableClass": {"inst_data", "config_type", "from_config_value"},
    "DefinitionsLoadContext": {"get", "load_type", "reconstruction_metadata", "add_to_pending_reconstruction_metadata"},
    "DefinitionsLoadType": {"RECONSTRUCTION"},
    "DagsterSqliteStorage": {"from_local"},
    "LaunchRunContext": {"dagster_run"},
    "ReconstructableRepository": {"get_definition", "get_reconstructable_job"},
    "RunLauncher": {
        "launch_run", "terminate", "supports_check_run_worker_health", "check_run_worker_health", "_instance",
    },
    "SqlEventLogStorage": {"index_connection"},
    "SqlRunStorage": {"connect"},
    "SqliteEventLogStorage": {
        "_connect", "conn_string_for_shard", "dispose", "path_for_shard", "store_event",
    },
    "WorkerStatus": {"RUNNING", "NOT_FOUND"},
}  # fmt: skip
COLUMNS = {
    "AssetCheckExecutionsTable": {"id", "asset_key", "check_name", "partition", "run_id"},
    "RunsTable": {"snapshot_id"},
    "SnapshotsTable": {"snapshot_id"},
}
CONSTANTS = {"INDEX_SHARD_NAME": str, "SQLITE_BUSY_TIMEOUT_SECONDS": int, "IMPORTED_LATE": tuple}
ERRORS = {"DagsterUserCodeProcessError", "DagsterUserCodeUnreachableError", "ConfigurableClassData"}


RELIED_ON = {name: getattr(part, name) for part in (dagster_internals, runs, storage) for name in part.__all__}


def test_everything_that_is_relied_on_is_looked_at_here():
    assert {*RELIED_ON} == {*PARAMETERS, *FIELDS, *MEMBERS, *COLUMNS, *CONSTANTS, *ERRORS}


@pytest.mark.parametrize("name", PARAMETERS)
def test_it_takes_what_it_is_given(name):
    assert PARAMETERS[name] <= {*inspect.signature(RELIED_ON[name]).parameters}


@pytest.mark.parametrize("name", FIELDS)
def test_a_record_has_the_fields_that_it_is_given(name):
    assert FIELDS[name] <= {*RELIED_ON[name].__annotations__}


@pytest.mark.parametrize("name", MEMBERS)
def test_it_has_what_is_used_or_replaced(name):
    assert [member for member in MEMBERS[name] if not hasattr(RELIED_ON[name], member)] == []


@pytest.mark.parametrize("name", COLUMNS)
def test_a_table_has_the_columns_that_are_asked_for(name):
    assert COLUMNS[name] <= {*RELIED_ON[name].columns.keys()}


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_is_of_its_type(name):
    assert isinstance(RELIED_ON[name], CONSTANTS[name])


@pytest.mark.parametrize("name", runs.IMPORTED_LATE)
def test_a_module_that_runs_need_can_be_imported_before(name):
    assert importlib.import_module(name)


def test_no_other_module_names_what_is_not_public():
    private = re.compile(r"\bdagster\._")
    naming = {path.parent.name for path in SOURCES if private.search(path.read_text(encoding="utf-8"))}
    assert naming == {"dagster_internals"}
