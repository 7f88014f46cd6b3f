"""What a shell is given to complete a command line."""

import os
import socket
import subprocess

import pytest

from millrace.client import Admin, Cluster, Quotas, Users
from millrace_support.waiting import until

pytestmark = pytest.mark.usefixtures("warm_path")
DEADLINE_S = 120


@pytest.fixture
def complete(tmp_path):
    """Completes the last word of a line, as bash asks for it; the candidates."""

    def ask(line, **variables):
        words = line.split(" ")
        asked = {"_MILLRACE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
        environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), **asked, **variables}
        done = subprocess.run(
            ["millrace"], env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    return ask


@pytest.fixture
def answered(complete):
    """Completes as `complete` does, again while nothing comes: a busy machine takes longer than a shell waits."""

    def ask(line, **variables):
        return until(lambda: complete(line, **variables))

    return ask


@pytest.fixture(scope="module")
def topics(broker_session):
    """The names of two topics that begin alike."""
    names = ("completed-one", "completed-two")
    with Cluster(broker_session.bootstrap) as cluster:
        for name in names:
            Admin(cluster).create_topic(name, 1, 1)
    return names


def test_commands_and_options_are_completed(complete):
    assert complete("millrace topics del") == ["delete-records", "delete"]
    assert "--replication-factor" in complete("millrace topics create --re")
    assert complete("millrace offsets export g --store z") == ["zookeeper"]


def test_topics_are_completed_wherever_their_address_comes_from(answered, broker_session, topics, tmp_path):
    first, second = topics
    address = broker_session.bootstrap
    assert answered(f"millrace topics describe --bootstrap {address} completed-") == [first, second]
    assert answered("millrace topics describe completed-", MILLRACE_BOOTSTRAP=address) == [first, second]
    assert answered(f"millrace topics delete {first} completed-", MILLRACE_BOOTSTRAP=address) == [second]
    (tmp_path / "millrace").mkdir()
    (tmp_path / "millrace" / "config.toml").write_text(f'[profiles.p]\nbootstrap = "{address}"\n', encoding="utf-8")
    assert answered("millrace --profile p topics extend completed-t") == [second]


def test_users_clients_and_quotas_are_completed(answered, broker_session):
    address = broker_session.bootstrap
    with Cluster(address) as cluster:
        Quotas(cluster).alter({"user": "alice", "client-id": "app"}, {"producer_byte_rate": 1 << 30})
    assert answered("millrace quotas set --user al", MILLRACE_BOOTSTRAP=address) == ["alice"]
    assert answered("millrace quotas set --client ", MILLRACE_BOOTSTRAP=address) == ["app"]
    assert answered("millrace quotas unset con") == [
        "consumer_byte_rate",
        "controller_mutation_rate",
        "connection_creation_rate",
    ]


def test_users_are_completed(answered, broker_session):
    with Cluster(broker_session.bootstrap) as cluster:
        Users(cluster).set_password("completed-user", ["SCRAM-SHA-256"], "secret", 4096)
    assert answered("millrace users delete completed-", MILLRACE_BOOTSTRAP=broker_session.bootstrap) == [
        "completed-user"
    ]


def test_ids_of_brokers_are_completed(answered, complete, broker_session):
    assert answered("millrace brokers drain ", MILLRACE_BOOTSTRAP=broker_session.bootstrap) == ["1"]
    assert complete("millrace brokers describe 7", MILLRACE_BOOTSTRAP=broker_session.bootstrap) == []


def test_who_does_not_answer_completes_nothing_and_holds_nobody_up(complete, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert complete("millrace topics describe t", MILLRACE_BOOTSTRAP=address) == []
        assert complete("millrace groups describe g", MILLRACE_BOOTSTRAP=address) == []
    assert complete("millrace topics describe t", MILLRACE_BOOTSTRAP="no address") == []
    (tmp_path / "millrace").mkdir()
    (tmp_path / "millrace" / "config.toml").write_text("damaged", encoding="utf-8")
    assert complete("millrace topics des") == ["describe"]
