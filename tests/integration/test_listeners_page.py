"""docs/listeners.md: its commands make certificates, and its broker starts with them as it is written there."""

import subprocess

import pytest
from confluent_kafka.admin import AdminClient

from millrace.ports import free_port
from millrace.testing.broker import BrokerProcess
from millrace_support.pages import ROOT, blocks

PAGE = ROOT / "docs" / "listeners.md"
WAIT_S = 60


def texts(heading, language):
    """The blocks below a heading that are in a language."""
    return [one.text for one in blocks(PAGE) if one.heading == heading and one.language == language]


def properties(block):
    return dict(line.split("=", 1) for line in block.splitlines())


@pytest.fixture
def folder(tmp_path):
    for block in texts("Certificates", "sh"):
        subprocess.run(["bash", "-e", "-c", block], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_a_client_of_the_page_reaches_the_broker_of_the_page(folder):
    broker_block, client_block, _ = texts("A broker with TLS", "properties")
    plain, secure = (f"127.0.0.1:{free_port()}" for _ in range(2))
    given = properties(broker_block.replace("127.0.0.1:9092", plain).replace("127.0.0.1:9093", secure))
    given = {name: str(folder / value) if name.endswith(".location") else value for name, value in given.items()}
    client = {
        name: str(folder / value) if name.endswith(".location") else value
        for name, value in properties(client_block).items()
    }
    with BrokerProcess(folder / "data", properties=given) as broker:
        assert broker.bootstrap == plain
        admin = AdminClient({"bootstrap.servers": secure, **client})
        [one] = admin.list_topics(timeout=WAIT_S).brokers.values()
        assert f"{one.host}:{one.port}" == secure
