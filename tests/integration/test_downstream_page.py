"""The example of docs/downstream.md runs."""

import re
from pathlib import Path

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess

PAGE = Path(__file__).parents[2] / "docs" / "downstream.md"


def test_the_example_runs(zookeeper, tmp_path, capsys, monkeypatch):
    connect = f"{zookeeper.address}/downstream_page"
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    with BrokerProcess(tmp_path / "broker", zookeeper=connect) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("clicks", 1)
            SyncProducer(cluster).send("clicks", 0, [NewRecord(b"/home"), NewRecord(b"/home")])
        code = example.replace("127.0.0.1:2181", connect).replace("127.0.0.1:9092", broker.bootstrap)
        exec(compile(code, str(PAGE), "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == "[{'partition': 0, 'page': '/home', 'clicks': 2}]\n"
