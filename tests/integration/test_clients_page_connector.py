"""The ConsumerConnector's part of docs/clients.md: its example runs, its table is that of the code."""

import re
from pathlib import Path

from millrace.client import Admin, Cluster, SyncProducer
from millrace.client.consumer.config import TABLE
from millrace.config import value_text
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## ConsumerConnector\n")[2].partition("\n## ")[0]


def test_the_example_runs(zookeeper, tmp_path, capsys):
    connect = f"{zookeeper.address}/clients_page"
    (example,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    with BrokerProcess(tmp_path / "broker", zookeeper=connect) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("clicks", 1)
            SyncProducer(cluster).send("clicks", 0, [NewRecord(b"one", b"key")])
        exec(compile(example.replace("127.0.0.1:2181", connect), "docs/clients.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["clicks 0 0 b'key' b'one'", "nothing came for a second"]


def test_the_table_is_that_of_the_code():
    rows = re.findall(r"^\| `(.*?)` \| (.*?) \|", SECTION, re.MULTILINE)
    assert dict(rows) == {name: value_text(key.default) or "(empty)" for name, key in TABLE.keys.items()}
