"""The dashboards' JSON: what Grafana needs to find in it, and that panels do not lie upon one another."""

import json
import re
from itertools import combinations
from pathlib import Path

import pytest

from millrace_ops.monitoring.grafana import COLUMNS, DASHBOARDS, dashboard_json, monitoring_files

DOCS = Path(__file__).parents[4] / "docs"
PAGES = ("metrics.md", "mirror-service.md", "warehouse-modes.md", "warehouse-reading.md")
MADE_AGAIN = ("_total", "_bucket", "_sum", "_count")


@pytest.fixture(params=DASHBOARDS, ids=lambda one: one.uid)
def dashboard(request):
    return dashboard_json(request.param)


def test_panels_have_what_grafana_draws_them_by(dashboard):
    assert json.loads(json.dumps(dashboard)) == dashboard
    drawn = [one for one in dashboard["panels"] if one["type"] != "row"]
    assert len({one["id"] for one in dashboard["panels"]}) == len(dashboard["panels"])
    assert {one["type"] for one in drawn} <= {"timeseries", "stat", "table"}
    for panel in drawn:
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert [one["refId"] for one in panel["targets"]] == list("ABCDEFGH"[: len(panel["targets"])])
        assert all(one["datasource"] == {"type": "prometheus", "uid": "${datasource}"} for one in panel["targets"])
    variables = {one["name"] for one in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(dashboard["panels"])))
    assert used == variables


def test_no_two_panels_lie_upon_one_another(dashboard):
    places = [one["gridPos"] for one in dashboard["panels"]]
    assert all(one["x"] >= 0 and one["x"] + one["w"] <= COLUMNS for one in places)
    for one, other in combinations(places, 2):
        is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        is_below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert is_beside or is_below


def test_dashboards_have_names_of_their_own():
    assert len({one.uid for one in DASHBOARDS}) == len(monitoring_files()) - 1 == len(DASHBOARDS)


def test_what_is_asked_for_is_documented():
    known = set(re.findall(r"`((?:millrace|process)_\w+)`", "".join((DOCS / page).read_text() for page in PAGES)))
    for name, text in monitoring_files().items():
        for metric in set(re.findall(r"\b(?:millrace|process)_\w+", text)):
            plain = next((metric.removesuffix(one) for one in MADE_AGAIN if metric.endswith(one)), metric)
            assert {metric, plain} & known, f"{name}: {metric}"
