"""Values of records as JSON can hold them, and their bytes as text that can be shown.

`shown` says what a key, a value or a header looks like on a page: its kind, a text, and what is wrong with it.

    null, empty       as such
    Avro, Protobuf,   a value in Confluent's wire format, by its schema in the registry, where there is one
    JSON              … or bytes that are a JSON object or array, in one line, or indented
    text              other UTF-8 without control characters
    bytes             all else, in hexadecimal

Bytes are decoded up to DECODED_BYTES, and a text is cut to the length that is asked for.
"""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, time
from math import isfinite
from typing import NamedTuple, Protocol

from millrace.errors import MillraceError
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


DECODED_BYTES = 1 << 20
HEX_BYTES = 512
FRAMED = 0  # the first byte of Confluent's wire format
FRAME_BYTES = 5


class Shown(NamedTuple):
    """Bytes as a page shows them; `note` says why they are not decoded, `is_cut` whether the text is cut."""

    kind: str
    text: str
    size_bytes: int
    is_cut: bool = False
    note: str = ""


class Decoder(Protocol):
    """Decodes values by the schemas of a registry."""

    def decode(self, value: bytes) -> JsonValue:
        """Returns a value, decoded, as JSON; raises a MillraceError where that is not possible."""
        ...


def shown(value: bytes | None, length: int, decoder: Decoder | None = None, *, is_indented: bool = False) -> Shown:
    """Returns how a page shows bytes: decoded, as text or in hexadecimal, cut to `length` characters."""
    if value is None:
        return Shown("null", "", 0)
    if not value:
        return Shown("empty", "", 0)
    note = ""
    if len(value) <= DECODED_BYTES:
        if decoder is not None and value[0] == FRAMED and len(value) > FRAME_BYTES:
            try:
                return _cut("decoded", _written(decoder.decode(value), is_indented), value, length)
            except MillraceError as error:
                note = str(error)
        if (text := _json(value, is_indented)) is not None:
            return _cut("JSON", text, value, length, note)
        if (text := shown_text(value)) is not None:
            return _cut("text", text, value, length, note)
    else:
        note = f"larger than {DECODED_BYTES:,} bytes, and not decoded"
    lines = "\n".join(hex_lines(value[:HEX_BYTES]))
    found = _cut("bytes", lines, value, length, note)
    return found._replace(is_cut=found.is_cut or len(value) > HEX_BYTES)


def decoded(value: bytes | None, decoder: Decoder | None = None) -> JsonValue:
    """Returns what a value decodes to, by its schema or as JSON; None where it is neither, or too large."""
    if not value or len(value) > DECODED_BYTES:
        return None
    try:
        if decoder is not None and value[0] == FRAMED and len(value) > FRAME_BYTES:
            return decoder.decode(value)
        found: JsonValue = json.loads(value) if value[:1] in (b"{", b"[") else None
    except (MillraceError, ValueError, RecursionError):
        return None
    return found


def plain_text(value: bytes | None) -> str:
    """Returns bytes as a text to search in; bytes that are not UTF-8 are replaced."""
    return "" if value is None else value[:DECODED_BYTES].decode(errors="replace")


def _cut(kind: str, text: str, value: bytes, length: int, note: str = "") -> Shown:
    return Shown(kind, text[:length], len(value), len(text) > length, note)


def _written(value: object, is_indented: bool) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2 if is_indented else None)


def _json(value: bytes, is_indented: bool) -> str | None:
    if value[:1] not in b"{[":
        return None
    try:
        return _written(json.loads(value), is_indented)
    except (ValueError, RecursionError):
        return None
