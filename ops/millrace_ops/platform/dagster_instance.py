"""The Dagster instance of a platform: two small files in its home folder.

    DIR/dagster/dagster.yaml     SQLite storage, no telemetry nor sign-up, one run per pool, lost runs retried
    DIR/dagster/workspace.yaml   the one code location, served by gRPC

Both are written as JSON, which is YAML.
"""

from __future__ import annotations

import json
import os

from millrace.ports import LOOPBACK

LOCATION = "millrace"


def instance_config(home: str) -> dict[str, object]:
    """Returns the content of `dagster.yaml`."""
    return {
        "telemetry": {"enabled": False},
        "nux": {"enabled": False},
        "storage": {"sqlite": {"base_dir": os.path.join(home, "storage")}},
        "local_artifact_storage": {
            "module": "dagster._core.storage.root",
            "class": "LocalArtifactStorage",
            "config": {"base_dir": home},
        },
        # A pool admits one run at a time; the others wait in the queue, where the UI shows them.
        "concurrency": {"pools": {"default_limit": 1, "granularity": "run"}},
        "run_coordinator": {
            "module": "dagster.core.run_coordinator",
            "class": "QueuedRunCoordinator",
            "config": {"dequeue_interval_seconds": 1},
        },
        # Assets retry their own failures; this is for a run whose process was lost.
        "run_monitoring": {"enabled": True, "start_timeout_seconds": 120},
        "run_retries": {"enabled": True, "max_retries": 2, "retry_on_asset_or_op_failure": False},
    }


def workspace_config(code_server_port: int) -> dict[str, object]:
    """Returns the content of `workspace.yaml`."""
    server = {"host": LOOPBACK, "port": code_server_port, "location_name": LOCATION}
    return {"load_from": [{"grpc_server": server}]}


def write_instance(home: str, code_server_port: int) -> str:
    """Writes both files into `home` and returns the path of the workspace file."""
    os.makedirs(home, exist_ok=True)
    workspace = os.path.join(home, "workspace.yaml")
    for path, content in (
        (os.path.join(home, "dagster.yaml"), instance_config(home)),
        (workspace, workspace_config(code_server_port)),
    ):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
    return workspace


def fail_lost_runs(home: str) -> None:
    """Reports the runs that a former platform left under way as failed; their processes ended with it.

    Dagster's own launcher can't see that, and such a run would hold its pool for ever. Runs that failed like this are
    retried once the daemon is up.
    """
    if not os.path.isdir(os.path.join(home, "storage")):
        return
    import dagster as dg  # noqa: PLC0415  it takes a second, and only a second start needs it

    under_way = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
    with dg.DagsterInstance.from_config(home) as instance:
        for run in instance.get_runs(dg.RunsFilter(statuses=under_way)):
            instance.report_run_failed(run, "The platform ended while this run was under way.")
