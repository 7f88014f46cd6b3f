"""Declares messages that `kio` has no schema for, and makes classes in the form of kio's of what is declared.

    BROKER = Structure("UpdateMetadataBroker", (Field("id", "int32"), Field("rack", "string", 2, is_nullable=True)))
    REQUEST = Structure("UpdateMetadataRequest", (Field("live_brokers", BROKER, is_array=True),))
    fields = fields_of(REQUEST, 7)                         the fields that version 7 has
    made_type(REQUEST.name, fields, is_flexible=True)      a dataclass, for kio's codecs

A declaration covers all versions of a message. Names and kinds are those of `wire.schema.SchemaField`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import MISSING
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from millrace.wire.api import VersionRange
from millrace.wire.schema import SchemaField

NEWEST = 1 << 15
PYTHON_TYPES: dict[str, type] = {
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64", "error_code"), int),
    **dict.fromkeys(("timedelta_i32", "timedelta_i64"), timedelta),
    **dict.fromkeys(("bytes", "records"), bytes),
    "bool": bool,
    "datetime_i64": datetime,
    "string": str,
    "uuid": UUID,
}


class Structure(NamedTuple):
    """A message, or a structure in it, with the fields of all its versions in their order on the wire."""

    name: str
    fields: tuple[Field, ...]


class Field(NamedTuple):
    """A field of the versions `first` to `last`; one with a tag is written only if it differs from its default."""

    name: str
    kind: str | Structure
    first: int = 0
    last: int = NEWEST
    is_array: bool = False
    is_nullable: bool = False
    tag: int | None = None
    default: object = MISSING  # MISSING where the protocol has none


class DeclaredApi(NamedTuple):
    """The versions of an API, and its two messages."""

    versions: VersionRange
    request: Structure
    response: Structure


def fields_of(structure: Structure, version: int) -> tuple[SchemaField, ...]:
    """Returns the fields that a version has."""
    return tuple(_schema_field(one, version) for one in structure.fields if one.first <= version <= one.last)


def _schema_field(one: Field, version: int) -> SchemaField:
    is_nullable = one.is_nullable or one.kind == "uuid"  # kio reads an id of zeros as None
    if isinstance(one.kind, Structure):
        kind, fields, struct = "struct", fields_of(one.kind, version), one.kind.name
    else:
        kind, fields, struct = one.kind, (), ""
    return SchemaField(one.name, kind, one.is_array, is_nullable, one.tag, fields, struct, one.default)


def made_type(name: str, fields: Sequence[SchemaField], *, is_flexible: bool) -> Any:
    """Returns a frozen dataclass in the form of kio's."""
    made = [(one.name, _annotation(one, is_flexible=is_flexible), _dataclass_field(one)) for one in fields]
    namespace = {"__flexible__": is_flexible}
    return dataclasses.make_dataclass(name, made, namespace=namespace, frozen=True, slots=True, kw_only=True)


def _annotation(one: SchemaField, *, is_flexible: bool) -> Any:
    is_struct = one.kind == "struct"
    inner = made_type(one.struct, one.fields, is_flexible=is_flexible) if is_struct else PYTHON_TYPES[one.kind]
    whole: Any = tuple[inner, ...] if one.is_array else inner  # type: ignore[valid-type]
    return whole | None if one.is_nullable else whole


def _dataclass_field(one: SchemaField) -> Any:
    metadata: dict[str, object] = {} if one.kind == "struct" else {"kafka_type": one.kind}
    if one.tag is not None:
        metadata["tag"] = one.tag
    return dataclasses.field(default=one.default, metadata=metadata)
