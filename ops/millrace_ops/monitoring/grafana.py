"""The files that Grafana, from version 9 on, and Prometheus read: dashboards as JSON, and the alert rules.

`dashboards.toml` says which panels there are and what they query, and this module how Grafana draws them.

Panels stand in rows of three, or of six stats, 24 columns wide. The variables choose the data source and the instances.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import count
from typing import Any, NamedTuple

RULES = "alerts.yml"
PANELS = "dashboards.toml"
SCHEMA_VERSION = 37  # Grafana 9
COLUMNS = 24
HEADING_HEIGHT = 1
SIZES = {"timeseries": (8, 8), "table": (8, 8), "stat": (3, 4)}  # columns, rows
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


class Panel(NamedTuple):
    """A chart: queries, each with the legend of its lines."""

    title: str
    unit: str
    queries: list[list[str]]
    kind: str = "timeseries"
    limit: float | None = None
    free_axis: bool = False


class Section(NamedTuple):
    """Panels under a heading."""

    title: str
    panels: list[Panel]


class Dashboard(NamedTuple):
    """A dashboard; `uid` names it in URLs. Its choice of instances lists those that have the metric `instances_of`."""

    uid: str
    title: str
    instances_of: str
    sections: list[Section]


DASHBOARDS = [
    Dashboard(
        one["uid"],
        one["title"],
        one["instances_of"],
        [Section(each["title"], [Panel(**panel) for panel in each["panel"]]) for each in one["section"]],
    )
    for one in tomllib.loads(files(__package__).joinpath(PANELS).read_text(encoding="utf-8"))["dashboard"]
]


def monitoring_files() -> dict[str, str]:
    """Returns the dashboards and alert rules as file contents, by file name."""
    dashboards = {f"{one.uid}.json": json.dumps(dashboard_json(one), indent=1) + "\n" for one in DASHBOARDS}
    return {RULES: files(__package__).joinpath(RULES).read_text(encoding="utf-8"), **dashboards}


def dashboard_json(dashboard: Dashboard) -> Json:
    """Returns a dashboard in the JSON that Grafana imports."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["millrace"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {"list": _variables(dashboard.instances_of)},
        "annotations": {"list": []},
        "panels": list(_laid_out(dashboard.sections)),
    }


def _variables(instances_of: str) -> list[Json]:
    query = f"label_values({instances_of}, instance)"
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "instance",
            "label": "Instance",
            "type": "query",
            "datasource": SOURCE,
            "definition": query,
            "query": {"query": query, "refId": "instances"},
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def _laid_out(sections: Sequence[Section]) -> Iterator[Json]:
    numbers, top = count(1), 0
    for section in sections:
        place = {"x": 0, "y": top, "w": COLUMNS, "h": HEADING_HEIGHT}
        yield {
            "id": next(numbers),
            "type": "row",
            "title": section.title,
            "gridPos": place,
            "collapsed": False,
            "panels": [],
        }
        top, left, tallest = top + HEADING_HEIGHT, 0, 0
        for panel in section.panels:
            width, height = SIZES[panel.kind]
            if left + width > COLUMNS:
                top, left, tallest = top + tallest, 0, 0
            yield _panel(panel, next(numbers), {"x": left, "y": top, "w": width, "h": height})
            left, tallest = left + width, max(tallest, height)
        top += tallest


def _panel(panel: Panel, number: int, place: Json) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": place,
        "targets": [_target(panel, index) for index in range(len(panel.queries))],
        "fieldConfig": {
            "defaults": {"unit": panel.unit, **({} if panel.free_axis else {"min": 0}), **_colours(panel)},
            "overrides": [],
        },
        "options": _options(panel),
    }


def _target(panel: Panel, index: int) -> Json:
    query, legend = panel.queries[index]
    is_table = panel.kind == "table"
    return {
        "refId": chr(ord("A") + index),
        "datasource": SOURCE,
        "expr": query,
        "legendFormat": legend or "__auto",
        "instant": is_table,
        "range": not is_table,
        "format": "table" if is_table else "time_series",
    }


def _colours(panel: Panel) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    if panel.limit is not None:
        steps.append({"color": "red", "value": panel.limit})
    return (
        {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}
        if panel.kind == "stat"
        else {}
    )


def _options(panel: Panel) -> Json:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "background"}
    if panel.kind == "table":
        return {"showHeader": True}
    return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
