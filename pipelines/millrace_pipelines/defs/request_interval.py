"""How often retention and compaction are requested; `millrace up` tells the broker, without loading Dagster."""

from __future__ import annotations

REQUEST_INTERVAL_MS = 3_600_000
