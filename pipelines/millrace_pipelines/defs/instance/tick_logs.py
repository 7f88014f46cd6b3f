"""What sensors and schedules write to the logs of their ticks, which stays when Dagster forgets the ticks.

<storage>/<repository>/<sensor>/<tick>.err        beside <storage>/<run>/compute_logs/…, which belongs to runs
"""

from __future__ import annotations

from pathlib import Path

import dagster as dg

KEPT_DAYS = 7
DAY_S = 86_400
OF_RUNS = "compute_logs"
SUFFIXES = (".err", ".out", ".complete")


def remove_tick_logs(instance: dg.DagsterInstance, now_ms: int) -> int:
    """Removes logs of ticks that were last written KEPT_DAYS ago or earlier, and returns how many files they were."""
    last_s = now_ms / 1000 - KEPT_DAYS * DAY_S
    storage = Path(instance.storage_directory())
    of_ticks = (path for path in storage.glob("*/*/*.*") if path.parent.name != OF_RUNS and path.suffix in SUFFIXES)
    old = [path for path in of_ticks if path.stat().st_mtime <= last_s]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)
