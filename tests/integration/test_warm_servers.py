"""Servers of warm programs: one serves all processes of a run, and ends with the run."""

import os
import socket

import pytest

from millrace_support.waiting import until
from millrace_support.warm_servers import WarmServers, folder_of_servers


@pytest.mark.parametrize("name", ["warm_broker_server", "warm_command_server"])
def test_a_server_is_started_once_and_ends_with_the_run(tmp_path, name):
    kept = tmp_path / "socket"
    with folder_of_servers() as folder:
        address = WarmServers(folder).address_of(name)
        assert WarmServers(folder).address_of(name) == address
        os.link(address, kept)  # the folder goes with the run
        assert listens(kept)
    until(lambda: not listens(kept))


def listens(address):
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(address)) == 0
