"""Applies the operations of IncrementalAlterConfigs to a configuration, as a pure function (KIP-339).

    SET        gives the property this value
    DELETE     removes the property, so that the layer below holds
    APPEND     adds the elements that the list does not have yet
    SUBTRACT   removes elements from the list

APPEND and SUBTRACT begin with the property's default where the configuration does not have the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from millrace.config import ConfigKey, ConfigType
from millrace.errors import InvalidConfigError, InvalidRequestError


class OperationType(IntEnum):
    """The numbers by which the protocol says what an operation does to a configuration (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Operation(NamedTuple):
    """An operation on one property; `type` is the protocol's number."""

    name: str
    type: int
    value: str | None


def apply_operations(
    properties: Mapping[str, str], operations: Iterable[Operation], keys: Mapping[str, ConfigKey]
) -> dict[str, str]:
    """Returns the configuration with the operations applied; names and values of the result are not checked.

    Raises InvalidRequestError for an unknown operation or a missing value, InvalidConfigError where an operation on
    lists names a property that is not a list.
    """
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
        raise InvalidConfigError(f"Unknown config name: {name}")
    if key.type is not ConfigType.LIST:
        raise InvalidConfigError(f"{name}: {operation.name.lower()} is not allowed, as it is not a list")
    return key


def _changed_list(key: ConfigKey, text: str | None, operation: OperationType, value: str) -> str:
    before = _elements(str(key.default) if text is None else text)
    given = _elements(value)
    if operation is OperationType.APPEND:
        return ",".join([*before, *(one for one in given if one not in before)])
    return ",".join(one for one in before if one not in given)


def _elements(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]
