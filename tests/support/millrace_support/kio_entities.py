"""Makes kio's objects of fields as `wire.cold.encode` takes them: what decoding their bytes gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

from kio.schema.errors import ErrorCode

from millrace.wire.encoder import shortened
from millrace.wire.kio_schemas import inner_type
from millrace.wire.schema_writer import Fields

Convert = Callable[[Any], Any]


def entity_of(entity_type: Any, values: Fields) -> Any:
    """Returns the object of a class."""
    return entity_type(**{name: convert(values[name]) for name, convert in _converters(entity_type) if name in values})


@cache
def _converters(entity_type: Any) -> tuple[tuple[str, Convert], ...]:
    return tuple((field.name, _converter(field)) for field in dataclasses.fields(entity_type))


def _converter(field: dataclasses.Field[Any]) -> Convert:
    inner, repeated = inner_type(field.type)
    kafka_type = field.metadata.get("kafka_type", "")
    if dataclasses.is_dataclass(inner):
        convert: Convert = lambda value: None if value is None else entity_of(inner, value)  # noqa: E731
    elif field.name == "error_message":
        convert = shortened
    elif kafka_type == "error_code":
        convert = ErrorCode
    elif kafka_type.startswith("timedelta"):
        convert = lambda value: timedelta(milliseconds=value)  # noqa: E731
    else:
        convert = lambda value: value  # noqa: E731
    return (lambda values: _each(convert, values)) if repeated else convert


def _each(convert: Convert, values: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(map(convert, values))
