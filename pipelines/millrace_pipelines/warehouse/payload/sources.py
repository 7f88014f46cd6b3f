"""The fields of a declared schema, and the decoders of the schemas that values were written with."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import Protocol

import pyarrow as pa

from millrace_pipelines.arrow import Field
from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.avro.decoder import avro_decoder
from millrace_pipelines.warehouse.payload.conform import merged
from millrace_pipelines.warehouse.payload.json.schema import json_schema_fields
from millrace_pipelines.warehouse.payload.outcome import Decoded
from millrace_pipelines.warehouse.payload.protobuf.decoder import protobuf_decoder
from millrace_pipelines.warehouse.payload.protobuf.descriptors import compile_proto
from millrace_pipelines.warehouse.payload.registry import (
    FileRegistry,
    Format,
    HttpRegistry,
    RegisteredSchema,
)
from millrace_pipelines.warehouse.payload.schema import PayloadSchema, check_event_column

MAX_CACHED = 256
MAIN_PROTO = "main.proto"


class Decoder(Protocol):
    """Decodes values of one schema; `fields` are its columns, `without_column` names its other fields."""

    fields: list[Field]
    without_column: list[str]

    def decode(self, values: pa.BinaryArray, /) -> Decoded:
        """Decodes a binary array without nulls."""
        ...


@lru_cache(maxsize=16)
def registry_at(address: str) -> HttpRegistry | FileRegistry:
    """Returns the registry at an address, or in a directory."""
    return HttpRegistry(address) if "://" in address else FileRegistry(address)


def plain_decoder(schema: PayloadSchema) -> Decoder:
    """Returns the decoder of unframed values in Avro or Protobuf; raises SchemaError where the schema can't be used."""
    if schema.format is Format.AVRO:
        return avro_decoder(schema.text or "")
    return protobuf_decoder(_unpacked(schema.text or ""), schema.message)


def _unpacked(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise SchemaError(f"not a Protobuf descriptor set in base64: {error}") from error


def registered_decoder(schema: RegisteredSchema, path: tuple[int, ...] = (0,)) -> Decoder:
    """Returns the decoder of framed values; `path` leads to a Protobuf message's type."""
    if schema.format is Format.AVRO:
        return avro_decoder(schema.text, tuple(text for _, text in schema.references))
    return protobuf_decoder(compiled(schema), None, path)


@lru_cache(maxsize=MAX_CACHED)
def compiled(schema: RegisteredSchema) -> bytes:
    """Returns the descriptor set of a registered Protobuf schema; raises SchemaError where protoc refuses it."""
    return compile_proto(MAIN_PROTO, {MAIN_PROTO: schema.text, **dict(schema.references)})


def source_fields(schema: PayloadSchema, versions: Sequence[RegisteredSchema]) -> list[Field]:
    """Returns the fields of a table's columns, by their names: those declared, or those of all versions of the schema.

    Raises:
        SchemaError: A field has no column type, or the name of a column of the envelope; or the schema is not valid.
        SchemaChangedError: Versions of the schema contradict one another.
    """
    if schema.fields:
        return schema.named([schema.fields])[0]
    if schema.format is Format.RAW:
        return []
    fields = [*map(version_fields, versions)] if versions else [_own_fields(plain_decoder(schema))]
    columns = reduce(merged, schema.named(fields))
    if schema.event_time is not None:
        check_event_column(schema.event_time, pa.schema(columns))
    return columns


def version_fields(schema: RegisteredSchema) -> list[Field]:
    """Returns the fields of one version of a schema; raises SchemaError where one has no column type."""
    if schema.format is Format.JSON:
        return json_schema_fields(schema.text)
    return _own_fields(registered_decoder(schema))


def _own_fields(decoder: Decoder) -> list[Field]:
    if decoder.without_column:
        raise SchemaError(
            f"field {decoder.without_column[0]}: a choice of several types, or a type within itself, has no column; "
            "declare the other fields to load without it"
        )
    return decoder.fields


def versions_of(schema: PayloadSchema, topic: str) -> Sequence[RegisteredSchema]:
    """Returns all versions that the registry has of the declared subject; none where no registry is declared.

    Raises:
        UnknownSchemaError: It has no such subject.
        RegistryError: It can't be asked.
        SchemaError: A version is of another format than declared.
    """
    if schema.registry is None:
        return ()
    subject = schema.subject or f"{topic}-value"
    versions = registry_at(schema.registry).versions(subject)
    for version in versions:
        if version.format is not schema.format:
            raise SchemaError(f"subject {subject}: schema {version.schema_id} is {version.format}, not {schema.format}")
    if not versions:
        raise SchemaError(f"subject {subject} has no version")
    return versions
