"""Dagster's run launcher of a platform: it has the server of runs (`run_server`) fork a worker for each run.

Dagster's own launcher has the code server start a new Python for each run, which takes longer than a small load.

The server is asked by a line for each connection, and answers `yes` or `no`:

    launch RUN       starts a worker that executes the run, unless it has one    yes
    interrupt RUN    interrupts the worker of the run                            whether there is one
    find RUN                                                                     whether there is one

A run is named by its id alone: what it executes is in the instance.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

import dagster as dg

from millrace.addresses import LOOPBACK
from millrace_pipelines.dagster_internals.runs import (
    CheckRunHealthResult,
    ConfigurableClass,
    ConfigurableClassData,
    DagsterUserCodeUnreachableError,
    LaunchRunContext,
    RunLauncher,
    WorkerStatus,
)

TIMEOUT_S = 90.0  # longer than the server waits for the line of another connection
MAX_LINE_BYTES = 200
YES, NO = b"yes\n", b"no\n"


class Request(StrEnum):
    """The requests to the run server: launch a worker for a run, interrupt it, or find whether it has one."""

    LAUNCH = "launch"
    INTERRUPT = "interrupt"
    FIND = "find"


def ask(port: int, request: Request, run_id: str) -> bool:
    """Sends a request on a run to the run server on the port; returns whether the server answers yes.

    Raises OSError: ConnectionRefusedError where no server listens, ConnectionError where it ends before it answers,
    TimeoutError after TIMEOUT_S.
    """
    with socket.create_connection((LOOPBACK, port), TIMEOUT_S) as connection:
        connection.sendall(f"{request} {run_id}\n".encode())
        answer = read_line(connection)
    if answer not in (YES, NO):
        raise ConnectionError(f"the server of runs on port {port} ended before it answered")
    return answer == YES


def read_line(connection: socket.socket) -> bytes:
    """Returns what the other side sends up to a line end, or until it closes the connection; raises OSError."""
    with connection.makefile("rb") as stream:
        return stream.readline(MAX_LINE_BYTES)


def parse_request(line: bytes) -> tuple[Request, str]:
    """Returns the request of a line and the id of its run; raises ValueError where the line is no request."""
    request, run_id = line.decode("ascii").split()
    return Request(request), run_id


class ForkingRunLauncher(RunLauncher[dg.DagsterInstance], ConfigurableClass):
    """Launches, terminates and finds the workers of runs by asking the run server on a port of this machine."""

    def __init__(self, port: int, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Dagster's own
        self._port = port
        self._inst_data = inst_data

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        """Returns the configuration of this launcher in `dagster.yaml`."""
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, type[int]]:
        """Returns the launcher's configuration fields with their types, as Dagster asks."""
        return {"port": int}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Self:
        """Returns the launcher that `dagster.yaml` configures."""
        return cls(config_value["port"], inst_data)

    def launch_run(self, context: LaunchRunContext) -> None:
        """Has the run server fork a worker that executes the run, unless it has one.

        Raises DagsterUserCodeUnreachableError where the server does not answer; the run goes back into the queue then.
        """
        try:
            ask(self._port, Request.LAUNCH, context.dagster_run.run_id)
        except OSError as error:
            raise DagsterUserCodeUnreachableError(f"the server of runs does not answer: {error}") from error

    def terminate(self, run_id: str) -> bool:
        """Has the run's worker interrupted; returns whether there was one."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        self._instance.report_run_canceling(run)
        return ask(self._port, Request.INTERRUPT, run_id)

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Returns whether Dagster's monitor may ask for the workers of runs."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Returns whether the run has a worker; raises OSError where the run server does not answer in time."""
        try:
            is_there = ask(self._port, Request.FIND, run.run_id)
        except ConnectionRefusedError:
            return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "the server of runs has ended, and its workers with it")
        return CheckRunHealthResult(WorkerStatus.RUNNING if is_there else WorkerStatus.NOT_FOUND)
