"""Declares messages that `kio` has no schema for, and makes of them what its codecs take.

    BROKER = Structure("UpdateMetadataBroker", (Field("id", "int32"), Field("rack", "string", 2, is_nullable=True)))
    REQUEST = Structure("UpdateMetadataRequest", (Field("live_brokers", BROKER, is_array=True),))
    entity_type(REQUEST, 7, is_flexible=True)        a dataclass with the fields that version 7 has

A declaration covers all versions of a message. Names and kinds are those of `wire.schema.SchemaField`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING
from typing import Any, NamedTuple
from uuid import UUID

from millrace.wire.api import VersionRange

NEWEST = 1 << 15
PYTHON_TYPES: dict[str, type] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "error_code"), int),
    "bool": bool,
    "bytes": bytes,
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


def entity_type(structure: Structure, version: int, *, is_flexible: bool) -> Any:
    """Returns a frozen dataclass in the form of kio's, with the fields that the version has."""
    fields = [
        (one.name, _annotation(one, version, is_flexible=is_flexible), _field(one))
        for one in structure.fields
        if one.first <= version <= one.last
    ]
    namespace = {"__flexible__": is_flexible, "__version__": version}
    return dataclasses.make_dataclass(
        structure.name, fields, namespace=namespace, frozen=True, slots=True, kw_only=True
    )


def _annotation(one: Field, version: int, *, is_flexible: bool) -> Any:
    kind = one.kind
    inner = entity_type(kind, version, is_flexible=is_flexible) if isinstance(kind, Structure) else PYTHON_TYPES[kind]
    if one.is_array:
        array = tuple[inner, ...]  # type: ignore[valid-type]
        return array | None if one.is_nullable else array
    return inner | None if one.is_nullable or kind == "uuid" else inner  # kio reads an id of zeros as None


def _field(one: Field) -> Any:
    metadata: dict[str, object] = {} if isinstance(one.kind, Structure) else {"kafka_type": one.kind}
    if one.tag is not None:
        metadata["tag"] = one.tag
    return dataclasses.field(default=one.default, metadata=metadata)
