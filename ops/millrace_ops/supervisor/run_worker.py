"""What a process that the server of runs has forked does: it executes a run, or reports one whose worker has crashed.

Both open the instance at DAGSTER_HOME by themselves: no connection or thread passes from the server to them.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from functools import cache

import dagster as dg

from millrace_pipelines.dagster_internals.runs import (
    ReconstructableRepository,
    capture_interrupts,
    core_execute_run,
    recon_job_from_origin,
)

LOGGED = (Exception, KeyboardInterrupt, dg.DagsterExecutionInterruptedError)
"""The exceptions that Dagster has recorded in the events of a run before it raises them."""


class LoadedOnce(ReconstructableRepository):
    """Definitions that this process loads once; Dagster loads them for the job and again for the part that runs."""

    def get_definition(self) -> dg.RepositoryDefinition:
        """Returns the definitions."""
        return _load(self)


@cache
def _load(repository: ReconstructableRepository) -> dg.RepositoryDefinition:
    return ReconstructableRepository.get_definition(repository)


def execute_run(run_id: str) -> None:
    """Executes a run as a code server of Dagster does; an interrupt waits until this process can take it.

    Raises LookupError where the instance has no such run, or it has no code; SystemExit where it remains unfinished.
    """
    with capture_interrupts(), dg.DagsterInstance.get() as instance:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        run = instance.get_run_by_id(run_id)
        if run is None or run.job_code_origin is None:
            raise LookupError(f"there is no run {run_id}, or it has no code")
        pid = os.getpid()
        instance.report_engine_event(f"Started process for run (pid: {pid}).", run)
        job = recon_job_from_origin(run.job_code_origin)
        job = job._replace(repository=LoadedOnce(*job.repository))
        with suppress(*LOGGED):
            for event in core_execute_run(job, run, instance, inject_env_vars=False):
                if event.event_type is dg.DagsterEventType.RUN_START:
                    _keep_termination(instance, run)
        instance.report_engine_event(f"Process for run exited (pid: {pid}).", run)
        _finish(instance, run_id)


def _keep_termination(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Reports a run as canceling again, if it was canceling when it started: Dagster then sets its state to started.

    Without that, Dagster would take the interrupt that comes with the request for a failure.
    """
    if instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.RUN_CANCELING, limit=1).records:
        instance.report_run_canceling(run, "The run was to be terminated before it started.")


def _finish(instance: dg.DagsterInstance, run_id: str) -> None:
    """Reports a run as canceled, if it was canceling before it began: Dagster neither executes nor ends such a run."""
    run = instance.get_run_by_id(run_id)
    if run is not None and run.status is dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run)
    elif run is not None and not run.is_finished:
        sys.exit(f"the run {run_id} is {run.status.value.lower()} after its execution")


def report_crash(run_id: str, exit_code: int) -> None:
    """Reports a run as failed whose worker ended with this exit code, negative for a signal, and left it under way."""
    with dg.DagsterInstance.get() as instance:
        run = instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return
        instance.report_engine_event(f"Run execution process for {run_id} {how_it_ended(exit_code)}.", run)
        instance.report_run_failed(run)


def how_it_ended(exit_code: int) -> str:
    """Returns the end of a process by this exit code in words; a code that is negative is that of a signal."""
    if exit_code >= 0:
        return f"exited with status {exit_code}"
    names = {one.value: one.name for one in signal.Signals}
    ended = f"was terminated by signal {-exit_code} ({names.get(-exit_code, 'of real time')})"
    return f"{ended}, as the system does where memory runs out" if exit_code == -signal.SIGKILL else ended
