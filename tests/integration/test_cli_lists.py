"""Lists at a terminal: nothing is told in a sentence, a topic is one line; a program gets what it can read."""

import json
import os
import pty
import subprocess

import pytest

from millrace.client import Admin, Cluster
from millrace.testing.broker import BrokerProcess

TIMEOUT_S = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


def shown(command):
    """Returns what a command shows at a terminal of 80 columns."""
    master, terminal = pty.openpty()
    subprocess.run(command, stdout=terminal, env={**os.environ, "COLUMNS": "80"}, timeout=TIMEOUT_S, check=True)
    os.close(terminal)
    output = os.read(master, 10_000).decode()
    os.close(master)
    return output


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("topics", "there is no topic"),
        ("groups", "there is no group"),
        ("users", "there is no user"),
        ("quotas", "no quota is set"),
    ],
)
def test_a_list_of_nothing_says_so_at_a_terminal_alone(broker, warm_millrace, command, said):
    listing = [warm_millrace, command, "list", "--bootstrap", broker.bootstrap]
    assert shown(listing) == f"{said}\r\n"
    header = subprocess.check_output(listing, timeout=TIMEOUT_S).decode()
    assert (header.count("\n"), said in header) == (1, False)
    assert json.loads(subprocess.check_output([*listing, "--json"], timeout=TIMEOUT_S)) == []


def test_a_topic_is_one_line_of_a_narrow_terminal_and_has_its_id_elsewhere(broker, warm_millrace):
    name = "orders-of-all-shops-in-europe"
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(name, 3)
        topic_id = str(cluster.metadata([name]).topic(name).topic_id)
    listing = [warm_millrace, "topics", "list", "--bootstrap", broker.bootstrap]
    line = next(one for one in shown(listing).splitlines() if name in one)
    assert line.split() == [name, "3", "1", "0", "0"]
    assert topic_id in subprocess.check_output(listing, timeout=TIMEOUT_S).decode()
