"""What an IncrementalAlterConfigs operation makes of a configuration, as a pure function (KIP-339).

    SET        the value replaces whatever there was          DELETE     the layer below holds again
    APPEND     elements that are not in the list yet          SUBTRACT   elements leave the list

A list that this layer does not have is, for the last two, the property's default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from millrace.config import ConfigKey, ConfigType
from millrace.errors import InvalidConfigError, InvalidRequestError


class OperationType(IntEnum):
    """The protocol's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Operation(NamedTuple):
    """What shall become of one property."""

    name: str
    type: int
    value: str | None


def apply_operations(
    properties: Mapping[str, str], operations: Iterable[Operation], keys: Mapping[str, ConfigKey]
) -> dict[str, str]:
    """The configuration afterwards; its names and values are not checked. InvalidRequestError, InvalidConfigError."""
    changed = dict(properties)
    for name, number, value in operations:
        operation = _type_of(name, number)
        if operation is OperationType.DELETE:
            changed.pop(name, None)
        elif value is None:
            raise InvalidRequestError(f"{name}: null value not supported")
        elif operation is OperationType.SET:
            changed[name] = value
        else:
            changed[name] = _changed_list(_list_key(keys, name, operation), changed.get(name), operation, value)
    return changed


def _type_of(name: str, number: int) -> OperationType:
    try:
        return OperationType(number)
    except ValueError:
        raise InvalidRequestError(f"{name}: operation {number} is not known") from None


def _list_key(keys: Mapping[str, ConfigKey], name: str, operation: OperationType) -> ConfigKey:
    key = keys.get(name)
    if key is None:
        raise InvalidConfigError(f"unknown config name: {name}")
    if key.type is not ConfigType.LIST:
        raise InvalidConfigError(f"{name}: {operation.name.lower()} is not allowed, as it is no list")
    return key


def _changed_list(key: ConfigKey, text: str | None, operation: OperationType, value: str) -> str:
    before = _elements(str(key.default) if text is None else text)
    given = _elements(value)
    if operation is OperationType.APPEND:
        return ",".join([*before, *(one for one in given if one not in before)])
    return ",".join(one for one in before if one not in given)


def _elements(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]
