"""The dearest request of each API: one whose arrays have as many elements as a message may have.

    wide    the outermost arrays have nearly all of the elements, those inside of them one each
    deep    the outermost arrays have one element each, those inside of them nearly all

Names differ, so that nothing is answered once for several. What would be created is only validated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, encode
from millrace.wire.decoder import MAX_ELEMENTS
from millrace.wire.kio_schemas import schema, schema_versions
from millrace.wire.schema import SchemaField
from millrace_broker.handlers.api import Api
from millrace_broker.handlers.registry import APIS

SPARE_ELEMENTS = 100  # of the limit: tagged fields count, too
CHOSEN: Mapping[str, object] = {
    "validate_only": True,
    "num_partitions": 1,
    "replication_factor": 1,
    "replica_id": -1,
    "session_epoch": -1,
    "resource_type": 2,
    "max_wait": 0,
    "acks": -1,
}
NOT_BY_ENTRIES = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}


class DearRequest(NamedTuple):
    """A request, encoded."""

    name: str
    api_key: ApiKey
    version: int
    message: bytes


def dear_requests(elements: int = MAX_ELEMENTS - SPARE_ELEMENTS) -> Iterator[DearRequest]:
    """Yields the dearest requests of each API that has arrays."""
    for api in APIS.values():
        if api.key not in NOT_BY_ENTRIES:
            yield from _of(api, elements)


def _of(api: Api, elements: int) -> Iterator[DearRequest]:
    version = min(api.versions.maximum, schema_versions(api.key).maximum)
    _, fields = schema(api.key, version, Direction.REQUEST)
    arrays = [one for one in fields if one.is_array]
    shapes = {"wide": 1}
    if inside := sum(_size(one, 1) - 1 for one in arrays):
        shapes["deep"] = (elements - len(arrays)) // inside
    for shape, inner in shapes.items():
        if arrays:
            outer = elements // sum(_size(one, inner) for one in arrays)
            message = encode(api.key, version, Direction.REQUEST, _fields(fields, 0, max(outer, 1), inner))
            yield DearRequest(f"{api.key.name}, {shape}", api.key, version, message)


def _size(array: SchemaField, inner: int) -> int:
    """Returns how many elements an element of an array brings, itself included, where each in it has one for each."""
    return 1 + inner * _inside(array)


def _inside(struct: SchemaField) -> int:
    arrays = sum(_size(one, 1) for one in struct.fields if one.is_array and one.tag is None)
    return arrays + sum(_inside(one) for one in struct.fields if not one.is_array and one.tag is None)


def _fields(fields: tuple[SchemaField, ...], number: int, length: int, inner: int) -> dict[str, object]:
    return {one.name: _value(one, number, length, inner) for one in fields if one.tag is None}


def _value(field: SchemaField, number: int, length: int, inner: int) -> object:
    if field.is_array:
        return [_element(field, number + index, inner) for index in range(length)]
    return _element(field, number, inner)


def _element(field: SchemaField, number: int, inner: int) -> object:
    if field.name in CHOSEN:
        return CHOSEN[field.name]
    if field.is_nullable and not field.is_array and (field.kind == "struct" or field.name == "transactional_id"):
        return None
    if field.kind == "struct":
        return _fields(field.fields, number, inner, 1)
    texts = {"string": f"dear-{number:06d}", "bytes": b"", "records": None, "uuid": UUID(int=number + 1)}
    return texts.get(field.kind, number if field.kind in {"int32", "int64"} else 0)
