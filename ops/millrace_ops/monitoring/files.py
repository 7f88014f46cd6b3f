"""The files that Grafana and Prometheus read."""

from __future__ import annotations

import json
from importlib.resources import files

from millrace_ops.monitoring.broker_dashboard import BROKER
from millrace_ops.monitoring.grafana import dashboard_json
from millrace_ops.monitoring.groups_dashboard import GROUPS_DASHBOARD
from millrace_ops.monitoring.loads_dashboard import LOADS_DASHBOARD

DASHBOARDS = (BROKER, GROUPS_DASHBOARD, LOADS_DASHBOARD)
RULES = "alerts.yml"


def monitoring_files() -> dict[str, str]:
    """Returns the text of each file by its name."""
    dashboards = {f"{one.uid}.json": json.dumps(dashboard_json(one), indent=1) + "\n" for one in DASHBOARDS}
    return {RULES: files(__package__).joinpath(RULES).read_text(encoding="utf-8"), **dashboards}
