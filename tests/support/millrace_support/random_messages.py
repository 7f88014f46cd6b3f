"""Random messages of any schema, as `wire.cold.encode` takes them, and what a decoded message says in the same form.

fields = random_fields(random, schema(ApiKey.LEADER_AND_ISR, 7, Direction.REQUEST)[1])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from uuid import UUID

from millrace.error_codes import ErrorCode
from millrace.wire.schema import SchemaField

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32, "timedelta_i64": 41}
TEXTS = ("", "t", "a topic", "é" * 40, "\U0001f600", "x" * 249, "y" * 200)
MAX_ELEMENTS = 3
MAKERS: Mapping[str, Callable[[Random], object]] = {
    "bool": lambda random: random.random() < 0.5,
    "string": lambda random: random.choice(TEXTS),
    "bytes": lambda random: random.randbytes(random.choice((0, 1, 200))),
    "records": lambda random: random.randbytes(random.choice((0, 1, 200))),
    "uuid": lambda random: UUID(int=random.getrandbits(128) | 1),
    "error_code": lambda random: int(random.choice(list(ErrorCode))),
    "float64": Random.random,
    "datetime_i64": lambda random: datetime.fromtimestamp(random.getrandbits(31), UTC),
    "uint16": lambda random: random.getrandbits(16),
    "uint32": lambda random: random.getrandbits(32),
}


def random_fields(random: Random, fields: Sequence[SchemaField]) -> dict[str, object]:
    """Returns values for all fields."""
    return {one.name: _random_field(random, one) for one in fields}


def said(message: object, fields: Sequence[SchemaField]) -> dict[str, object]:
    """Returns the values of a decoded message's fields."""
    return {one.name: _said(getattr(message, one.name), one) for one in fields}


def _random_field(random: Random, one: SchemaField) -> object:
    if one.is_array:
        return [_random_value(random, one) for _ in range(random.randint(0, MAX_ELEMENTS))]
    if (one.is_nullable or one.kind == "uuid") and random.random() < 0.3:
        return None
    return _random_value(random, one)


def _random_value(random: Random, one: SchemaField) -> object:
    if one.kind == "struct":
        return random_fields(random, one.fields)
    if one.kind in MAKERS:
        return MAKERS[one.kind](random)
    limit = 1 << (BITS[one.kind] - 1)
    return random.choice((-1, 0, 1, -limit, limit - 1, random.randrange(-limit, limit)))


def _said(value: object, one: SchemaField) -> object:
    if isinstance(value, tuple):
        return [_said(element, one) for element in value]
    if one.kind == "error_code":
        return int(value)  # type: ignore[call-overload]
    return said(value, one.fields) if one.kind == "struct" and value is not None else value
