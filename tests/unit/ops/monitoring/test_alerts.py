"""Each alert and its section in the runbook."""

import re
from pathlib import Path

import pytest
import yaml

from millrace_ops.monitoring.grafana import RULES, monitoring_files

RUNBOOK = (Path(__file__).parents[4] / "docs" / "runbook.md").read_text()
ALERTS = [
    rule for group in yaml.safe_load(monitoring_files()[RULES])["groups"] for rule in group["rules"] if "alert" in rule
]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda one: one["alert"])
def test_the_runbook_says_what_it_means_and_the_way_out(alert):
    section = RUNBOOK.partition(f"## {alert['alert']}\n")[2].partition("\n## ")[0]
    assert all(f"**{part}**" in section for part in ("Means", "Look at", "Way out"))
    assert alert["annotations"]["runbook_url"] == f"docs/runbook.md#{alert['alert'].lower()}"
    assert alert["labels"]["severity"] in {"page", "ticket"}


def test_the_runbook_has_no_section_of_another_alert():
    assert re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE) == [one["alert"] for one in ALERTS]
