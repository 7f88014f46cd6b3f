"""Fixtures that start real parts: each test gets what it needs on free ports, and nothing is left behind.

A test marked `soak(rounds=N, minutes=M)` has two forms. Its fixture `rounds` counts from 0: to N as a rule,
with `--soak` for M minutes. What it has recorded by `record_property` is then printed at the end.
"""

import time

import pytest

from millrace.testing.broker import BrokerProcess
from millrace.zk.embedded import EmbeddedZooKeeper


def pytest_addoption(parser):
    parser.addoption("--soak", action="store_true", help="tests marked `soak` run for their minutes")


def pytest_terminal_summary(terminalreporter, config):
    if config.getoption("--soak"):
        terminalreporter.section("what was done")
        for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
            figures = ", ".join(f"{name} {value}" for name, value in report.user_properties)
            terminalreporter.line(f"{report.outcome} {report.nodeid} in {report.duration:.0f} s: {figures}")


@pytest.fixture
def rounds(request):
    """The numbers of the rounds that a test marked `soak` is to run."""
    kwargs = request.node.get_closest_marker("soak").kwargs
    is_long = request.config.getoption("--soak")

    def count():
        number, deadline = 0, time.monotonic() + 60 * kwargs["minutes"]
        while time.monotonic() < deadline if is_long else number < kwargs["rounds"]:
            yield number
            number += 1

    return count()


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
