"""`millrace consume` as a user runs it: transactions, groups, formats, schemas."""

import re
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest

from millrace.testing.broker import BrokerProcess

MILLRACE = str(Path(sys.executable).with_name("millrace"))
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for all tests here; each has a topic of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


@pytest.fixture
def topic(request):
    return re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)


@pytest.fixture
def run(broker):
    """Runs a command to its end."""

    def command(*arguments, stdin=b""):
        given = [MILLRACE, *arguments, "--bootstrap", broker.bootstrap]
        return subprocess.run(given, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False)

    return command


@pytest.fixture
def millrace(run):
    """Runs a command that must succeed and say nothing on stderr; its stdout."""

    def command(*arguments, stdin=b""):
        result = run(*arguments, stdin=stdin)
        assert (result.returncode, result.stderr) == (0, b"")
        return result.stdout

    return command


@pytest.fixture
def refused(run):
    """Runs a command that must fail and print nothing; its one line of stderr."""

    def command(*arguments, stdin=b""):
        result = run(*arguments, stdin=stdin)
        assert (result.returncode, result.stdout) == (1, b"")
        (line,) = result.stderr.decode().splitlines()
        assert line.startswith("millrace: ")
        return line

    return command


@pytest.fixture
def transactions(broker, topic, millrace):
    """A topic with a committed record, an aborted one and an open one; the producer."""
    millrace("topics", "create", topic, "--partitions", "1")
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for value, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0
        end(60)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(60) == 0
    return producer


def test_only_committed_records_are_printed_up_to_the_last_stable_offset(millrace, topic, transactions):
    assert millrace("consume", topic) == b"kept\n"
    assert millrace("consume", topic, "--from", "latest") == b""
    assert millrace("consume", topic, "--isolation-level", "read_uncommitted") == b"kept\ndropped\nopen\n"
    transactions.commit_transaction(60)
    assert millrace("consume", topic) == b"kept\nopen\n"


def test_following_goes_on_when_an_open_transaction_ends(broker, topic, transactions):
    command = [MILLRACE, "consume", topic, "--follow", "--max-messages", "2", "--bootstrap", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as follower:
        assert follower.stdout.readline() == b"kept\n"
        transactions.commit_transaction(60)
        assert follower.communicate(timeout=TIMEOUT_S)[0] == b"open\n"
        assert follower.returncode == 0
