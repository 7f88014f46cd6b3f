"""The examples of docs/clients.md, docs/languages.md and docs/client-security.md run, against a broker."""

import pytest

from millrace.testing.local_broker import LocalBroker
from millrace_support.pages import ROOT, blocks

PAGES = ("docs/clients.md", "docs/languages.md")
NEEDS_ZOOKEEPER = "ConsumerConnector"
EXAMPLES = [
    block
    for page in PAGES
    for block in blocks(ROOT / page)
    if block.language == "python" and block.heading != NEEDS_ZOOKEEPER
]


@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_an_example_of_the_documentation_runs(block, broker_session):
    exec(compile(block.text.replace("127.0.0.1:9092", broker_session.bootstrap), str(block), "exec"), {})


def test_the_example_of_a_secured_cluster_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    [block] = [one for one in blocks(ROOT / "docs/client-security.md") if one.language == "python"]
    with LocalBroker(security="SASL_SSL") as broker:
        broker.create_topic("orders")
        properties = "".join(f"{name}={value}\n" for name, value in broker.client_properties.items())
        (tmp_path / "prod.properties").write_text(properties, encoding="utf-8")
        exec(compile(block.text.replace("kafka-1:9093", broker.bootstrap), str(block), "exec"), {})
    assert capsys.readouterr().out == "['orders']\n"
