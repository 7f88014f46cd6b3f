"""All that a task needs to decode values into columns; the driver makes it and sends it to the tasks.

Values without a frame are all of the declared schema. Framed ones are grouped by their schema's id: the schemas that
the driver found under the subject travel with the payload, any other one is looked up by the task. A registry that
can't be asked fails the task, which is tried again; an id that it does not know makes dead letters.

Confluent's wire format names the registered schema that a value was written with:

    │ 0 │ schema id, 4 bytes, big-endian │ payload │                          Avro, JSON Schema
    │ 0 │ schema id, 4 bytes, big-endian │ message indexes │ payload │        Protobuf

Message indexes lead to the message's type: its index in the file, then inside that type, and so on; a zig-zag count
and as many zig-zag numbers, or the single byte 0 for the first type. Source: Confluent, "Wire Format".
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from millrace.errors import RecordError
from millrace.records.varint import decode_varint
from millrace_pipelines.arrow import (
    ENVELOPE_FIELDS,
    Field,
    Flags,
    Indices,
    data_of,
    flags_of,
    indices_array,
    nulls,
    octets_of,
    offsets_of,
    slices,
    values_of,
)
from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.avro.decoder import avro_decoder
from millrace_pipelines.warehouse.payload.conform import conform, merged
from millrace_pipelines.warehouse.payload.json.decoder import JsonDecoder
from millrace_pipelines.warehouse.payload.json.schema import json_schema_fields
from millrace_pipelines.warehouse.payload.outcome import Decoded, Outcome, Part, Reason, Refusal, joined, passed
from millrace_pipelines.warehouse.payload.protobuf import compile_proto, protobuf_decoder
from millrace_pipelines.warehouse.payload.registry import (
    FileRegistry,
    Format,
    HttpRegistry,
    RegisteredSchema,
    UnknownSchemaError,
)
from millrace_pipelines.warehouse.payload.schema import PayloadSchema, check_event_column
from millrace_pipelines.warehouse.payload.types import children

MAX_CACHED = 256
MAIN_PROTO = "main.proto"
FRAME_BYTES = 5
MAGIC = 0
MAX_MESSAGE_DEPTH = 32
Decode = Callable[[pa.BinaryArray], Decoded]


class Decoder(Protocol):
    """Decodes values of one schema; `fields` become columns, fields in `without_column` have no column type."""

    fields: list[Field]
    without_column: list[str]

    def decode(self, values: pa.BinaryArray, /) -> Decoded:
        """Decodes each value of a binary array without nulls into columns; one that does not fit becomes a refusal."""
        ...


@lru_cache(maxsize=16)
def registry_at(address: str) -> HttpRegistry | FileRegistry:
    """Returns the schema registry at a URL, or in a directory."""
    return HttpRegistry(address) if "://" in address else FileRegistry(address)


def plain_decoder(schema: PayloadSchema) -> Decoder:
    """Returns the Avro or Protobuf decoder of values without a frame; raises SchemaError for a wrong schema."""
    if schema.format is Format.AVRO:
        return avro_decoder(schema.text or "")
    return protobuf_decoder(_unpacked(schema.text or ""), schema.message)


def _unpacked(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise SchemaError(f"not a Protobuf descriptor set in base64: {error}") from error


def registered_decoder(schema: RegisteredSchema, path: tuple[int, ...] = (0,)) -> Decoder:
    """Returns the decoder of values with Confluent's frame; `path` leads to the type of a Protobuf message."""
    if schema.format is Format.AVRO:
        return avro_decoder(schema.text, tuple(text for _, text in schema.references))
    return protobuf_decoder(compiled(schema), None, path)


@lru_cache(maxsize=MAX_CACHED)
def compiled(schema: RegisteredSchema) -> bytes:
    """Returns the descriptor set of a registered Protobuf schema; raises SchemaError where protoc refuses it."""
    return compile_proto(MAIN_PROTO, {MAIN_PROTO: schema.text, **dict(schema.references)})


def source_fields(schema: PayloadSchema, versions: Sequence[RegisteredSchema]) -> list[Field]:
    """Returns the fields, named as columns, of a declaration, or of all versions of its registered schema.

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
    """Returns the fields of one version of a schema; raises SchemaError where a field has no column type."""
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
        UnknownSchemaError: The registry has no such subject.
        RegistryError: The registry can't be asked.
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


class Frames(NamedTuple):
    """Confluent's frames of values: whether each value has one, and its schema id, 0 without a frame."""

    framed: Flags
    schema_ids: Indices


def read_frames(values: pa.BinaryArray) -> Frames:
    """Reads Confluent's frames (a zero byte and a schema id) of a binary array without nulls."""
    bounds, data = offsets_of(values), octets_of(data_of(values))
    begins = bounds[:-1].astype(np.int64)
    octets = data[np.minimum(begins[:, None] + np.arange(FRAME_BYTES), data.size - 1)]
    framed = (np.diff(bounds) >= FRAME_BYTES) & (octets[:, 0] == MAGIC)
    ids = np.ascontiguousarray(octets[:, 1:]).view(">u4")[:, 0].astype(np.int64)
    return Frames(framed, np.where(framed, ids, 0))


def unframed(values: pa.BinaryArray) -> pa.BinaryArray:
    """Returns framed values without their frames; the bytes are not copied."""
    bounds = offsets_of(values)
    return slices(data_of(values), bounds[:-1] + FRAME_BYTES, bounds[1:])


def split_message_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes] | None:
    """Returns the message indexes before a Protobuf message, and the message; None where they are not valid."""
    try:
        count, position = decode_varint(payload, 0)
        if not 0 <= count <= MAX_MESSAGE_DEPTH:
            return None
        path: list[int] = []
        for _ in range(count):
            index, position = decode_varint(payload, position)
            path.append(index)
    except (RecordError, IndexError):
        return None
    return tuple(path) or (0,), payload[position:]


@dataclass(frozen=True)
class Payload:
    """Decodes values into columns, by a declaration, the payload's columns and the registered schemas by id."""

    schema: PayloadSchema
    columns: pa.Schema
    known: Mapping[int, RegisteredSchema] = field(default_factory=dict)

    @property
    def table_schema(self) -> pa.Schema:
        """Returns the columns of a data file: the envelope's, then the payload's."""
        return pa.schema([*ENVELOPE_FIELDS, *self.columns])

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a binary array; null stands for a tombstone, which gets null in each column.

        Raises:
            RegistryError: A schema's id is unknown here and the registry can't be asked.
        """
        if self.schema.format is Format.RAW:
            return Decoded(nulls(self.columns, len(values)), [])
        valid = flags_of(values.is_valid())
        indices, tombstones = np.flatnonzero(valid), np.flatnonzero(~valid)
        if not len(tombstones):
            return joined(self._outcomes(values), self.columns)
        outcomes = (_moved(outcome, indices) for outcome in self._outcomes(values.drop_null()))
        return joined([Part(tombstones, nulls(self.columns, len(tombstones))), *outcomes], self.columns)

    def _outcomes(self, values: pa.BinaryArray) -> Iterator[Outcome]:
        if self.schema.registry is not None:
            yield from self._framed(values)
        elif self.schema.format is Format.JSON:
            yield from self._decoded(values, np.arange(len(values)), self._json().decode, None)
        else:
            decoder = plain_decoder(self.schema)
            yield from self._decoded(values, np.arange(len(values)), decoder.decode, None)

    def _framed(self, values: pa.BinaryArray) -> Iterator[Outcome]:
        frames = read_frames(values)
        for row in np.flatnonzero(~frames.framed):
            yield Refusal(int(row), Reason.FRAMING, "not in Confluent's wire format: no 0 and schema id at its start")
        for schema_id in np.unique(frames.schema_ids[frames.framed]):
            indices = np.flatnonzero(frames.framed & (frames.schema_ids == schema_id))
            try:
                yield from self._of_schema(self._registered(int(schema_id)), _taken(values, indices), indices)
            except UnknownSchemaError as error:
                yield from _refused(indices, Reason.UNKNOWN_SCHEMA, str(error), int(schema_id))
            except SchemaError as error:
                yield from _refused(indices, Reason.UNUSABLE_SCHEMA, str(error), int(schema_id))

    def _registered(self, schema_id: int) -> RegisteredSchema:
        return self.known.get(schema_id) or registry_at(self.schema.registry or "").schema(schema_id)

    def _of_schema(self, schema: RegisteredSchema, values: pa.BinaryArray, indices: Indices) -> Iterator[Outcome]:
        if schema.format is not self.schema.format:
            message = f"schema {schema.schema_id} is {schema.format}, not {self.schema.format}"
            yield from _refused(indices, Reason.UNUSABLE_SCHEMA, message, schema.schema_id)
            return
        payloads = unframed(values)
        if schema.format is Format.JSON:
            # The writer's schema may have what no column can, where fields are declared.
            fields = self.schema.fields or version_fields(schema)
            yield from self._known_fields(fields, payloads, indices, self._json().decode, schema.schema_id)
        elif schema.format is Format.AVRO:
            decoder = registered_decoder(schema)
            yield from self._known_fields(decoder.fields, payloads, indices, decoder.decode, schema.schema_id)
        else:
            yield from self._protobuf(schema, payloads, indices)

    def _protobuf(self, schema: RegisteredSchema, payloads: pa.BinaryArray, indices: Indices) -> Iterator[Outcome]:
        """Decodes Protobuf messages in groups by the path to their type; nearly always there is one group."""
        by_path: dict[tuple[int, ...], tuple[list[int], list[bytes]]] = {}
        for row, payload in zip(indices.tolist(), values_of(payloads), strict=True):
            split = split_message_indexes(payload)
            if split is None:
                yield Refusal(row, Reason.FRAMING, "the message indexes are not valid", schema.schema_id)
                continue
            at, messages = by_path.setdefault(split[0], ([], []))
            at.append(row)
            messages.append(split[1])
        for path, (at, messages) in by_path.items():
            try:
                decoder = registered_decoder(schema, path)
            except SchemaError as error:
                yield from _refused(np.array(at), Reason.UNUSABLE_SCHEMA, str(error), schema.schema_id)
                continue
            array, inside = pa.array(messages, pa.binary()), np.array(at, np.int64)
            yield from self._known_fields(decoder.fields, array, inside, decoder.decode, schema.schema_id)

    def _known_fields(
        self,
        fields: Sequence[Field],
        payloads: pa.BinaryArray,
        indices: Indices,
        decode: Decode,
        schema_id: int,
    ) -> Iterator[Outcome]:
        """Decodes values, or refuses all where the table has no column yet for a field of their schema.

        Raises SchemaError for a schema whose fields can't be columns side by side.
        """
        columns = self.schema.named_version(fields)
        unknown = [] if self.schema.fields else list(_unknown(columns, self.columns, ""))
        if unknown:
            message = f"schema {schema_id} has field {unknown[0]}, for which the table has no column yet"
            yield from _refused(indices, Reason.NEWER_SCHEMA, message, schema_id)
            return
        yield from self._decoded(payloads, indices, decode, schema_id)

    def _decoded(
        self, values: pa.BinaryArray, indices: Indices, decode: Decode, schema_id: int | None
    ) -> Iterator[Outcome]:
        """Decodes values and converts them to the table's columns."""
        decoded = decode(values)
        for refusal in decoded.refusals:
            yield refusal._replace(row=int(indices[refusal.row]), schema_id=schema_id)
        kept = indices[passed(decoded.refusals, len(values))]
        table, refusals = conform(self.schema.names.renamed(decoded.columns), self.columns, self._required)
        for refusal in refusals:
            yield refusal._replace(row=int(kept[refusal.row]), schema_id=schema_id)
        yield Part(kept[passed(refusals, len(kept))] if refusals else kept, table)

    @property
    def _required(self) -> list[str]:
        return [column.name for column in self.schema.names.columns(self.schema.fields) if not column.nullable]

    def _json(self) -> JsonDecoder:
        """Returns the JSON decoder of the declared fields, else of all payload columns, in the table's types."""
        if not self.schema.fields:
            return JsonDecoder(self.schema.names.fields(self.columns))
        types = {column.name: column.type for column in self.schema.names.fields(self.columns)}
        return JsonDecoder([_in_type(declared, types[declared.name]) for declared in self.schema.fields])


def _in_type(declared: Field, data_type: pa.DataType) -> Field:
    """Returns a declared field in the type of its column; which inner fields are required stays as declared."""
    return pa.field(declared.name, _retyped(declared.type, data_type), declared.nullable)


def _retyped(declared: pa.DataType, data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(declared) and pa.types.is_struct(data_type):
        inner = {child.name: child for child in children(declared)}
        return pa.struct(
            [_in_type(inner[child.name], child.type) if child.name in inner else child for child in children(data_type)]
        )
    if pa.types.is_list(declared) and pa.types.is_list(data_type):
        return pa.list_(_in_type(declared.value_field, data_type.value_type))
    return data_type


def _unknown(fields: Sequence[Field], columns: Iterable[Field], path: str) -> Iterator[str]:
    """Yields the paths of fields, at any depth, that have no column."""
    known = {column.name: column.type for column in columns}
    for one in fields:
        if one.name not in known:
            yield f"{path}{one.name}"
        else:
            yield from _unknown_inside(one.type, known[one.name], f"{path}{one.name}/")


def _unknown_inside(data_type: pa.DataType, column: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_struct(data_type) and pa.types.is_struct(column):
        yield from _unknown(children(data_type), children(column), path)
    elif pa.types.is_list(data_type) and pa.types.is_list(column):
        yield from _unknown_inside(data_type.value_type, column.value_type, f"{path}[]/")
    elif pa.types.is_map(data_type) and pa.types.is_map(column):
        yield from _unknown_inside(data_type.item_type, column.item_type, f"{path}value/")


def _moved(outcome: Outcome, indices: Indices) -> Outcome:
    """Returns an outcome with its indexes among some values turned into `indices`, those among all values."""
    if isinstance(outcome, Part):
        return outcome._replace(indices=indices[outcome.indices])
    return outcome._replace(row=int(indices[outcome.row]))


def _taken(values: pa.BinaryArray, indices: Indices) -> pa.BinaryArray:
    return values if len(indices) == len(values) else values.take(indices_array(indices))


def _refused(indices: Indices, reason: Reason, message: str, schema_id: int) -> Iterator[Refusal]:
    for row in indices.tolist():
        yield Refusal(row, reason, message, schema_id)
