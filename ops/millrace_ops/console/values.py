"""What a key, a value or a header of a record looks like on a page: its kind, a text, and what is wrong with it.

    null, empty       as such
    Avro, Protobuf,   a value in Confluent's wire format, by its schema in the registry, where there is one
    JSON              … or bytes that are a JSON object or array, in one line, or indented
    text              other UTF-8 without control characters
    bytes             all else, in hexadecimal

Bytes are decoded up to DECODED_BYTES, and a text is cut to the length that is asked for.
"""

from __future__ import annotations

import json
from typing import NamedTuple, Protocol

from millrace.errors import MillraceError
from millrace.json_values import JsonValue
from millrace_ops.record_values.shown import hex_lines, shown_text

DECODED_BYTES = 1 << 20
HEX_BYTES = 512
FRAMED = 0  # the first byte of Confluent's wire format
FRAME_BYTES = 5


class Shown(NamedTuple):
    """What is shown of some bytes; `note` says why they are not decoded, `is_cut` that the text goes on."""

    kind: str
    text: str
    size_bytes: int
    is_cut: bool = False
    note: str = ""


class Decoder(Protocol):
    """Decodes values by their schemas."""

    def decode(self, value: bytes) -> JsonValue:
        """Returns the value as JSON has it; raises a MillraceError where that is not possible."""
        ...


def shown(value: bytes | None, length: int, decoder: Decoder | None = None, *, is_indented: bool = False) -> Shown:
    """Returns what is shown of bytes, in a text of `length` at most."""
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


def plain_text(value: bytes | None) -> str:
    """Returns the text in which a search looks: the bytes as far as they are UTF-8."""
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
