"""The schemas of the messages: kio's, and where it has none those of `wire.older_versions` and `wire.controller_apis`.

    the fields of a version         schema(ApiKey.HEARTBEAT, 4, Direction.REQUEST)
    a class in the form of kio's    entity_type(ApiKey.HEARTBEAT, 4, Direction.REQUEST)

So one path decodes and encodes all messages (`wire.cold`). Times that may be -1, for none, kio can't read: they are
numbers here.
"""

from __future__ import annotations

import builtins
import dataclasses
import importlib.util
import sys
from collections.abc import Iterable
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from millrace.wire.api import ApiKey, VersionRange, is_flexible
from millrace.wire.controller_apis import CONTROLLER_APIS
from millrace.wire.declaration import fields_of, made_type
from millrace.wire.older_versions import OLDER_VERSIONS, Instead, Older
from millrace.wire.schema import SchemaField


def _without_hypothesis(name: str, *how: Any) -> Any:
    if name.partition(".")[0] == "hypothesis":
        raise ModuleNotFoundError(name, name=name)
    return __import__(name, *how)


def _load_without_hypothesis(name: str) -> None:
    """Loads a module of kio's with an import statement of its own, which does not find hypothesis.

    Where that is installed, kio would make strategies of its types: a quarter of a broker's start.
    """
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.loader is not None and name not in sys.modules:
        module = importlib.util.module_from_spec(spec)
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _without_hypothesis}
        sys.modules[name] = module
        spec.loader.exec_module(module)


_load_without_hypothesis("kio.static._phantom")

from kio.index import load_payload_module  # noqa: E402
from kio.schema.index import api_key_map, schema_name_map  # noqa: E402
from kio.serial import entity_reader as entity_reader  # noqa: E402, PLC0414  # for `wire.cold`
from kio.serial.errors import SerialError as SerialError  # noqa: E402, PLC0414
from kio.static.constants import EntityType  # noqa: E402

TIMES = {"datetime_i64", "timedelta_i64"}
WITH_TIMES_THAT_MAY_BE_NONE = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_TRANSACTIONS,
}


class Direction(Enum):
    """Tells an API's two messages apart."""

    REQUEST = EntityType.request
    RESPONSE = EntityType.response


@cache
def entity_type(api_key: int, version: int, direction: Direction) -> Any:
    """Returns the class of a message, a frozen dataclass."""
    if _is_of_kio(api_key, version):
        return _kio_type(api_key, version, direction)
    name = f"{api_names()[api_key]}{direction.name.capitalize()}"
    flexible, fields = schema(api_key, version, direction)
    return made_type(name, fields, is_flexible=flexible)


@cache
def schema(api_key: int, version: int, direction: Direction) -> tuple[bool, tuple[SchemaField, ...]]:
    """Returns (whether the version is flexible, the fields in their order on the wire)."""
    if api_key in CONTROLLER_APIS:
        declared = CONTROLLER_APIS[api_key]
        structure = declared.request if direction is Direction.REQUEST else declared.response
        return is_flexible(api_key, version), fields_of(structure, version)
    older = OLDER_VERSIONS.get((api_key, version), Older(version))
    fields = _schema(_kio_type(api_key, older.like, direction))
    if api_key in WITH_TIMES_THAT_MAY_BE_NONE:
        fields = _with_numbers(fields)
    return is_flexible(api_key, version), _changed("", fields, older.instead)


def schema_versions(api_key: int) -> VersionRange:
    """Returns the versions that there is a schema for."""
    if api_key in CONTROLLER_APIS:
        return CONTROLLER_APIS[api_key].versions
    versions = {*schema_name_map[api_key_map[api_key]], *(version for key, version in OLDER_VERSIONS if key == api_key)}
    return VersionRange(min(versions), max(versions))


def api_names() -> dict[int, str]:
    """Returns the name of every API of the protocol, served or not, by its key."""
    declared = {key: ApiKey(key).name for key in CONTROLLER_APIS}
    return {key: _camel_case(name) for key, name in {**api_key_map, **declared}.items()}


def _is_of_kio(api_key: int, version: int) -> bool:
    is_made = api_key in CONTROLLER_APIS or api_key in WITH_TIMES_THAT_MAY_BE_NONE
    return not is_made and (api_key, version) not in OLDER_VERSIONS


def _kio_type(api_key: int, version: int, direction: Direction) -> Any:
    module = load_payload_module(api_key, version, direction.value)
    return getattr(module, f"{_camel_case(api_key_map[api_key])}{direction.name.capitalize()}")


def _with_numbers(fields: Iterable[SchemaField]) -> tuple[SchemaField, ...]:
    return tuple(
        one._replace(kind="int64" if one.kind in TIMES else one.kind, fields=_with_numbers(one.fields))
        for one in fields
    )


def _changed(structure: str, fields: Iterable[SchemaField], instead: Instead) -> tuple[SchemaField, ...]:
    changed: list[SchemaField] = []
    for one in fields:
        kept = one._replace(fields=_changed(one.struct, one.fields, instead))
        changed += instead.get(f"{structure}.{one.name}", instead.get(one.name, (kept,)))
    return tuple(changed)


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
