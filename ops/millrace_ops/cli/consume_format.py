r"""Formats records for `millrace consume`: as text, as a JSON object a line, or by the user's template.

A template is kcat's: `%k` key, `%v` (or `%s`) value, `%o` offset, `%p` partition, `%t` topic, `%T` timestamp in ms,
`%h` headers, `%K` and `%S` lengths of key and value in bytes (-1: null), `%%`; `\n`, `\t`, `\r`, `\0`, `\\` and
`\xHH` are bytes. No line end is added.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from millrace.errors import InvalidConfigError
from millrace.json_values import JsonValue
from millrace_ops.cli.output import iso_time
from millrace_ops.record_values.as_json import json_bytes

if TYPE_CHECKING:
    from millrace.records.record import Record

NULL = b"null"
ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
TOKEN = re.compile(r"%(?P<field>.?)|\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>.?))|(?P<text>[^%\\]+)", re.DOTALL)

DecodeValue = Callable[[bytes], JsonValue]


class Shown(NamedTuple):
    """A record with its topic and partition, and its value as it is printed."""

    topic: str
    partition: int
    record: Record
    value: bytes


FIELDS: dict[str, Callable[[Shown], bytes]] = {
    "k": lambda one: _shown(one.record.key),
    "v": lambda one: one.value,
    "s": lambda one: one.value,
    "o": lambda one: b"%d" % one.record.offset,
    "p": lambda one: b"%d" % one.partition,
    "t": lambda one: one.topic.encode(),
    "T": lambda one: b"%d" % one.record.timestamp_ms,
    "h": lambda one: _headers(one.record),
    "K": lambda one: _length(one.record.key),
    "S": lambda one: _length(one.record.value),
}

Template = tuple[bytes | Callable[[Shown], bytes], ...]


class Format(NamedTuple):
    """How records are written. `decode` turns a value into what JSON can hold; without it values are bytes."""

    as_json: bool = False
    print_timestamp: bool = False
    print_headers: bool = False
    print_key: bool = False
    template: Template | None = None
    decode: DecodeValue | None = None


def parse_template(text: str) -> Template:
    """Returns the parts of a template; raises InvalidConfigError for an unknown field or escape."""
    parts: list[bytes | Callable[[Shown], bytes]] = []
    for token in TOKEN.finditer(text):
        match token.lastgroup, token[token.lastgroup or 0]:
            case "text", plain:
                parts.append(os.fsencode(plain))
            case "hex", digits:
                parts.append(bytes.fromhex(digits))
            case "field", "%":
                parts.append(b"%")
            case "field", name if name in FIELDS:
                parts.append(FIELDS[name])
            case "escape", name if name in ESCAPES:
                parts.append(ESCAPES[name])
            case _:
                known = ", ".join((*(f"%{one}" for one in FIELDS), "%%", r"\n, \t, \r, \0, \\, \xHH"))
                raise InvalidConfigError(f"--format: {token[0]} is not known; there are {known}")
    return tuple(parts)


def format_record(topic: str, partition: int, record: Record, shape: Format) -> bytes:
    """Returns a record as it goes to stdout: with a line end, unless a template says where lines end."""
    if shape.as_json:
        return _json_line(topic, partition, record, shape.decode)
    value = _shown(record.value)
    if record.value is not None and shape.decode is not None:
        value = json.dumps(shape.decode(record.value), ensure_ascii=False).encode()
    if shape.template is not None:
        shown = Shown(topic, partition, record, value)
        return b"".join(part if isinstance(part, bytes) else part(shown) for part in shape.template)
    parts: list[bytes] = []
    if shape.print_timestamp:
        parts.append(iso_time(record.timestamp_ms).encode())
    if shape.print_headers:
        parts.append(_headers(record))
    if shape.print_key:
        parts.append(_shown(record.key))
    return b"\t".join((*parts, value)) + b"\n"


def _json_line(topic: str, partition: int, record: Record, decode: DecodeValue | None) -> bytes:
    value = json_bytes(record.value) if decode is None or record.value is None else decode(record.value)
    fields = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": json_bytes(record.key),
        "value": value,
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _headers(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + _shown(value) for name, value in record.headers)


def _shown(value: bytes | None) -> bytes:
    return NULL if value is None else value


def _length(value: bytes | None) -> bytes:
    return b"-1" if value is None else b"%d" % len(value)
