"""Tells and changes how much each logger says, while the broker runs (KIP-412).

    FATAL < ERROR < WARN < INFO < DEBUG < TRACE

A logger without a level has that of the nearest one above it, `root` at last. Levels last until the broker stops.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from millrace.errors import InvalidConfigError, InvalidRequestError

ROOT = "root"
TRACE = 5  # a level that Python's logging does not name
LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}


class LoggerLevels:
    """Reads and changes the levels of a process's loggers, by Python's names of them."""

    def __init__(self, manager: logging.Manager = logging.root.manager) -> None:
        self._manager = manager

    def levels(self) -> dict[str, str]:
        """Returns the effective level of each logger, by the logger's name."""
        names = sorted(self._manager.loggerDict)
        return {ROOT: _name(self._manager.root.level)} | {name: _name(self._effective(name)) for name in names}

    def check(self, levels: Mapping[str, str | None]) -> None:
        """Raises InvalidConfigError for an unknown logger or level, InvalidRequestError for None as the root's."""
        for name, level in levels.items():
            if name != ROOT and name not in self._manager.loggerDict:
                raise InvalidConfigError(f"logger {name} does not exist")
            if level is not None and level not in LEVELS:
                known = ", ".join(LEVELS)
                raise InvalidConfigError(f"{name}={level}: not a log level; there are {known}")
            if level is None and name == ROOT:
                raise InvalidRequestError("Removing the log level of the root logger is not allowed")

    def change(self, levels: Mapping[str, str | None]) -> None:
        """Sets the levels of loggers; None stands for the level of the parent logger. `check` must have passed."""
        for name, level in levels.items():
            logger = self._manager.root if name == ROOT else self._manager.getLogger(name)
            logger.setLevel(logging.NOTSET if level is None else LEVELS[level])

    def _effective(self, name: str) -> int:
        parents: Iterable[str] = (name.rsplit(".", count)[0] for count in range(name.count(".") + 1))
        found = (self._manager.loggerDict.get(one) for one in parents)
        levels = (one.level for one in found if isinstance(one, logging.Logger) and one.level)
        return next(levels, self._manager.root.level)


def _name(level: int) -> str:
    """Returns the name of a numeric level, or of the next higher one that has a name."""
    return next((name for name, one in reversed(LEVELS.items()) if one >= level), "FATAL")
