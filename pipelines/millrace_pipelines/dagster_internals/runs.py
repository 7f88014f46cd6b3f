"""What the launcher of runs and their workers use of Dagster beside its public interface."""

from __future__ import annotations

from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher.base import CheckRunHealthResult, LaunchRunContext, RunLauncher, WorkerStatus
from dagster._grpc.impl import core_execute_run
from dagster._serdes import ConfigurableClass, ConfigurableClassData
from dagster._utils.hosted_user_process import recon_job_from_origin
from dagster._utils.interrupts import capture_interrupts

__all__ = [
    "IMPORTED_LATE",
    "CheckRunHealthResult",
    "ConfigurableClass",
    "ConfigurableClassData",
    "DagsterUserCodeUnreachableError",
    "LaunchRunContext",
    "ReconstructableRepository",
    "RunLauncher",
    "WorkerStatus",
    "capture_interrupts",
    "core_execute_run",
    "recon_job_from_origin",
]

IMPORTED_LATE = (
    "dagster._core.definitions.repository_definition.repository_data_builder",
    "dagster._core.execution.plan.active",
    "dagster._core.executor.in_process",
    "dagster._core.instance.factory",
    "dagster._core.secrets.env_file",
    "dagster._core.storage.root",
)
"""Modules that Dagster imports only while a run is executed."""
