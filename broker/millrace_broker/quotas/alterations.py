"""What the properties of an entity become when its quotas are altered (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millrace.errors import InvalidRequestError
from millrace_broker.quotas.entities import ADDRESS, Entity
from millrace_broker.quotas.kinds import ADDRESS_QUOTAS, CLIENT_QUOTAS, QuotaType

EPSILON = 1e-6
PLAIN_FROM, PLAIN_BELOW = 1e-3, 1e7  # numbers that Java writes without an exponent


class Operation(NamedTuple):
    """Sets a quota, or removes it where the value is None."""

    key: str
    value: float | None


def altered(config: Mapping[str, str], entity: Entity, operations: Iterable[Operation]) -> dict[str, str]:
    """Returns the properties afterwards; credentials and other quotas stay. Raises InvalidRequestError."""
    types = ADDRESS_QUOTAS if ADDRESS in entity else CLIENT_QUOTAS
    after = dict(config)
    for key, value in operations:
        if value is None:
            if key in types:
                after.pop(key, None)
        elif key not in types:
            raise InvalidRequestError(f"{key} is not a quota of this entity; these are: {', '.join(types)}")
        else:
            after[key] = _text(key, value, types[key])
    return after


def _text(key: str, value: float, kind: QuotaType) -> str:
    if not value >= 0:
        raise InvalidRequestError(f"Configuration {key} must be a {kind.name} value of 0 or more, not {value:g}")
    if kind.maximum is None:
        return java_double(value)
    whole = int(min(value + EPSILON, kind.maximum))
    if abs(whole - value) > EPSILON:
        raise InvalidRequestError(
            f"Configuration {key} must be a {kind.name} value, not {value!r}: {key} cannot be a fractional value."
        )
    return str(whole)


def java_double(value: float) -> str:
    """Returns a number of 0 or more as Java's Double.toString writes it: 0.5, 200.0, 1.0E10, Infinity."""
    if value == float("inf"):
        return "Infinity"
    if value == 0 or PLAIN_FROM <= value < PLAIN_BELOW:
        return repr(value)
    from decimal import Decimal  # noqa: PLC0415 -- for numbers that few quotas have

    number = Decimal(repr(value)).normalize()
    first, *others = map(str, number.as_tuple().digits)
    return f"{first}.{''.join(others) or '0'}E{number.adjusted()}"
