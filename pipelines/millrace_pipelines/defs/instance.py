"""The job that keeps Dagster's instance small, and its schedule.

They belong to the instance and not to a cluster: a code location has them once. What sensors and schedules write to the
logs of their ticks stays when Dagster forgets the ticks, and goes here:

<storage>/<repository>/<sensor>/<tick>.err        beside <storage>/<run>/compute_logs/…, which belongs to runs
"""

# Without `from __future__ import annotations`: Dagster reads the annotations of steps and checks.

from pathlib import Path

import dagster as dg
from pydantic import Field

from millrace_pipelines.defs.ticks import FINISHED
from millrace_pipelines.machine import CLOCK

KEPT_DAYS = 7
DAY_S = 86_400
OF_RUNS = "compute_logs"
SUFFIXES = (".err", ".out", ".complete")
KEPT_RUNS = 1000  # a load with its checks takes about 330 kB, so these take about 330 MB


def remove_tick_logs(instance: dg.DagsterInstance, now_ms: int) -> int:
    """Removes log files of sensor and schedule ticks that are KEPT_DAYS old or older, and returns their number."""
    last_s = now_ms / 1000 - KEPT_DAYS * DAY_S
    storage = Path(instance.storage_directory())
    of_ticks = (path for path in storage.glob("*/*/*.*") if path.parent.name != OF_RUNS and path.suffix in SUFFIXES)
    old = [path for path in of_ticks if path.stat().st_mtime <= last_s]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)


class PruningConfig(dg.Config):
    """The configuration of a pruning: how many finished runs it keeps."""

    keep_runs: int = Field(default=KEPT_RUNS, ge=1, description="How many of the newest finished runs stay.")
    dry_run: bool = Field(default=False, description="Only say how many runs would be removed.")


@dg.op
def remove_old_runs(context: dg.OpExecutionContext, config: PruningConfig) -> None:
    """Removes finished runs but for the newest ones, and for those that an asset's newest event comes from."""
    from millrace_pipelines.defs.old_runs import (  # noqa: PLC0415  with SQLAlchemy, which nothing else needs
        forget_check_results,
        forget_snapshots,
        needed_runs,
        old_runs,
        remove_run,
    )

    instance = context.instance
    finished = instance.get_run_ids(dg.RunsFilter(statuses=FINISHED))
    old = old_runs(finished, needed_runs(instance), config.keep_runs) if len(finished) > config.keep_runs else []
    if config.dry_run:
        context.log.info("%d of %d finished runs would be removed", len(old), len(finished))
        return
    for run_id in old:
        remove_run(instance, run_id)
    forget_check_results(instance, old)
    ticks = remove_tick_logs(instance, CLOCK.now_ms())
    snapshots = forget_snapshots(instance)
    context.log.info(
        "%d of %d finished runs were removed, %d old logs of ticks, and %d snapshots of jobs that no run has",
        len(old), len(finished), ticks, snapshots,
    )  # fmt: skip


@dg.job(executor_def=dg.in_process_executor)
def prune_runs() -> None:
    """Removes old runs with their events and logs, so that the instance stays small."""
    remove_old_runs()


hourly_pruning = dg.ScheduleDefinition(
    name="hourly_pruning",
    job=prune_runs,
    cron_schedule="47 * * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Removes old runs every hour.",
)

instance_definitions = dg.Definitions(jobs=[prune_runs], schedules=[hourly_pruning])
