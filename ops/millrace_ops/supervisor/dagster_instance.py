"""The Dagster instance of a platform: two small files in its home folder.

    DIR/dagster/dagster.yaml     SQLite or Postgres, no telemetry nor sign-up, one run per pool, lost runs retried,
                                 bounds of a run's time and of the age of ticks, workers from the server of runs,
                                 or by Dagster's own launcher from the code server
    DIR/dagster/workspace.yaml   the one code location, served by gRPC

Both are written as JSON, which is YAML. What the instance stores is prepared by `prepare_instance`.
"""

from __future__ import annotations

import json
import os

from millrace.addresses import LOOPBACK

LOCATION = "millrace"
STORAGE_MODULE = "millrace_ops.supervisor.dagster_storage"
LAUNCHER_MODULE = "millrace_ops.supervisor.run_launcher"
POSTGRES_VARIABLE = "MILLRACE_DAGSTER_POSTGRES"
# A run that hangs frees its pool after this; the tag dagster/max_runtime of a run or a job, in seconds, overrides it.
MAX_RUNTIME_S = 6 * 3600
MONITORING_INTERVAL_S = 30
LAUNCH_RETRIES = 10
LAUNCH_RETRY_DELAY_S = 5
# Sensors tick every 30 seconds, and most ticks have nothing to do.
TICK_DAYS = {"skipped": 1, "started": 7, "success": 7, "failure": 7}


def instance_config(home: str, run_server_port: int | None, *, postgres: bool) -> dict[str, object]:
    """Returns the content of `dagster.yaml`; for Postgres it names the variable with the URL, so it has no password.

    Without a server of runs, the launcher is Dagster's own.
    """
    base_dir = {"base_dir": os.path.join(home, "storage")}
    sqlite = {"custom": {"module": STORAGE_MODULE, "class": "SqliteStorage", "config": base_dir}}
    return {
        "telemetry": {"enabled": False},
        "nux": {"enabled": False},
        "storage": {"postgres": {"postgres_url": {"env": POSTGRES_VARIABLE}}} if postgres else sqlite,
        # A pool admits one run at a time; the others wait in the queue, where the UI shows them.
        "concurrency": {"pools": {"default_limit": 1, "granularity": "run"}},
        "run_coordinator": {
            "module": "dagster.core.run_coordinator",
            "class": "QueuedRunCoordinator",
            # A run for which there is no server of runs, as the platform ends, is still in the queue of the next one.
            "config": {
                "dequeue_interval_seconds": 1,
                "max_user_code_failure_retries": LAUNCH_RETRIES,
                "user_code_failure_retry_delay": LAUNCH_RETRY_DELAY_S,
            },
        },
        **({} if run_server_port is None else _forking(run_server_port)),
        "run_monitoring": {
            "enabled": True,
            "start_timeout_seconds": 120,
            "max_runtime_seconds": MAX_RUNTIME_S,
            "poll_interval_seconds": MONITORING_INTERVAL_S,
        },
        # Assets retry their own failures; this is for a run whose process was lost.
        "run_retries": {"enabled": True, "max_retries": 2, "retry_on_asset_or_op_failure": False},
        "retention": {name: {"purge_after_days": TICK_DAYS} for name in ("sensor", "schedule", "auto_materialize")},
    }


def _forking(port: int) -> dict[str, object]:
    launcher = {"module": LAUNCHER_MODULE, "class": "ForkingRunLauncher", "config": {"port": port}}
    return {"run_launcher": launcher}


def workspace_config(code_server_port: int) -> dict[str, object]:
    """Returns the content of `workspace.yaml`, by which Dagster finds the code server at its port."""
    server = {"host": LOOPBACK, "port": code_server_port, "location_name": LOCATION}
    return {"load_from": [{"grpc_server": server}]}


def dagster_url(postgres_url: str) -> str:
    """Returns a Postgres URL with the driver of dagster-postgres added, where it names none."""
    scheme, separator, rest = postgres_url.partition("://")
    return f"postgresql+psycopg2://{rest}" if separator and scheme in ("postgres", "postgresql") else postgres_url


def write_instance(home: str, code_server_port: int, run_server_port: int | None, *, postgres: bool = False) -> str:
    """Writes `dagster.yaml` and the workspace file into `home`, and returns the path of the latter.

    With `postgres` the instance is in the database whose URL is in the environment variable POSTGRES_VARIABLE.
    """
    os.makedirs(home, exist_ok=True)
    workspace = os.path.join(home, "workspace.yaml")
    for path, content in (
        (os.path.join(home, "dagster.yaml"), instance_config(home, run_server_port, postgres=postgres)),
        (workspace, workspace_config(code_server_port)),
    ):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
    return workspace
