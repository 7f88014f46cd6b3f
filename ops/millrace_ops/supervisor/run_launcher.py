"""Dagster's run launcher of a platform: it has the server of runs (`run_server`) fork a worker for each run.

Dagster's own launcher has the code server start a new Python for each run, which takes longer than a small load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import dagster as dg

from millrace_ops.supervisor.run_requests import Request, ask
from millrace_pipelines.dagster_internals.runs import (
    CheckRunHealthResult,
    ConfigurableClass,
    ConfigurableClassData,
    DagsterUserCodeUnreachableError,
    LaunchRunContext,
    RunLauncher,
    WorkerStatus,
)


class ForkingRunLauncher(RunLauncher[dg.DagsterInstance], ConfigurableClass):
    """Launches and terminates runs, and says whether a run has a worker, by the server on a port of this machine."""

    def __init__(self, port: int, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Dagster's own
        self._port = port
        self._inst_data = inst_data

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        """What `dagster.yaml` says of this launcher."""
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, type[int]]:
        """Returns the fields of its configuration."""
        return {"port": int}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Self:
        """Returns the launcher that `dagster.yaml` configures."""
        return cls(config_value["port"], inst_data)

    def launch_run(self, context: LaunchRunContext) -> None:
        """Has a worker forked that executes the run, unless it has one.

        Raises DagsterUserCodeUnreachableError where the server does not answer; the run goes back into the queue then.
        """
        try:
            ask(self._port, Request.LAUNCH, context.dagster_run.run_id)
        except OSError as error:
            raise DagsterUserCodeUnreachableError(f"the server of runs does not answer: {error}") from error

    def terminate(self, run_id: str) -> bool:
        """Has the worker of a run interrupted, and returns whether there was one."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        self._instance.report_run_canceling(run)
        return ask(self._port, Request.INTERRUPT, run_id)

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Whether Dagster's monitor may ask for the workers of runs."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Returns whether the run has a worker; raises OSError where the server does not answer in time."""
        try:
            is_there = ask(self._port, Request.FIND, run.run_id)
        except ConnectionRefusedError:
            return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "the server of runs has ended, and its workers with it")
        return CheckRunHealthResult(WorkerStatus.RUNNING if is_there else WorkerStatus.NOT_FOUND)
