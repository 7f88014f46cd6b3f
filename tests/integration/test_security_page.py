"""The hardened broker of docs/security.md starts as it is written, and serves those whom the page lets in."""

import os
import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import confluent_kafka
import pytest

from millrace.ports import free_port
from millrace.testing.broker import BrokerProcess
from millrace_support.certificates import Authority

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
PASSWORDS = {"broker": "a long secret", "admin": "another secret", "alice": "alice's own"}
TIMEOUT_S = 60


def block(language, having):
    """The block of the page that has a text."""
    [found] = [text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if having in text]
    return found


@pytest.fixture
def place(tmp_path, zookeeper):
    """A folder with the page's files, whose addresses are free ones."""
    address = f"{zookeeper.address}/{uuid4().hex}"
    files = Authority().issue().write(tmp_path)
    (tmp_path / "broker.pem").write_bytes(files.key_store_pem.read_bytes())
    (tmp_path / "ca.pem").write_bytes(files.trust_store_pem.read_bytes())
    ports = {port: str(free_port("127.0.0.1")) for port in ("9093", "9094")}
    for name, having in (("server.properties", "inter.broker.listener.name"), ("admin.properties", "another secret")):
        text = block("properties", having).replace("zk:2181", address)
        for told, free in ports.items():
            text = text.replace(told, free)
        (tmp_path / name).write_text(re.sub(r"=(broker|ca)\.pem", rf"={tmp_path}/\1.pem", text))
    return tmp_path, address, f"127.0.0.1:{ports['9093']}"


def millrace(line, folder, **environment):
    """Runs a command of the page; a password is given by standard input."""
    words = line.split()
    password = PASSWORDS.get(words[3], "") if words[1:3] == ["users", "create"] else ""
    command = [sys.executable, "-c", "from millrace_ops.cli.main import main; main()", *words[1:]]
    done = subprocess.run(
        command,
        input=password,
        cwd=folder,
        env=os.environ | environment,
        text=True,
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, (line, done.stdout, done.stderr)


def client(bootstrap, folder, user, **settings):
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
        "ssl.ca.location": str(folder / "ca.pem"),
        "log_level": 0,
        **settings,
    }


def test_the_hardened_broker_serves_whom_the_page_lets_in(place):
    folder, zookeeper, bootstrap = place
    for line in block("sh", "create broker").splitlines():
        millrace(line.replace("zk:2181", zookeeper), folder)
    program = ("-m", "millrace_broker", "--config", str(folder / "server.properties"))
    [listeners] = re.findall("^listeners=(.*)$", (folder / "server.properties").read_text(), re.MULTILINE)
    properties = {"listeners": listeners}
    with BrokerProcess(folder / "data", zookeeper=zookeeper, program=program, properties=properties) as broker:
        assert broker.bootstrap == bootstrap
        environment = {"MILLRACE_CLIENT_CONFIG": "admin.properties", "MILLRACE_BOOTSTRAP": bootstrap}
        _, *lines = block("sh", "export").splitlines()
        for line in lines:
            millrace(line, folder, **environment)
        producer = confluent_kafka.Producer(client(bootstrap, folder, "alice"))
        producer.produce("orders", b"one")
        assert producer.flush(TIMEOUT_S) == 0
        consumer = confluent_kafka.Consumer(client(bootstrap, folder, "alice", **{"group.id": "g"}))
        consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
        refused = confluent_kafka.KafkaError
        first = iter(lambda: consumer.poll(TIMEOUT_S).error().code(), refused.TOPIC_AUTHORIZATION_FAILED)
        assert set(first) <= {
            refused.GROUP_AUTHORIZATION_FAILED
        }  # the client may look for the group's coordinator first
        consumer.close()
        anonymous = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        with pytest.raises(confluent_kafka.KafkaException):
            anonymous.list_topics(timeout=5)
