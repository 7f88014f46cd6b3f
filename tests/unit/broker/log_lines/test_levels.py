"""Levels of loggers are told and changed as in Apache Kafka (KIP-412)."""

import logging

import pytest

from millrace.errors import InvalidConfigError, InvalidRequestError
from millrace_broker.log_lines.levels import LoggerLevels


@pytest.fixture
def manager():
    """Loggers that are not those of this process."""
    return logging.Manager(logging.RootLogger(logging.INFO))


@pytest.fixture
def loggers(manager):
    manager.getLogger("broker.net.server")
    manager.getLogger("zookeeper").setLevel(logging.WARNING)
    return LoggerLevels(manager)


def test_a_logger_has_the_level_of_the_nearest_one_above_that_has_one(loggers):
    assert loggers.levels() == {
        "root": "INFO",
        "broker": "INFO",
        "broker.net": "INFO",
        "broker.net.server": "INFO",
        "zookeeper": "WARN",
    }
    loggers.change({"broker": "DEBUG"})
    assert loggers.levels()["broker.net.server"] == "DEBUG"
    loggers.change({"broker.net.server": "FATAL"})
    assert loggers.levels()["broker.net"] == "DEBUG"
    assert loggers.levels()["broker.net.server"] == "FATAL"
    loggers.change({"broker": None, "broker.net.server": None, "root": "TRACE"})
    assert loggers.levels()["broker.net.server"] == "TRACE"


def test_what_is_changed_is_obeyed(loggers, manager):
    logger = manager.getLogger("broker.net.server")
    assert not logger.isEnabledFor(logging.DEBUG)
    loggers.change({"broker": "DEBUG"})
    assert logger.isEnabledFor(logging.DEBUG)


@pytest.mark.parametrize(
    ("levels", "error", "message"),
    [
        ({"nobody": "INFO"}, InvalidConfigError, "logger nobody does not exist"),
        ({"nobody": None}, InvalidConfigError, "logger nobody does not exist"),
        ({"broker": "loud"}, InvalidConfigError, "broker=loud: not a log level; there are FATAL, ERROR"),
        ({"broker": "info"}, InvalidConfigError, "broker=info: not a log level"),
        ({"root": None}, InvalidRequestError, "Removing the log level of the root logger is not allowed"),
    ],
)
def test_what_can_not_be_changed_is_named(loggers, levels, error, message):
    with pytest.raises(error, match=message):
        loggers.check(levels)


def test_a_level_between_those_with_names_is_told_as_the_next_one_above(loggers, manager):
    manager.getLogger("zookeeper").setLevel(25)
    assert loggers.levels()["zookeeper"] == "WARN"
