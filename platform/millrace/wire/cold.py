"""Decodes all messages that are not handled by hand, by `kio`, and encodes them by their schemas.

A message is built from plain mappings: names are kio's, names that a version does not have are left out, names that are
not given take the protocol's defaults. Decoded messages are kio's frozen dataclasses; a field that a version lacks has
the protocol's default there too (`wire.absent_fields`). So one handler serves all versions of its API.

`wire.messages` offers the same with the types of each API. Here nothing is typed, for tools that go through all APIs.
"""

from __future__ import annotations

import dataclasses
import struct
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any

from millrace.errors import InvalidRequestError, MalformedRequestError
from millrace.wire.absent_fields import ABSENT_FIELDS
from millrace.wire.api import ApiKey
from millrace.wire.decoder import MAX_ELEMENTS
from millrace.wire.kio_schemas import Direction as Direction  # noqa: PLC0414  # its callers take it from here
from millrace.wire.kio_schemas import SerialError, entity_reader, entity_type, inner_type, schema
from millrace.wire.schema import Walk, walker
from millrace.wire.schema_writer import Fields, writer

Read = Callable[[Any, int], tuple[Any, int]]


def decode(api_key: int, version: int, direction: Direction, body: memoryview | bytes) -> Any:
    """Returns the decoded body of a request or response; raises MalformedRequestError for bytes that are none."""
    return decoder(api_key, version, direction)(body)


@cache
def decoder(
    api_key: int, version: int, direction: Direction, *, may_have_many: bool = False
) -> Callable[[memoryview | bytes], Any]:
    """Returns a function that decodes the bodies of one API version's requests or responses.

    The function raises MalformedRequestError; also for a request of more than `MAX_ELEMENTS` array elements, unless it
    `may_have_many`.
    """
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
    """Returns the bytes of a request's or response's body, without its header."""
    return _writer(api_key, version, direction)(fields)


def encode_request(api_key: int, version: int, fields: Fields) -> bytes:
    """Returns the bytes of a request's body; raises InvalidRequestError for a value that its field can't hold."""
    try:
        return encode(api_key, version, Direction.REQUEST, fields)
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"{error.object!r} is no text in UTF-8") from error
    except struct.error as error:
        raise InvalidRequestError(f"{ApiKey(api_key).name}: a value does not fit its field: {error}") from error


def warm(api_key: int, version: int) -> None:
    """Makes an API version's decoder and encoder now, which takes milliseconds that its first request would wait."""
    _reader(api_key, version, Direction.REQUEST)
    _writer(api_key, version, Direction.RESPONSE)


def milliseconds(duration: timedelta) -> int:
    """Returns a duration in whole milliseconds, as the protocol counts it."""
    return duration // timedelta(milliseconds=1)


@cache
def _reader(api_key: int, version: int, direction: Direction) -> tuple[Walk, Read]:
    is_flexible, fields = schema(api_key, version, direction)
    entity = entity_type(api_key, version, direction)
    _add_absent_fields(entity, ABSENT_FIELDS.get(api_key, {}))
    return walker(fields, is_flexible=is_flexible), entity_reader(entity)


@cache
def _writer(api_key: int, version: int, direction: Direction) -> Callable[[Fields], bytes]:
    is_flexible, fields = schema(api_key, version, direction)
    return writer(fields, is_flexible=is_flexible)


def _add_absent_fields(entity: Any, absent_fields: Mapping[str, Mapping[str, object]]) -> None:
    """Sets defaults of fields that only other versions have on a message's class and its inner classes."""
    for name, value in absent_fields.get(entity.__name__, {}).items():
        if not hasattr(entity, name):
            setattr(entity, name, value)
    for field in dataclasses.fields(entity):
        inner, _ = inner_type(field.type)
        if dataclasses.is_dataclass(inner):
            _add_absent_fields(inner, absent_fields)
