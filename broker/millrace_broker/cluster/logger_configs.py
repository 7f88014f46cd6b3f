"""Describes and changes the levels of this broker's loggers as the configuration of a resource (KIP-412)."""

from __future__ import annotations

from collections.abc import Iterable

from millrace.config import ConfigKey
from millrace.errors import InvalidRequestError
from millrace_broker.cluster.config_changes import Operation, OperationType
from millrace_broker.cluster.config_sources import ConfigEntry, ConfigSource
from millrace_broker.log_lines.levels import LoggerLevels

DOC = "How much this logger says: FATAL, ERROR, WARN, INFO, DEBUG or TRACE."


def logger_entries(levels: LoggerLevels) -> list[ConfigEntry]:
    """Returns the level of each logger."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    return [
        ConfigEntry(ConfigKey(name=name, default=level, doc=DOC, is_dynamic=True), level, source, ())
        for name, level in levels.levels().items()
    ]


def change_loggers(levels: LoggerLevels, operations: Iterable[Operation], *, validate_only: bool) -> None:
    """Sets and removes the levels of loggers, all of them or none.

    Raises InvalidConfigError for a logger or a level that does not exist, InvalidRequestError for an operation on lists
    and where the level of the root logger would be removed.
    """
    changes: dict[str, str | None] = {}
    for name, number, value in operations:
        if number not in (OperationType.SET, OperationType.DELETE):
            raise InvalidRequestError(f"{name}: the level of a logger can only be set or deleted")
        changes[name] = value if number == OperationType.SET else None
    levels.check(changes)
    if not validate_only:
        levels.change(changes)
