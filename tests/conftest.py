"""Fixtures that start real parts: each test gets what it needs on free ports, and nothing is left behind."""

import pytest

from millrace.testing.broker import BrokerProcess
from millrace.zk.embedded import EmbeddedZooKeeper


@pytest.fixture
def broker(tmp_path):
    """A standalone broker of this test's own."""
    with BrokerProcess(tmp_path / "broker") as process:
        yield process


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory):
    """A ZooKeeper for the whole run; tests keep apart by a chroot of their own."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
