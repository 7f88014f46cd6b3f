"""The one door to `kio`, which decodes and encodes all messages that are not handled by hand.

The schemas are kio's too, except for those of `wire.controller_apis` and `wire.token_apis`, which are declared there.

A message is built from plain mappings: names are kio's, names that a version does not have are left out, names that are
not given take the protocol's defaults. Decoded messages are kio's frozen dataclasses; a field that a version lacks has
the protocol's default there too (`wire.absent_fields`). So one handler serves all versions of its API.

`wire.messages` offers the same with the types of each API. Here nothing is typed, for tools that go through all APIs.
"""

from __future__ import annotations

import dataclasses
import io
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from millrace.errors import InvalidRequestError, MalformedRequestError
from millrace.extras import hidden
from millrace.wire.absent_fields import ABSENT_FIELDS
from millrace.wire.api import ApiKey, VersionRange, is_flexible
from millrace.wire.controller_apis import CONTROLLER_APIS
from millrace.wire.declaration import entity_type
from millrace.wire.decoder import MAX_ELEMENTS
from millrace.wire.encoder import shortened
from millrace.wire.schema import SchemaField, Walk, walker
from millrace.wire.token_apis import TOKEN_APIS

with hidden("hypothesis"):  # where it is installed, kio makes strategies of its types: a quarter of a broker's start
    from kio.index import load_payload_module
    from kio.schema.errors import ErrorCode
    from kio.schema.index import api_key_map, schema_name_map
    from kio.serial import entity_reader, entity_writer
    from kio.serial.errors import SerialError
    from kio.static.constants import EntityType

Fields = Mapping[str, Any]
Convert = Callable[[Any], Any]
Read = Callable[[Any, int], tuple[Any, int]]
DECLARED_APIS = {**CONTROLLER_APIS, **TOKEN_APIS}


class Direction(Enum):
    """Tells an API's two messages apart."""

    REQUEST = EntityType.request
    RESPONSE = EntityType.response


def decode(api_key: int, version: int, direction: Direction, body: memoryview | bytes) -> Any:
    """Returns the message in `body`; raises MalformedRequestError where the bytes are no such message."""
    return decoder(api_key, version, direction)(body)


@cache
def decoder(
    api_key: int, version: int, direction: Direction, *, may_have_many: bool = False
) -> Callable[[memoryview | bytes], Any]:
    """Returns `decode` for one version, made once; a request has at most `MAX_ELEMENTS`, unless it `may_have_many`."""
    walk, read = _reader(api_key, version, direction)
    max_elements = MAX_ELEMENTS if direction is Direction.REQUEST and not may_have_many else sys.maxsize

    def decode_body(body: memoryview | bytes) -> Any:
        try:
            message, _ = read(walk(body, max_elements), 0)
        except (SerialError, ValueError, OverflowError) as error:
            name = f"{ApiKey(api_key).name} v{version} {direction.name.lower()}"
            raise MalformedRequestError(f"{name} can't be decoded: {error}") from error
        return message

    return decode_body


def encode(api_key: int, version: int, direction: Direction, fields: Fields) -> bytes:
    """Returns the bytes of a message without its header."""
    entity = _entity_type(api_key, version, direction)
    buffer = io.BytesIO()
    entity_writer(entity)(buffer, _build(entity, fields))
    return buffer.getvalue()


def encode_request(api_key: int, version: int, fields: Fields) -> bytes:
    """Returns the bytes of a client's request; raises InvalidRequestError for a value that its field can't hold."""
    try:
        return encode(api_key, version, Direction.REQUEST, fields)
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"{error.object!r} is no text in UTF-8") from error
    except (struct.error, OverflowError, SerialError) as error:
        raise InvalidRequestError(f"{ApiKey(api_key).name}: a value does not fit its field: {error}") from error


def warm(api_key: int, version: int) -> None:
    """Makes the codecs of an API ahead of its first request, which would wait some milliseconds for them."""
    _reader(api_key, version, Direction.REQUEST)
    entity = _entity_type(api_key, version, Direction.RESPONSE)
    entity_writer(entity)
    _converters(entity)


def schema(api_key: int, version: int, direction: Direction) -> tuple[bool, tuple[SchemaField, ...]]:
    """Returns whether the version is flexible, and its fields in their order on the wire."""
    entity = _entity_type(api_key, version, direction)
    return entity.__flexible__, _schema(entity)


def schema_versions(api_key: int) -> VersionRange:
    """Returns the versions that there is a schema for."""
    if api_key in DECLARED_APIS:
        return DECLARED_APIS[api_key].versions
    versions = schema_name_map[api_key_map[api_key]]
    return VersionRange(min(versions), max(versions))


def api_names() -> dict[int, str]:
    """Returns the name of every API of the protocol, served or not, by its key."""
    declared = {key: ApiKey(key).name for key in DECLARED_APIS}
    return {key: _camel_case(name) for key, name in {**api_key_map, **declared}.items()}


def milliseconds(duration: timedelta) -> int:
    """Returns a duration in whole milliseconds, as the protocol counts it."""
    return duration // timedelta(milliseconds=1)


@cache
def _reader(api_key: int, version: int, direction: Direction) -> tuple[Walk, Read]:
    is_flexible, fields = schema(api_key, version, direction)
    entity = _entity_type(api_key, version, direction)
    _add_absent_fields(entity, ABSENT_FIELDS.get(api_key, {}))
    return walker(fields, is_flexible=is_flexible), entity_reader(entity)


def _add_absent_fields(entity: Any, absent_fields: Mapping[str, Mapping[str, object]]) -> None:
    """Gives the fields that a version lacks to the class: its objects have slots for the others alone."""
    for name, value in absent_fields.get(entity.__name__, {}).items():
        if not hasattr(entity, name):
            setattr(entity, name, value)
    for field in dataclasses.fields(entity):
        inner, _ = _inner_type(field.type)
        if dataclasses.is_dataclass(inner):
            _add_absent_fields(inner, absent_fields)


@cache
def _entity_type(api_key: int, version: int, direction: Direction) -> Any:
    declared = DECLARED_APIS.get(api_key)
    if declared is not None:
        structure = declared.request if direction is Direction.REQUEST else declared.response
        return entity_type(structure, version, is_flexible=is_flexible(api_key, version))
    module = load_payload_module(api_key, version, direction.value)
    return getattr(module, f"{_camel_case(api_key_map[api_key])}{direction.name.capitalize()}")


def _camel_case(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _build(entity: Any, values: Fields) -> Any:
    return entity(**{name: convert(values[name]) for name, convert in _converters(entity) if name in values})


@cache
def _converters(entity: Any) -> tuple[tuple[str, Convert], ...]:
    return tuple((field.name, _converter(field)) for field in dataclasses.fields(entity))


def _converter(field: dataclasses.Field[Any]) -> Convert:
    inner, repeated = _inner_type(field.type)
    kafka_type = field.metadata.get("kafka_type", "")
    if dataclasses.is_dataclass(inner):
        convert: Convert = lambda value: None if value is None else _build(inner, value)  # noqa: E731
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


def _schema(entity: Any) -> tuple[SchemaField, ...]:
    return tuple(_schema_field(field) for field in dataclasses.fields(entity))


def _schema_field(field: dataclasses.Field[Any]) -> SchemaField:
    inner, repeated = _inner_type(field.type)
    is_struct = dataclasses.is_dataclass(inner)
    return SchemaField(
        field.name,
        "struct" if is_struct else field.metadata["kafka_type"],
        repeated,
        _is_nullable(field),
        field.metadata.get("tag"),
        _schema(inner) if is_struct else (),
        inner.__name__ if is_struct else "",
        field.default,
    )


def _is_nullable(field: dataclasses.Field[Any]) -> bool:
    return type(None) in get_args(field.type)


def _inner_type(annotation: Any) -> tuple[Any, bool]:
    """Returns the type inside of optional and tuple, and whether it was an array."""
    repeated = False
    while True:
        origin = get_origin(annotation)
        if origin in (Union, UnionType):
            annotation = next(inner for inner in get_args(annotation) if inner is not type(None))
        elif origin is tuple:
            annotation, repeated = get_args(annotation)[0], True
        else:
            return annotation, repeated
