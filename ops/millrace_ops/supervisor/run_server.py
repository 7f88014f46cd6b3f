"""The server of runs: it has imported Dagster and what loads need, and forks a worker for each run.

    python -m millrace_ops.supervisor.run_server PORT

Only modules are loaded before the fork. A worker reads the project's definitions itself, so that they are up to date,
and this process has no thread and no connection that a fork could break. A worker that crashes is reported by another
fork. SIGTERM ends the server once the runs under way have ended; whatever else ends it ends the workers, as all of them
are in the process group of its lifeline (`millrace.lifeline`).
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
from contextlib import closing
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess

from millrace.addresses import LOOPBACK
from millrace_ops.supervisor.run_requests import NO, YES, Request, parse_request, read_line
from millrace_ops.supervisor.run_worker import execute_run, report_crash
from millrace_pipelines.dagster_internals.runs import IMPORTED_LATE

LINE_TIMEOUT_S = 30.0
MODULES = (
    *IMPORTED_LATE,
    "dagster.components.core.snapshot",
    "dagster_shared.yaml_utils.sample_yaml",
    "dateutil.parser",
    "jinja2.nativetypes",
    "millrace_ops.supervisor.dagster_storage",
    "millrace_ops.supervisor.run_launcher",
    "millrace_pipelines.component",
    "millrace_pipelines.definitions",
    "tomlkit",
    "upath.implementations.local",
)
"""The modules that Dagster would import only while a worker runs; `run_worker` has imported the others."""


class RunServer:
    """Starts, interrupts and finds the workers of runs.

    Args:
        listener: Where requests come in.
        execute: What a worker does with the id of a run.
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
        """Does what is asked, and returns the answer; a run that has a worker gets no other."""
        worker = self._workers.get(run_id)
        if request is Request.LAUNCH and worker is None:
            self._workers[run_id] = self._fork(self._execute, run_id)
        elif request is Request.INTERRUPT and worker is not None and worker.pid is not None:
            os.kill(worker.pid, signal.SIGINT)
        return request is Request.LAUNCH or worker is not None

    def _answer(self) -> None:
        """Answers the next connection, unless it says nothing; where that fails, the connection gets no answer."""
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(LINE_TIMEOUT_S)
            try:
                if line := read_line(connection):
                    connection.sendall(YES if self.answer(*parse_request(line)) else NO)
            except (OSError, ValueError) as error:
                sys.stderr.write(f"a request is not answered: {error}\n")

    def _reap(self) -> None:
        """Forgets the workers that have ended, and has those reported that crashed."""
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
    """Imports what workers need, and serves until SIGTERM comes."""
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
