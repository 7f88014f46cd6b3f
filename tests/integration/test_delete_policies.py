"""The delete policy of docs/configuration.md, installed beside a real broker, and policies that are not installed."""

import json
import re
import tomllib
import urllib.request
from pathlib import Path

import pytest

from millrace.client import Admin, Cluster, Configs, ResourceKind, SyncProducer
from millrace.errors import InvalidConfigError, SetupError
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_support.admin_requests import change_request

DOCS = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
PROPERTY = "millrace.delete.policies"


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The package of the documentation, as pip would have installed it; the name of its policy."""
    text = DOCS.partition("## Delete policies")[2]
    (source,) = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", text, re.DOTALL)
    (declared,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    ((group, points),) = tomllib.loads(declared)["project"]["entry-points"].items()
    info = tmp_path / "site" / "example-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "site" / f"{source[0]}.py").write_text(source[1], encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    (name,) = points
    return name


def after_retention(broker):
    request = change_request(broker, "maintenance/retention")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return {one["topic"]: one["reasons"] for one in json.loads(answer.read())["partitions"]}


def test_the_documented_policy_deletes_what_it_says(tmp_path, example):
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("kept", 1, config={"segment.bytes": "1000"})
        Admin(cluster).create_topic("short", 1, config={"segment.bytes": "1000", PROPERTY: f"time,{example}"})
        for topic in ("kept", "short"):
            for _ in range(10):
                SyncProducer(cluster).send(topic, 0, [NewRecord(bytes(900))])
        reasons = after_retention(broker)
        assert reasons["kept"] == []
        assert len(reasons["short"]) == 5
        Configs(cluster).change(ResourceKind.BROKER, "1", {PROPERTY: example})
        assert len(after_retention(broker)["kept"]) == 5, "the broker's default holds for the others"


def test_a_policy_that_is_not_installed_is_refused(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.bootstrap) as cluster:
        with pytest.raises(InvalidConfigError, match="nobody"):
            Admin(cluster).create_topic("t", 1, config={PROPERTY: "nobody"})
        Admin(cluster).create_topic("t", 1)
        with pytest.raises(InvalidConfigError, match="nobody"):
            Configs(cluster).change(ResourceKind.TOPIC, "t", {PROPERTY: "time,nobody"})
    with pytest.raises(SetupError, match=f"{PROPERTY}.*nobody"):
        BrokerProcess(tmp_path / "other", properties={PROPERTY: "nobody"})


@pytest.mark.broker_errors(r"delete policy five-segments deletes nothing: \S+: Invalid value, no installed package")
def test_a_policy_that_was_removed_stops_no_other(tmp_path, example, monkeypatch):
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.bootstrap) as cluster:
        settings = {"segment.bytes": "1000", "retention.bytes": "2000", PROPERTY: f"{example},size"}
        Admin(cluster).create_topic("t", 1, config=settings)
        for _ in range(10):
            SyncProducer(cluster).send("t", 0, [NewRecord(bytes(900))])
        monkeypatch.delenv("PYTHONPATH")
        broker.restart()
        reasons = after_retention(broker)["t"]
        assert set(reasons) == {"above retention.bytes"}
        assert f"delete policy {example}" in broker.read_log()
