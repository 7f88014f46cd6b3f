"""The ConsumerConnector's part of docs/clients.md: its example runs, its table is that of the code."""

import re
from pathlib import Path

from millrace.client import Admin, Cluster, SyncProducer
from millrace.client.consumer.config import TABLE
from millrace.client.consumer.streams import ConsumerStream
from millrace.config import value_text
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## ConsumerConnector\n")[2].partition("\n## ")[0]


def test_the_example_runs(zookeeper, tmp_path, capsys, monkeypatch):
    """On a busy machine the first message takes longer than the second for which the example waits."""
    connect = f"{zookeeper.address}/clients_page"
    deadline_ns = ConsumerStream._deadline_ns
    monkeypatch.setattr(ConsumerStream, "_deadline_ns", lambda self: deadline_ns(self) if self._current else None)
    (example,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    with BrokerProcess(tmp_path / "broker", zookeeper=connect) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("clicks", 1)
            SyncProducer(cluster).send("clicks", 0, [NewRecord(b"one", b"key")])
        patient = "".join(f', "zookeeper.{one}.timeout.ms": "60000"' for one in ("session", "connection"))
        example = example.replace('"zookeeper.connect": "127.0.0.1:2181"', f'"zookeeper.connect": "{connect}"{patient}')
        assert connect in example
        exec(compile(example, "docs/clients.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["clicks 0 0 b'key' b'one'", "nothing came for a second"]


def test_the_table_is_that_of_the_code():
    rows = re.findall(r"^\| `(.*?)` \| (.*?) \|", SECTION, re.MULTILINE)
    assert dict(rows) == {name: value_text(key.default) or "(empty)" for name, key in TABLE.keys.items()}
