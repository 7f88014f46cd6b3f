"""Values of records as JSON can hold them, and bytes as text that can be shown."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, time
from math import isfinite

from millrace.json_values import JsonValue


def json_bytes(value: bytes | None) -> str | dict[str, str] | None:
    """Returns bytes for JSON: their text if they are UTF-8, else `{"base64": ...}`; null stays null."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def json_value(value: object) -> JsonValue:
    """Returns a value for JSON: times in ISO 8601, bytes as text if they are UTF-8, else in base64, NaN as text."""
    if isinstance(value, bytes):
        return json_bytes(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): json_value(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(one) for one in value]
    if isinstance(value, float) and not isfinite(value):
        return json.dumps(value)
    return value if isinstance(value, (int, float, str)) or value is None else str(value)


BYTES_IN_LINE = 16


def shown_text(value: bytes) -> str | None:
    """Returns the text of bytes that are UTF-8 without control characters but tabs and line ends; None for others."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if all(one.isprintable() or one in "\t\r\n" for one in text) else None


def hex_lines(value: bytes) -> list[str]:
    """Returns a line for every BYTES_IN_LINE bytes: their offset, the bytes in hexadecimal, and those of ASCII."""
    pieces = [(start, value[start : start + BYTES_IN_LINE]) for start in range(0, len(value), BYTES_IN_LINE)]
    width = 3 * BYTES_IN_LINE - 1
    return [f"{start:06x}  {piece.hex(' '):{width}}  {_ascii(piece)}" for start, piece in pieces]


def _ascii(piece: bytes) -> str:
    return "".join(chr(octet) if 0x20 <= octet < 0x7F else "." for octet in piece)
