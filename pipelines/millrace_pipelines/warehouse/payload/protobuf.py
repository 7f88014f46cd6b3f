"""Protobuf values: one message of a type each, parsed by Google's library, its fields gathered into columns.

    int32, sint32, sfixed32 → integer          repeated → array      google.protobuf.Timestamp → timestamp
    int64, sint64, sfixed64 → long             map → map             google.protobuf.Int64Value, … → long, …
    uint32, fixed32 → long                     message → struct      enum → string, its name
    uint64, fixed64 → decimal(20,0)            float, double, bool, string, bytes → the same

A field that knows whether it is set (`optional`, a message, a member of `oneof`, all of proto2) is null where it is
not set; others have their default. A value with a field that the schema does not have is refused: the writer's schema
is newer, or the bytes are of another type. A field whose type holds itself has no column. A string of proto2 may be any
bytes; one that is not UTF-8 is refused.

A message's fields hide its methods of the same names, so methods are called by the class.
Source: Protocol Buffers, "Encoding", "Field Presence", "Well-Known Types".

Message types come from a descriptor set, or from .proto text that protoc (grpcio-tools) compiles:

    FILE.desc, FILE.pb    a FileDescriptorSet, as `protoc --include_imports --descriptor_set_out=FILE.desc` writes it
    FILE.proto            the text, with the texts of the files that it imports, those of Google's own types apart
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from millrace.records.arrow_columns import TIMESTAMP_TYPE
from millrace_pipelines.arrow import Column, Field, Indices, list_column, map_column, offsets_array, values_of
from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.outcome import Decoded, Outcome, Part, Reason, Refusal, UnfitError, joined
from millrace_pipelines.warehouse.payload.types import (
    BEYOND,
    FIRST_MICROSECOND,
    LAST_MICROSECOND,
    MAX_DEPTH,
    list_of,
    map_of,
)

WELL_KNOWN = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2, descriptor_pb2)
COMPILE_TIMEOUT_S = 60
FieldValue: TypeAlias = Any
"""A field of a message: Protobuf's classes are made at run time, so no type says what theirs are."""

Messages = Sequence[Message]
Gather = Callable[[Sequence[FieldValue | None]], Column]
Check = Callable[[FieldValue, str], None]

UINT64_TYPE = pa.decimal128(20, 0)
TYPES: dict[int, pa.DataType] = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: UINT64_TYPE,
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
MAX_CACHED_TYPES = 256
FIRST_SECOND, LAST_SECOND = FIRST_MICROSECOND // 1_000_000, LAST_MICROSECOND // 1_000_000


def compile_proto(name: str, files: Mapping[str, str]) -> bytes:
    """Compiles a .proto file and returns the descriptor set of that file and its imports.

    Raises:
        SchemaError: protoc refuses a file, or is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="millrace-proto-") as directory:
        for file_name, text in files.items():
            _write(directory, file_name, text)
        out = os.path.join(directory, "out.desc")
        options = [f"--proto_path={directory}", "--include_imports", f"--descriptor_set_out={out}"]
        command = [sys.executable, "-m", "grpc_tools.protoc", *options, f"--proto_path={_google_protos()}", name]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise SchemaError(f"{name}: protoc took longer than {COMPILE_TIMEOUT_S} s") from None
        if run.returncode:
            raise SchemaError(f"{name}: {(run.stderr or run.stdout).strip()}")
        with open(out, "rb") as file:
            return file.read()


def _google_protos() -> str:
    try:
        import grpc_tools  # noqa: PLC0415 # needed for .proto texts alone
    except ImportError:
        raise SchemaError("a .proto text needs grpcio-tools (pip install grpcio-tools), or a descriptor set") from None
    return os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")


def _write(directory: str, name: str, text: str) -> None:
    path = os.path.normpath(os.path.join(directory, name))
    if not path.startswith(directory + os.sep):
        raise SchemaError(f"{name}: not the name of a .proto file")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def message_descriptor(descriptor_set: bytes, message: str | None, *, path: tuple[int, ...] = (0,)) -> Descriptor:
    """Returns the descriptor of a message type.

    Args:
        descriptor_set: A FileDescriptorSet whose last file declares the type.
        message: The type's full name; None for the one at `path`.
        path: Confluent's message indexes: of a type in the file, then of one nested in it, and so on.

    Raises:
        SchemaError: The bytes are no descriptor set, or it has no such message.
    """
    files = _files(descriptor_set)
    pool = DescriptorPool()
    try:
        known = [descriptor_pb2.FileDescriptorProto.FromString(one.DESCRIPTOR.serialized_pb) for one in WELL_KNOWN]
        for file in [*known, *files.file]:
            if not _has(pool, file.name):
                pool.Add(file)
        if message is not None:
            named: Descriptor = pool.FindMessageTypeByName(message)
            return named
        found: FileDescriptor = pool.FindFileByName(files.file[-1].name)
    except (KeyError, TypeError) as error:
        raise SchemaError(f"the Protobuf schema has no message {message or path}: {error}") from error
    return _at(found, path)


def _at(file: FileDescriptor, path: tuple[int, ...]) -> Descriptor:
    types: list[Descriptor] = list(file.message_types_by_name.values())
    for depth, index in enumerate(path):
        if not 0 <= index < len(types):
            raise SchemaError(f"{file.name} has no message at {list(path[: depth + 1])}")
        found = types[index]
        types = [one for one in found.nested_types if not one.GetOptions().map_entry]
    return found


def _files(descriptor_set: bytes) -> descriptor_pb2.FileDescriptorSet:
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set)
    except DecodeError as error:
        raise SchemaError(f"not a Protobuf descriptor set: {error}") from None
    if not files.file:
        raise SchemaError("the Protobuf descriptor set has no file")
    return files


def _has(pool: DescriptorPool, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


class _Element(NamedTuple):
    """The conversion of a field's values to a column: the function, the column's type, and a check of each value."""

    gather: Gather
    data_type: pa.DataType
    check: Check | None = None


class ProtobufDecoder:
    """Decodes values of one message type.

    Attributes:
        fields: A field for each of the type's that has a column type; its `nullable` says whether it may be null.
        without_column: Names of the fields that have none.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self._class: type[Message] = GetMessageClass(descriptor)
        self._name: str = descriptor.full_name
        self._columns = [_Column(field, ()) for field in descriptor.fields if not _is_recursive(field, ())]
        self.fields: list[Field] = [column.field for column in self._columns]
        self.without_column = [field.name for field in descriptor.fields if _is_recursive(field, ())]
        if not self.fields:
            raise SchemaError(f"message {descriptor.full_name} has no field that can be a column")
        self._has_required = _has_required(descriptor, ())
        self._checks = any(column.check is not None for column in self._columns)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes each value of a binary array without nulls into columns; one that does not fit becomes a refusal."""
        indices: list[int] = []
        messages: list[Message] = []
        refusals: list[Refusal] = []
        for row, value in enumerate(values_of(values)):
            try:
                messages.append(self._parsed(value))
                indices.append(row)
            except UnfitError as error:
                refusals.append(Refusal(row, error.reason, str(error)))
        gathered = self._gathered(messages, np.array(indices, np.int64))
        return joined([*refusals, *gathered], pa.schema(self.fields))

    def _gathered(self, messages: Messages, indices: Indices) -> Iterator[Outcome]:
        """Yields the columns of the messages, and a refusal for each with a string that is not UTF-8."""
        try:
            arrays = [_gathered(column, messages) for column in self._columns]
        except UnfitError as error:
            if len(messages) == 1:
                yield Refusal(int(indices[0]), error.reason, str(error))
                return
            half = len(messages) // 2
            yield from self._gathered(messages[:half], indices[:half])
            yield from self._gathered(messages[half:], indices[half:])
        else:
            yield Part(indices, pa.Table.from_arrays(arrays, schema=pa.schema(self.fields)))

    def _parsed(self, value: bytes) -> Message:
        kind = self._class
        message = kind()
        try:
            kind.MergeFromString(message, value)
        except DecodeError as error:
            raise UnfitError(Reason.MALFORMED, str(error)) from None
        if self._has_required and not kind.IsInitialized(message):
            missing = ", ".join(kind.FindInitializationErrors(message))
            raise UnfitError(Reason.MISSING, f"field {missing} is missing")
        size_bytes = kind.ByteSize(message)
        kind.DiscardUnknownFields(message)
        if kind.ByteSize(message) != size_bytes:
            raise UnfitError(Reason.NEWER_SCHEMA, f"a field that {self._name} does not have")
        if self._checks:
            self._check(message)
        return message

    def _check(self, message: Message) -> None:
        for column in self._columns:
            if column.check is not None:
                try:
                    column.check(message)
                except (TypeError, ValueError) as error:
                    raise _no_text(column, error) from None


@lru_cache(maxsize=MAX_CACHED_TYPES)
def protobuf_decoder(descriptor_set: bytes, message: str | None, path: tuple[int, ...] = (0,)) -> ProtobufDecoder:
    """Returns the decoder of the message type that `message_descriptor` finds; raises SchemaError for none."""
    return ProtobufDecoder(message_descriptor(descriptor_set, message, path=path))


def _gathered(column: _Column, messages: Messages) -> Column:
    try:
        return column.gather(messages)
    except (TypeError, ValueError) as error:
        raise _no_text(column, error) from None


def _no_text(column: _Column, error: Exception) -> UnfitError:
    """Returns the error for a string that is not UTF-8, of which the library returns the bytes."""
    return UnfitError(Reason.MALFORMED, f"field {column.name}: Invalid UTF8 sequence: {error}")


class _Column:
    """One field of a message type: its column, how messages fill the column, and the check of each message."""

    def __init__(self, descriptor: FieldDescriptor, within: tuple[str, ...]) -> None:
        self.name: str = descriptor.name
        if len(within) > MAX_DEPTH:
            raise SchemaError(f"types are nested deeper than {MAX_DEPTH}")
        self._descriptor = descriptor
        self._get = attrgetter(self.name)
        self._has = GetMessageClass(descriptor.containing_type).HasField
        # Whether a message can tell an unset field from one with the default value.
        self._has_presence = bool(descriptor.has_presence)
        self.check: Callable[[Message], None] | None = None
        self.gather: Callable[[Messages], Column]
        data_type = self._built(within)
        self.field: Field = pa.field(self.name, data_type, self._has_presence)

    def _built(self, within: tuple[str, ...]) -> pa.DataType:
        descriptor = self._descriptor
        if descriptor.message_type is not None and descriptor.message_type.GetOptions().map_entry:
            return self._map(within)
        element = _element(descriptor, within)
        if descriptor.is_repeated:
            return self._list(element)
        if element.check is not None:
            self.check = self._present_check(element.check)
        get, name, one, has = self._get, self.name, element.gather, self._has
        if not self._has_presence:
            self.gather = lambda messages: one(list(map(get, messages)))
        elif descriptor.message_type is None:  # most are set, and a value that is no default says so
            self.gather = lambda messages: one([v if (v := get(m)) or has(m, name) else None for m in messages])
        else:
            self.gather = lambda messages: one([get(m) if has(m, name) else None for m in messages])
        return element.data_type

    def _present_check(self, check: Check) -> Callable[[Message], None]:
        get, name, presence, has = self._get, self.name, self._has_presence, self._has

        def present(message: Message) -> None:
            if not presence or has(message, name):
                check(get(message), name)

        return present

    def _list(self, element: _Element) -> pa.DataType:
        get, name, list_type = self._get, self.name, list_of(element.data_type, nullable=False)

        def gather(messages: Messages) -> Column:
            items = [item for message in messages for item in get(message)]
            return list_column(list_type, offsets_array([len(get(m)) for m in messages]), element.gather(items))

        def check_all(message: Message) -> None:
            for item in get(message):
                if element.check is not None:
                    element.check(item, f"{name}/[]")

        self.gather, self.check = gather, check_all if element.check is not None else None
        return list_type

    def _map(self, within: tuple[str, ...]) -> pa.DataType:
        get, name, entry = self._get, self.name, self._descriptor.message_type.fields_by_name
        keys, values = _element(entry["key"], within), _element(entry["value"], within)
        map_type = map_of(keys.data_type, values.data_type, nullable=False)

        def gather(messages: Messages) -> Column:
            items = [item for message in messages for item in sorted(get(message).items(), key=lambda pair: pair[0])]
            flat_keys = keys.gather([key for key, _ in items])
            flat_values = values.gather([value for _, value in items])
            return map_column(map_type, offsets_array([len(get(m)) for m in messages]), flat_keys, flat_values)

        def check_all(message: Message) -> None:
            for key, value in get(message).items():
                if values.check is not None:
                    values.check(value, f"{name}/{key}")

        self.gather, self.check = gather, check_all if values.check is not None else None
        return map_type


def _element(descriptor: FieldDescriptor, within: tuple[str, ...]) -> _Element:
    if descriptor.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return _message(descriptor.message_type, within)
    if descriptor.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return _enum(descriptor.enum_type)
    if descriptor.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        data_type = pa.binary() if descriptor.type == FieldDescriptor.TYPE_BYTES else pa.string()
        return _Element(lambda values: pa.array(values, data_type), data_type)
    number = TYPES[descriptor.cpp_type]
    if number == UINT64_TYPE:
        return _Element(lambda some: pa.array([None if v is None else Decimal(v) for v in some], number), number)
    return _Element(lambda values: pa.array(values, number), number)


def _enum(enum: EnumDescriptor) -> _Element:
    names: dict[int, str] = {number: value.name for number, value in enum.values_by_number.items()}

    def gather(values: Sequence[int | None]) -> Column:
        return pa.array([None if value is None else names.get(value) for value in values], pa.string())

    def check(value: int, path: str) -> None:
        if value not in names:
            raise UnfitError(Reason.NEWER_SCHEMA, f"field {path}: {enum.full_name} has no value {value}")

    return _Element(gather, pa.string(), check)


def _message(message: Descriptor, within: tuple[str, ...]) -> _Element:
    if message.full_name == TIMESTAMP:
        return _Element(_timestamps, TIMESTAMP_TYPE, _check_timestamp)
    if message.full_name in WRAPPERS:
        one, data_type, _ = _element(message.fields_by_name["value"], within)
        return _Element(lambda values: one([value and value.value for value in values]), data_type)
    inside = (*within, message.full_name)
    columns = [_Column(field, inside) for field in message.fields if not _is_recursive(field, inside)]
    if not columns:
        return _Element(lambda values: pa.array([None if v is None else True for v in values], pa.bool_()), pa.bool_())
    fields, default = [column.field for column in columns], GetMessageClass(message)()

    def gather(values: Sequence[Message | None]) -> Column:
        mask = pa.array([value is None for value in values], pa.bool_())
        present = [default if value is None else value for value in values]
        return pa.StructArray.from_arrays([column.gather(present) for column in columns], fields=fields, mask=mask)

    checks = [column.check for column in columns if column.check is not None]

    def check(value: Message, path: str) -> None:
        del path
        for one in checks:
            one(value)

    return _Element(gather, pa.struct(fields), check if checks else None)


def _timestamps(values: Sequence[Message | None]) -> Column:
    microseconds = [None if v is None else v.seconds * 1_000_000 + v.nanos // 1000 for v in values]
    return pa.array(microseconds, pa.int64()).cast(TIMESTAMP_TYPE)


def _check_timestamp(value: Message, path: str) -> None:
    if not FIRST_SECOND <= value.seconds <= LAST_SECOND or not 0 <= value.nanos < 1_000_000_000:
        raise UnfitError(Reason.RANGE, f"field {path}: {BEYOND}")
    if value.nanos % 1000:
        raise UnfitError(Reason.RANGE, f"field {path}: a time finer than a microsecond")


def _is_recursive(field: FieldDescriptor, within: tuple[str, ...]) -> bool:
    """Returns whether a field's type contains itself or one of the types in `within`, those around it."""
    message = field.message_type
    if message is None or message.full_name == TIMESTAMP or message.full_name in WRAPPERS:
        return False
    if message.full_name in within:
        return True
    return any(_is_recursive(inner, (*within, message.full_name)) for inner in message.fields)


def _has_required(message: Descriptor | None, within: tuple[str, ...]) -> bool:
    """Returns whether a message type, or one nested in it, has a required field (proto2)."""
    if message is None or message.full_name in within:
        return False
    inside = (*within, message.full_name)
    return any(field.is_required or _has_required(field.message_type, inside) for field in message.fields)
