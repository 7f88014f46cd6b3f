"""A record as one line of JSON, as `consume --json` prints it and `produce --input json` takes it back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias

from millrace.json_values import JsonValue
from millrace.records.record import Record
from millrace_ops.record_values.shown import json_bytes

DecodeValue: TypeAlias = "Callable[[bytes], JsonValue]"


def json_line(topic: str, partition: int, record: Record, decode: DecodeValue | None = None) -> bytes:
    """Returns a record as a line of JSON; bytes other than UTF-8 are in base64, and `decode` makes JSON of a value."""
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
