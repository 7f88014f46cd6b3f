"""Decodes values in Confluent's wire format by their schemas in a registry (`consume --schema-registry`).

fastavro reads Avro, Google's library reads Protobuf, and Python reads JSON. The result is what JSON can hold.
"""

from __future__ import annotations

import io
import json
import struct
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache

from fastavro import schemaless_reader
from fastavro.schema import SchemaParseException, UnknownType, parse_schema
from fastavro.types import NamedSchemas
from fastavro.types import Schema as AvroSchema
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from millrace.clock import Clock
from millrace.errors import InvalidRecordError, MillraceError
from millrace.json_values import JsonValue
from millrace_ops.record_values.shown import json_value
from millrace_pipelines.warehouse.errors import RegistryError, SchemaError
from millrace_pipelines.warehouse.payload.payload import (
    FRAME_BYTES,
    MAGIC,
    compiled,
    registry_at,
    split_message_indexes,
)
from millrace_pipelines.warehouse.payload.protobuf import message_descriptor
from millrace_pipelines.warehouse.payload.registry import Format, RegisteredSchema

MAX_CACHED = 256
REMEMBERED_S = 60.0
MAX_REMEMBERED = 1_000
EVERY_SCHEMA = b""
UNREADABLE = (ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, struct.error, RecursionError)


class SchemaValues:
    """Decodes values with Confluent's frame by the schemas of one registry, a URL or a directory.

    Raises:
        SchemaError: The address can't be that of a registry.
    """

    def __init__(self, address: str) -> None:
        self._registry = registry_at(address)

    def decode(self, value: bytes) -> JsonValue:
        """Returns a value, decoded, as JSON.

        Raises:
            InvalidRecordError: The value has no frame, its schema can't be used, or its bytes don't fit the schema.
            RegistryError: The registry can't be asked.
        """
        if len(value) < FRAME_BYTES or value[0] != MAGIC:
            raise InvalidRecordError("the value is not in Confluent's wire format: no 0 and schema id at its start")
        schema_id = int.from_bytes(value[1:FRAME_BYTES], "big")
        try:
            schema = self._registry.schema(schema_id)
            return json_value(_READERS[schema.format](schema, value[FRAME_BYTES:]))
        except SchemaError as error:
            raise InvalidRecordError(f"its schema {schema_id} can't be used: {error}") from error
        except (*UNREADABLE, DecodeError) as error:
            raise InvalidRecordError(f"the value is not of its schema {schema_id}: {error}") from error


def _read_avro(schema: RegisteredSchema, payload: bytes) -> object:
    source = io.BytesIO(payload)
    found = schemaless_reader(source, _avro_schema(schema), None)
    if source.tell() != len(payload):
        raise ValueError("bytes after the value's end")
    return found


@lru_cache(maxsize=MAX_CACHED)
def _avro_schema(schema: RegisteredSchema) -> AvroSchema:
    named: NamedSchemas = {}
    try:
        for _, text in schema.references:
            parse_schema(json.loads(text), named)
        return parse_schema(json.loads(schema.text), named)
    except (*UNREADABLE, SchemaParseException, UnknownType) as error:
        raise SchemaError(f"schema {schema.schema_id} is no Avro schema: {error}") from error


def _read_protobuf(schema: RegisteredSchema, payload: bytes) -> object:
    split = split_message_indexes(payload)
    if split is None:
        raise ValueError("the message indexes are not valid")
    message = _message_class(schema, split[0]).FromString(split[1])
    return MessageToDict(message, preserving_proto_field_name=True)


@lru_cache(maxsize=MAX_CACHED)
def _message_class(schema: RegisteredSchema, path: tuple[int, ...]) -> type[Message]:
    found: type[Message] = GetMessageClass(message_descriptor(compiled(schema), None, path=path))
    return found


_READERS: dict[Format, Callable[[RegisteredSchema, bytes], object]] = {
    Format.AVRO: _read_avro,
    Format.PROTOBUF: _read_protobuf,
    Format.JSON: lambda _, payload: json.loads(payload),
}


class RememberingDecoder:
    """A decoder that keeps the errors of another decoder for REMEMBERED_S, and raises them again.

    a schema that is not there or can't be used    its id is not asked for again for REMEMBERED_S
    a registry that can't be reached               it is not asked at all for REMEMBERED_S

    Values that are not framed but look framed, each with another schema id, would otherwise make a page ask for every
    record, and a registry that is down would hold up every page.
    """

    def __init__(self, decoder: SchemaValues, clock: Clock) -> None:
        self._decoder = decoder
        self._clock = clock
        self._failures: OrderedDict[bytes, tuple[float, MillraceError]] = OrderedDict()

    def decode(self, value: bytes) -> JsonValue:
        """Returns a value, decoded, as JSON; raises the other decoder's error, also one remembered for its schema."""
        schema = value[:FRAME_BYTES]
        for one in (EVERY_SCHEMA, schema):
            until_s, failure = self._failures.get(one, (0.0, None))
            if failure is not None and self._clock.monotonic_s() < until_s:
                raise failure
        try:
            return self._decoder.decode(value)
        except RegistryError as error:
            self._remember(EVERY_SCHEMA, error)
            raise
        except InvalidRecordError as error:
            if isinstance(error.__cause__, SchemaError):
                self._remember(schema, error)
            raise

    def _remember(self, schema: bytes, failure: MillraceError) -> None:
        self._failures.pop(schema, None)
        self._failures[schema] = self._clock.monotonic_s() + REMEMBERED_S, failure
        if len(self._failures) > MAX_REMEMBERED:
            self._failures.popitem(last=False)
