"""Bytes as text that can be shown: as they are, where they are text, else as lines in hexadecimal."""

from __future__ import annotations

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
