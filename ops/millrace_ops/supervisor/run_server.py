"""The server of runs: it has imported Dagster and what loads need, and forks a worker for each run.

    python -m millrace_ops.supervisor.run_server PORT

Only modules are loaded before the fork. A worker reads the project's definitions itself, so that they are up to date,
and this process has no thread and no connection that a fork could break. A worker that crashes is reported by another
fork. SIGTERM ends the server once the runs under way have ended; whatever else ends it ends the workers, as all of them
are in the process group of its lifeline (`millrace.lifeline`). A worker opens the instance at DAGSTER_HOME by
itself: no connection or thread passes from the server to it.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess

import dagster as dg

from millrace.addresses import LOOPBACK
from millrace_ops.supervisor.run_launcher import NO, YES, Request, parse_request, read_line
from millrace_pipelines.dagster_internals.runs import (
    IMPORTED_LATE,
    ReconstructableRepository,
    capture_interrupts,
    core_execute_run,
    recon_job_from_origin,
)

LOGGED = (Exception, KeyboardInterrupt, dg.DagsterExecutionInterruptedError)
"""The exceptions that Dagster has recorded in the events of a run before it raises them."""


class LoadedOnce(ReconstructableRepository):
    """A repository whose definitions this process loads only once; Dagster would load them twice for a run."""

    def get_definition(self) -> dg.RepositoryDefinition:
        """Returns the definitions."""
        return _load(self)


@cache
def _load(repository: ReconstructableRepository) -> dg.RepositoryDefinition:
    return ReconstructableRepository.get_definition(repository)


def execute_run(run_id: str) -> None:
    """Executes a run in this process, as Dagster's code server does; an interrupt waits until it can be handled.

    Raises LookupError for a run that is unknown or has no code, SystemExit where the run remains unfinished.
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
    """Reports an unfinished run as failed whose worker ended with this exit code, negative for a signal."""
    with dg.DagsterInstance.get() as instance:
        run = instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return
        instance.report_engine_event(f"Run execution process for {run_id} {how_it_ended(exit_code)}.", run)
        instance.report_run_failed(run)


def how_it_ended(exit_code: int) -> str:
    """Returns how a process ended, in words; a negative exit code is that of a signal."""
    if exit_code >= 0:
        return f"exited with status {exit_code}"
    names = {one.value: one.name for one in signal.Signals}
    ended = f"was terminated by signal {-exit_code} ({names.get(-exit_code, 'of real time')})"
    return f"{ended}, as the system does where memory runs out" if exit_code == -signal.SIGKILL else ended


LINE_TIMEOUT_S = 30.0
MODULES = (
    *IMPORTED_LATE,
    "dagster.components.core.snapshot",
    "dagster_shared.yaml_utils.sample_yaml",
    "dateutil.parser",
    "jinja2.nativetypes",
    "millrace_ops.supervisor.dagster_storage",
    "millrace_ops.supervisor.run_launcher",
    "millrace_pipelines.definitions",
    "tomlkit",
    "upath.implementations.local",
)
"""The modules that Dagster would import only while a worker runs; this module has imported the others."""


class RunServer:
    """Forks the workers of runs, interrupts them, and tells which runs have one.

    Args:
        listener: The socket at which requests come in.
        execute: Executes the run with an id; called in the worker's process.
        report_crash: What is done, in a process by itself, with the id of a run and the exit code of its worker, where
            that is not 0.
    """

    def __init__(
        self, listener: socket.socket, execute: Callable[[str], None], report_crash: Callable[[str, int], None]
    ) -> None:
        self._listener = listener
        self._execute = execute
        self._report_crash = report_crash
        self._workers: dict[str, ForkProcess] = {}
        self._reports: list[ForkProcess] = []

    def serve(self, stopping: socket.socket) -> None:
        """Answers requests until something can be read from `stopping`; then waits for the workers."""
        is_stopping = False
        while not is_stopping:
            ends = [process.sentinel for process in (*self._workers.values(), *self._reports)]
            ready = wait([self._listener, stopping, *ends])
            self._reap()
            if self._listener in ready:
                self._answer()
            is_stopping = stopping in ready
        self._listener.close()
        for worker in self._workers.values():
            worker.join()
        self._reap()
        for report in self._reports:
            report.join()

    def answer(self, request: Request, run_id: str) -> bool:
        """Carries out a request; returns whether the run has, or had, a worker. A run never gets a second one."""
        worker = self._workers.get(run_id)
        if request is Request.LAUNCH and worker is None:
            self._workers[run_id] = self._fork(self._execute, run_id)
        elif request is Request.INTERRUPT and worker is not None and worker.pid is not None:
            os.kill(worker.pid, signal.SIGINT)
        return request is Request.LAUNCH or worker is not None

    def _answer(self) -> None:
        """Accepts one connection and answers its request; a connection without a valid request gets no answer."""
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(LINE_TIMEOUT_S)
            try:
                if line := read_line(connection):
                    connection.sendall(YES if self.answer(*parse_request(line)) else NO)
            except (OSError, ValueError) as error:
                sys.stderr.write(f"a request is not answered: {error}\n")

    def _reap(self) -> None:
        """Removes workers that have ended, and has those that crashed reported."""
        for run_id, worker in list(self._workers.items()):
            if worker.exitcode is None:
                continue
            del self._workers[run_id]
            if worker.exitcode:
                self._reports.append(self._fork(self._report_crash, run_id, worker.exitcode))
        self._reports = [report for report in self._reports if report.exitcode is None]

    def _fork(self, do: Callable[..., None], *given: object) -> ForkProcess:
        process = multiprocessing.get_context("fork").Process(target=self._in_fork, args=(do, *given))
        process.start()
        return process

    def _in_fork(self, do: Callable[..., None], *given: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._listener.close()
        do(*given)


def main() -> None:
    """Imports what workers need, and answers requests until SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # it stays pending until a worker unblocks it
    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a worker would copy all pages
    stop, stopping = socket.socketpair()
    with stop, stopping, closing(socket.create_server((LOOPBACK, int(sys.argv[1])))) as listener:
        signal.signal(signal.SIGTERM, lambda *_: stop.send(b"."))
        RunServer(listener, execute_run, report_crash).serve(stopping)


if __name__ == "__main__":
    main()
