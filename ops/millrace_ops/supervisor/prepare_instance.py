"""Prepares what the Dagster instance at DAGSTER_HOME and the project store, before Dagster's processes start.

    python -m millrace_ops.supervisor.prepare_instance

Where the parts of Dagster are on several machines, it is run before the code server starts (docs/deploy.md): with
Dagster's default launcher, too, a run is a process of the code server's machine, and none outlives it. Runs that are
elsewhere, as Jobs of Kubernetes are, have their own monitor.

This is a process by itself, so that `millrace up` does not keep Dagster's modules, a hundred megabytes, in its memory.
"""

from __future__ import annotations

import os
import sys

import dagster as dg
from sqlalchemy.exc import OperationalError

from millrace.errors import SetupError
from millrace_pipelines.definitions import refresh_project
from millrace_pipelines.project import PROJECT_DIR

POOLS = ("spark",)
LAUNCHERS_HERE = {"DefaultRunLauncher", "ForkingRunLauncher"}
"""The launchers whose runs are processes that end with what is about to start."""
UNDER_WAY = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def limit_pools(instance: dg.DagsterInstance) -> None:
    """Sets the instance's limit for the pools that the definitions name, unless they have one.

    Dagster's run queue sets the limits too, but only after it has let through all runs that it finds at its first look.
    A pool that has its limit is left out, since Dagster fails in Postgres when a limit is set a second time.
    """
    limited = {limit.name for limit in instance.event_log_storage.get_pool_limits()}
    for pool in set(POOLS) - limited:
        instance.event_log_storage.initialize_concurrency_limit_to_default(pool)


def fail_lost_runs(instance: dg.DagsterInstance) -> None:
    """Reports runs that an earlier platform left unfinished as failed, where their processes ended with it.

    Dagster's own launcher can't see that, and such a run would hold its pool until its time is over. Runs that failed
    like this are retried once the daemon is up.
    """
    if type(instance.run_launcher).__name__ not in LAUNCHERS_HERE:
        return
    for run in instance.get_runs(dg.RunsFilter(statuses=UNDER_WAY)):
        instance.report_run_failed(run, "The platform ended while this run was under way.")


def refresh_definitions(directory: str) -> None:
    """Writes each cluster's topics into its state file in a project; writes an error in a declaration to stderr."""
    try:
        refresh_project(directory)
    except SetupError as error:
        sys.stderr.write(f"the topics are not asked for: {error}\n")


def main() -> None:
    """Prepares instance and project; ends the process with a sentence where the database can't be used."""
    try:
        with dg.DagsterInstance.get() as instance:
            limit_pools(instance)
            fail_lost_runs(instance)
            refresh_definitions(os.environ[PROJECT_DIR])
    except Exception as error:
        cause = error.__cause__ or error
        if isinstance(cause, OperationalError):
            sys.exit(f"Dagster's database can't be used: {cause.orig}")
        raise


if __name__ == "__main__":
    main()
