"""The schemas of the messages: kio's, versions that it lacks, and those of `wire.controller_apis` and `wire.own_apis`.

    the fields of a version         schema(ApiKey.HEARTBEAT, 4, Direction.REQUEST)
    a class in the form of kio's    entity_type(ApiKey.HEARTBEAT, 4, Direction.REQUEST)

So one path decodes and encodes all messages (`wire.cold`). Times that may be -1, for none, kio can't read: they are
numbers here.

Clients of Kafka 0.8 to 3.9 send versions that kio has no schema for; each is told by what differs from one that it has:

    (ApiKey.CREATE_TOPICS, 1): Older(2, {"throttle_time": ()})      version 1 is version 2 without throttle_time

OffsetFetch v1 has the bytes of v0 and another meaning.
"""

from __future__ import annotations

import builtins
import dataclasses
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

from millrace.wire.api import ApiKey, VersionRange, is_flexible
from millrace.wire.controller_apis import fields_of, made_type
from millrace.wire.own_apis import DECLARED_APIS
from millrace.wire.schema import SchemaField

Instead = Mapping[str, tuple[SchemaField, ...]]


class Older(NamedTuple):
    """An old version of an API, described by its differences from version `like`, which the library kio has.

    `instead` maps a field of request or response to the fields in its place, perhaps none. A field's key is its name
    or, where that is ambiguous, `Structure.name`.
    """

    like: int
    instead: Instead = MappingProxyType({})


def _without(*names: str) -> Instead:
    return dict.fromkeys(names, ())


LIST_OFFSETS_V0 = {
    "ListOffsetsPartition.timestamp": (SchemaField("timestamp", "int64"), SchemaField("max_num_offsets", "int32")),
    "ListOffsetsPartitionResponse.timestamp": (),
    "offset": (SchemaField("old_style_offsets", "int64", is_array=True, default=()),),
}
OFFSET_COMMIT_V1 = {
    "retention_time": (),
    "committed_metadata": (
        SchemaField("commit_timestamp", "int64", default=-1),
        SchemaField("committed_metadata", "string", is_nullable=True),
    ),
}
DESCRIBE_CONFIGS_V0 = {
    **_without("include_synonyms", "synonyms"),
    "config_source": (SchemaField("is_default", "bool"),),
}
EPOCH_V1 = _without("current_leader_epoch", "throttle_time")
FETCH_V3 = _without("isolation_level", "last_stable_offset", "aborted_transactions")

OLDER_VERSIONS: Mapping[tuple[int, int], Older] = {
    (ApiKey.PRODUCE, 0): Older(3, _without("transactional_id", "log_append_time", "throttle_time")),
    (ApiKey.PRODUCE, 1): Older(3, _without("transactional_id", "log_append_time")),
    (ApiKey.PRODUCE, 2): Older(3, _without("transactional_id")),
    (ApiKey.FETCH, 0): Older(4, {**FETCH_V3, **_without("max_bytes", "throttle_time")}),
    (ApiKey.FETCH, 1): Older(4, {**FETCH_V3, **_without("max_bytes")}),
    (ApiKey.FETCH, 2): Older(4, {**FETCH_V3, **_without("max_bytes")}),
    (ApiKey.FETCH, 3): Older(4, FETCH_V3),
    (ApiKey.LIST_OFFSETS, 0): Older(1, LIST_OFFSETS_V0),
    (ApiKey.OFFSET_COMMIT, 0): Older(2, _without("generation_id_or_member_epoch", "member_id", "retention_time")),
    (ApiKey.OFFSET_COMMIT, 1): Older(2, OFFSET_COMMIT_V1),
    (ApiKey.OFFSET_FETCH, 0): Older(1),
    (ApiKey.CREATE_TOPICS, 0): Older(2, _without("validate_only", "throttle_time", "error_message")),
    (ApiKey.CREATE_TOPICS, 1): Older(2, _without("throttle_time")),
    (ApiKey.DELETE_TOPICS, 0): Older(1, _without("throttle_time")),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 0): Older(2, {**EPOCH_V1, "EpochEndOffset.leader_epoch": ()}),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 1): Older(2, EPOCH_V1),
    (ApiKey.WRITE_TXN_MARKERS, 0): Older(1),
    (ApiKey.DESCRIBE_ACLS, 0): Older(1, _without("pattern_type_filter", "pattern_type")),
    (ApiKey.CREATE_ACLS, 0): Older(1, _without("resource_pattern_type")),
    (ApiKey.DELETE_ACLS, 0): Older(1, _without("pattern_type_filter", "pattern_type")),
    (ApiKey.DESCRIBE_CONFIGS, 0): Older(1, DESCRIBE_CONFIGS_V0),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, 0): Older(1),
    (ApiKey.DESCRIBE_LOG_DIRS, 0): Older(1),
    (ApiKey.CREATE_DELEGATION_TOKEN, 0): Older(1),
    (ApiKey.RENEW_DELEGATION_TOKEN, 0): Older(1),
    (ApiKey.EXPIRE_DELEGATION_TOKEN, 0): Older(1),
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, 0): Older(1),
}


def _without_hypothesis(name: str, *how: Any) -> Any:
    if name.partition(".")[0] == "hypothesis":
        raise ModuleNotFoundError(name, name=name)
    return __import__(name, *how)


def _load_without_hypothesis(name: str) -> None:
    """Loads a module of the library kio such that its `import hypothesis` fails, whether installed or not.

    With hypothesis, kio would register strategies for its types: a quarter of a broker's start.
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
    """Whether an API's request or its response is meant."""

    REQUEST = EntityType.request
    RESPONSE = EntityType.response


@cache
def entity_type(api_key: int, version: int, direction: Direction) -> Any:
    """Returns the frozen dataclass of an API's request or response in one version."""
    is_made = api_key in DECLARED_APIS or api_key in WITH_TIMES_THAT_MAY_BE_NONE
    if not is_made and (api_key, version) not in OLDER_VERSIONS:
        return _kio_type(api_key, version, direction)
    name = f"{api_names()[api_key]}{direction.name.capitalize()}"
    flexible, fields = schema(api_key, version, direction)
    return made_type(name, fields, is_flexible=flexible)


@cache
def schema(api_key: int, version: int, direction: Direction) -> tuple[bool, tuple[SchemaField, ...]]:
    """Returns (whether the version is flexible, the request's or response's fields in the order of their bytes)."""
    if api_key in DECLARED_APIS:
        declared = DECLARED_APIS[api_key]
        structure = declared.request if direction is Direction.REQUEST else declared.response
        return is_flexible(api_key, version), fields_of(structure, version)
    older = OLDER_VERSIONS.get((api_key, version), Older(version))
    fields = _schema(_kio_type(api_key, older.like, direction))
    if api_key in WITH_TIMES_THAT_MAY_BE_NONE:
        fields = _with_numbers(fields)
    return is_flexible(api_key, version), _changed("", fields, older.instead)


def schema_versions(api_key: int) -> VersionRange:
    """Returns the range of an API's versions for which there are schemas."""
    if api_key in DECLARED_APIS:
        return DECLARED_APIS[api_key].versions
    versions = {*schema_name_map[api_key_map[api_key]], *(version for key, version in OLDER_VERSIONS if key == api_key)}
    return VersionRange(min(versions), max(versions))


def api_names() -> dict[int, str]:
    """Returns the name of every API of the protocol, served or not, by its key."""
    declared = {key: ApiKey(key).name for key in DECLARED_APIS}
    return {key: _camel_case(name) for key, name in {**api_key_map, **declared}.items()}


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
        type(None) in get_args(field.type),
        field.metadata.get("tag"),
        _schema(inner) if is_struct else (),
        inner.__name__ if is_struct else "",
        field.default,
    )


def inner_type(annotation: Any) -> tuple[Any, bool]:
    """Returns the type X of `X | None` or `tuple[X, ...]`, and whether there was a tuple, which means an array."""
    repeated = False
    while True:
        origin = get_origin(annotation)
        if origin in (Union, UnionType):
            annotation = next(inner for inner in get_args(annotation) if inner is not type(None))
        elif origin is tuple:
            annotation, repeated = get_args(annotation)[0], True
        else:
            return annotation, repeated
