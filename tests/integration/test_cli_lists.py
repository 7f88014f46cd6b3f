"""Lists of nothing: a person at a terminal is told so in a sentence, and a program gets what it can read."""

import json
import os
import pty
import subprocess

import pytest

from millrace.testing.broker import BrokerProcess

TIMEOUT_S = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


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
    master, terminal = pty.openpty()
    subprocess.run(listing, stdout=terminal, timeout=TIMEOUT_S, check=True)
    os.close(terminal)
    assert os.read(master, 10_000).decode() == f"{said}\r\n"
    os.close(master)
    header = subprocess.check_output(listing, timeout=TIMEOUT_S).decode()
    assert (header.count("\n"), said in header) == (1, False)
    assert json.loads(subprocess.check_output([*listing, "--json"], timeout=TIMEOUT_S)) == []
