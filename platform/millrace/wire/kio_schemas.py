"""The schemas of the messages: kio's, or those that are declared in `wire.controller_apis` and `wire.token_apis`.

    fields of a version    schema(ApiKey.HEARTBEAT, 4, Direction.REQUEST)
    the class of kio's     entity_type(ApiKey.HEARTBEAT, 4, Direction.REQUEST)

What is declared becomes a class in the form of kio's, so that one path decodes and encodes them all (`wire.cold`).
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from millrace.extras import hidden
from millrace.wire import declaration
from millrace.wire.api import ApiKey, VersionRange, is_flexible
from millrace.wire.controller_apis import CONTROLLER_APIS
from millrace.wire.schema import SchemaField
from millrace.wire.token_apis import TOKEN_APIS

with hidden("hypothesis"):  # where it is installed, kio makes strategies of its types: a quarter of a broker's start
    from kio.index import load_payload_module
    from kio.schema.index import api_key_map, schema_name_map
    from kio.static.constants import EntityType

DECLARED_APIS = {**CONTROLLER_APIS, **TOKEN_APIS}


class Direction(Enum):
    """Tells an API's two messages apart."""

    REQUEST = EntityType.request
    RESPONSE = EntityType.response


@cache
def entity_type(api_key: int, version: int, direction: Direction) -> Any:
    """Returns the class of a message, a frozen dataclass."""
    declared = DECLARED_APIS.get(api_key)
    if declared is not None:
        structure = declared.request if direction is Direction.REQUEST else declared.response
        return declaration.entity_type(structure, version, is_flexible=is_flexible(api_key, version))
    module = load_payload_module(api_key, version, direction.value)
    return getattr(module, f"{_camel_case(api_key_map[api_key])}{direction.name.capitalize()}")


def schema(api_key: int, version: int, direction: Direction) -> tuple[bool, tuple[SchemaField, ...]]:
    """Returns (whether the version is flexible, the fields in their order on the wire)."""
    entity = entity_type(api_key, version, direction)
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


def _camel_case(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _schema(entity: Any) -> tuple[SchemaField, ...]:
    return tuple(_schema_field(field) for field in dataclasses.fields(entity))


def _schema_field(field: dataclasses.Field[Any]) -> SchemaField:
    inner, repeated = inner_type(field.type)
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


def inner_type(annotation: Any) -> tuple[Any, bool]:
    """Returns (the type inside of optional and tuple, whether it is an array)."""
    repeated = False
    while True:
        origin = get_origin(annotation)
        if origin in (Union, UnionType):
            annotation = next(inner for inner in get_args(annotation) if inner is not type(None))
        elif origin is tuple:
            annotation, repeated = get_args(annotation)[0], True
        else:
            return annotation, repeated
