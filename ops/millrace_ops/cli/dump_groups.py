"""Decodes records of `__consumer_offsets` for `millrace dump` (docs/formats/consumer-offsets.md, consumer-group.md)."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

from millrace_ops.record_values.as_json import json_bytes, json_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millrace.json_values import JsonObject, JsonValue
    from millrace.records.record import Record


def group_record_of(record: Record) -> JsonObject:
    """Returns what a record says about a group: an offset, a classic group, or a part of a consumer group.

    A tombstone has null where its kind has a value. A record of unknown kind keeps its key and value as they are.

    Raises:
        CorruptRecordError: The bytes are no record of their kind.
    """
    from millrace.errors import CorruptRecordError
    from millrace_broker.groups import records
    from millrace_broker.groups.consumer.records import decode_key, decode_value

    if record.key is None:
        raise CorruptRecordError(f"the record at offset {record.offset} has no key, which a group's would have")
    shown: JsonObject = {"offset": record.offset, "timestamp": record.timestamp_ms}
    version = records.key_version(record.key)
    if version in records.OFFSET_KEY_VERSIONS:
        return {**shown, **_offset(record.key, record.value)}
    if version == records.GROUP_KEY_VERSION:
        return {**shown, **_classic_group(record.key, record.value)}
    key = decode_key(record.key)
    if key is None:
        return {**shown, "kind": version, "key": json_bytes(record.key), "value": json_bytes(record.value)}
    named = {"name": key.name} if key.name else {}
    value = None if record.value is None else _plain(decode_value(key.kind, record.value))
    return {**shown, "kind": key.kind.name.lower(), "group": key.group_id, **named, "value": value}


def _offset(key: bytes, value: bytes | None) -> JsonObject:
    from millrace_broker.groups.records import read_offset_key, read_offset_value

    group_id, topic, partition = read_offset_key(key)
    shown: JsonObject = {"kind": "offset", "group": group_id, "topic": topic, "partition": partition}
    if value is None:
        return {**shown, "committed": None}
    committed = read_offset_value(value)
    return {
        **shown,
        "committed": committed.offset,
        "leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "commit_timestamp": committed.commit_timestamp_ms,
        "expire_timestamp": committed.expire_timestamp_ms,
    }


def _classic_group(key: bytes, value: bytes | None) -> JsonObject:
    from millrace_broker.groups.records import read_group_key, read_group_value

    shown = {"kind": "classic_group", "group": read_group_key(key)}
    return {**shown, "value": None if value is None else _plain(read_group_value(value))}


def _plain(value: object) -> JsonValue:
    """Returns a stored value for JSON: names for fields, lists for sets, text for ids and for numbers of states."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(field) for name, field in value._asdict().items()}
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, frozenset):
        return _list(sorted(value))
    if isinstance(value, tuple):
        return _list(value)
    return json_value(value)


def _list(values: Iterable[object]) -> list[JsonValue]:
    return [_plain(value) for value in values]
