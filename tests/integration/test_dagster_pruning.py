"""Old runs go with all that they have written, and no asset or check forgets its newest state."""

import os
import sqlite3
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.compute_log_manager import ComputeIOType

from millrace_ops.supervisor.dagster_instance import write_instance
from millrace_pipelines.defs.instance import prune_runs


@dg.asset(check_specs=[dg.AssetCheckSpec("sound", asset="table")])
def table():
    """Stands for a table and its check."""
    sys.stdout.write("into the logs of the run")
    return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True)])


@dg.asset(partitions_def=dg.StaticPartitionsDefinition(["one", "two"]))
def days():
    """Stands for an asset with partitions."""


@dg.op
def observe(context):
    """Stands for a load that finds nothing new."""
    context.log_event(dg.AssetObservation("topic"))


@dg.job(executor_def=dg.in_process_executor)
def observing():
    """Observes, and materializes nothing."""
    observe()


@pytest.fixture
def home(tmp_path):
    write_instance(str(tmp_path / "dagster"), 4266, 4267)
    return tmp_path / "dagster"


def run_of(instance, asset, partition=None):
    job = dg.define_asset_job("job", [asset], executor_def=dg.in_process_executor)
    resolved = dg.Definitions(assets=[asset], jobs=[job]).resolve_job_def("job")
    return resolved.execute_in_process(instance=instance, partition_key=partition).run_id


def prune(instance, **config):
    result = prune_runs.execute_in_process(
        instance=instance, run_config={"ops": {"remove_old_runs": {"config": config}}}
    )
    assert result.success
    return result.run_id


def snapshots(home):
    with sqlite3.connect(home / "storage/history/runs.db") as connection:
        return {one for (one,) in connection.execute("SELECT snapshot_id FROM snapshots")}


def check_results(home):
    with sqlite3.connect(home / "storage/history/runs/index.db") as connection:
        return [run_id for (run_id,) in connection.execute("SELECT run_id FROM asset_check_executions")]


def test_what_is_newest_stays_and_the_rest_goes(home):
    with dg.DagsterInstance.from_config(str(home)) as instance:
        observed = observing.execute_in_process(instance=instance).run_id
        partitions = {name: run_of(instance, days, name) for name in ("one", "two")}
        gone = [run_of(instance, table), run_of(instance, days, "one"), run_of(instance, table)]
        partitions["one"] = run_of(instance, days, "one")
        newest = run_of(instance, table)

        before = {*instance.get_run_ids()}
        dry = prune(instance, keep_runs=2, dry_run=True)
        assert {*instance.get_run_ids()} == before | {dry}
        pruning = prune(instance, keep_runs=1)

        stays = {observed, *partitions.values(), newest, dry, pruning}
        assert {*instance.get_run_ids()} == stays
        assert not stays & {*gone}
        files = home / "storage/history/runs"
        assert {path.stem for path in files.glob("*.db")} == stays | {"index"}
        assert not {path.name for path in Path(home, "storage").iterdir()} & {*gone}
        assert check_results(home) == [newest]

        assert instance.get_latest_materialization_event(table.key).run_id == newest
        assert instance.get_materialized_partitions(days.key) == {"one", "two"}
        assert instance.fetch_observations(dg.AssetKey("topic"), limit=9).records[0].run_id == observed
        for run in instance.get_runs():
            assert instance.get_job_snapshot(run.job_snapshot_id).name == run.job_name
            assert instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id).steps
        assert prune(instance, keep_runs=1000)
        assert stays <= {*instance.get_run_ids()}


def test_old_logs_of_ticks_go(home):
    with dg.DagsterInstance.from_config(str(home)) as instance:
        run = run_of(instance, table)
        for tick in ("1", "2"):
            key = ["repository", "topics", tick]
            with instance.compute_log_manager.open_log_stream(key, ComputeIOType.STDERR) as log:
                log.write("a topic is left out")
        old, new = (home / "storage" / "repository" / "topics" / f"{tick}.err" for tick in ("1", "2"))
        for path in (old, *(home / "storage" / run / "compute_logs").iterdir()):
            os.utime(path, (0, 0))
        logs_of_run = sorted((home / "storage" / run).rglob("*"))
        prune(instance)
        assert (old.exists(), new.exists()) == (False, True)
        assert sorted((home / "storage" / run).rglob("*")) == logs_of_run


def test_the_snapshots_of_a_job_go_with_the_last_of_its_runs(home):
    with dg.DagsterInstance.from_config(str(home)) as instance:
        observing.execute_in_process(instance=instance)
        again = observing.execute_in_process(instance=instance)  # the newest observation keeps this run
        only_days = instance.get_run_by_id(run_of(instance, days, "one"))
        gone = instance.get_run_by_id(run_of(instance, days, "one"))
        run_of(instance, table)
        prune(instance, keep_runs=1000)
        assert {gone.job_snapshot_id, gone.execution_plan_snapshot_id} <= snapshots(home)

        instance.delete_run(gone.run_id)
        prune(instance, keep_runs=1000)
        assert {only_days.job_snapshot_id, only_days.execution_plan_snapshot_id} <= snapshots(home)
        instance.delete_run(only_days.run_id)
        before = snapshots(home)
        prune(instance, keep_runs=1000)
        assert before - snapshots(home) == {only_days.job_snapshot_id, only_days.execution_plan_snapshot_id}
        assert instance.get_job_snapshot(again.dagster_run.job_snapshot_id).name == "observing"
