"""Servers of warm programs: one serves all processes of a run, and ends with the run."""

import os
import socket
import time

import pytest

from millrace_support.warm_servers import WarmServers, folder_of_servers

PATIENCE_S = 120


@pytest.mark.parametrize("name", ["warm_broker_server", "warm_command_server"])
def test_a_server_is_started_once_and_ends_with_the_run(tmp_path, name):
    kept = tmp_path / "socket"
    with folder_of_servers() as folder:
        address = WarmServers(folder).address_of(name)
        assert WarmServers(folder).address_of(name) == address
        os.link(address, kept)  # the folder goes with the run
        assert listens(kept)
    deadline = time.monotonic() + PATIENCE_S
    while listens(kept):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def listens(address):
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(address)) == 0
