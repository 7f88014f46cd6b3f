"""Writes primitive types of the protocol one after the other, for plain and for flexible versions.

plain      string i16 length, array i32 count, bytes i32 length; null is -1
flexible   unsigned varint of length + 1; null is 0; every struct ends with its tagged fields (KIP-482)
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, cast
from uuid import UUID

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")


class FileRegion(Protocol):
    """A part of a message that is a range of a file; it is sent from the file when the socket has room."""

    def __len__(self) -> int:
        """Returns the size of the region in bytes."""

    def read(self, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Returns the region's bytes from `start` on, at most `size_bytes`."""

    def file(self) -> AbstractContextManager[tuple[int, int]]:
        """Lends the file's descriptor and the region's position in it, for `sendfile`."""


Part = bytes | memoryview | FileRegion
Parts = list[Part]


def contents(part: Part) -> bytes | memoryview:
    """Returns the bytes of a part of a message; reads them from the file if the part is a range of one."""
    return part if isinstance(part, bytes | memoryview) else part.read()


MAX_STRING_BYTES = 0x7FFF  # in flexible versions too, as in Kafka: plain ones have no room for more
MAX_MESSAGE_CHARACTERS = 1000


def shortened(message: str | None) -> str | None:
    """Returns an error message cut to the length of a string field, as it may quote a very long name."""
    if message is None or len(message) <= MAX_MESSAGE_CHARACTERS:
        return message
    return f"{message[:MAX_MESSAGE_CHARACTERS]}…"


def unsigned_varint(value: int) -> bytes:
    """Returns an unsigned integer as one to five bytes with seven bits each, the lowest bits first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Encoder:
    """Builds a message as a list of `parts`, which go to the socket as they are: record bytes are never copied."""

    __slots__ = ("flexible", "parts")

    def __init__(self, *, flexible: bool) -> None:
        self.flexible = flexible
        self.parts: Parts = []

    def joined(self) -> bytes:
        """Returns the message as one bytes object; none of its parts may be in a file."""
        return b"".join(cast("list[bytes]", self.parts))

    def raw(self, value: bytes | memoryview) -> None:
        """Writes bytes as they are, without a length."""
        self.parts.append(value)

    def int16(self, value: int) -> None:
        """Writes a signed integer as two bytes, big-endian."""
        self.parts.append(INT16.pack(value))

    def int32(self, value: int) -> None:
        """Writes a signed integer as four bytes, big-endian."""
        self.parts.append(INT32.pack(value))

    def int64(self, value: int) -> None:
        """Writes a signed integer as eight bytes, big-endian."""
        self.parts.append(INT64.pack(value))

    def boolean(self, value: bool) -> None:
        """Writes one byte: 0 or 1."""
        self.parts.append(b"\x01" if value else b"\x00")

    def uuid(self, value: UUID) -> None:
        """Writes a UUID as its sixteen bytes."""
        self.parts.append(value.bytes)

    def string(self, value: str | None) -> None:
        """Writes a string in UTF-8, after its length; None is written as null."""
        data = None if value is None else value.encode()
        if self.flexible:
            self.parts.append(b"\x00" if data is None else unsigned_varint(len(data) + 1) + data)
        else:
            self.parts.append(b"\xff\xff" if data is None else INT16.pack(len(data)) + data)

    def bytes_(self, value: Part) -> None:
        """Writes bytes, or a range of a file, after their length."""
        self.parts.append(unsigned_varint(len(value) + 1) if self.flexible else INT32.pack(len(value)))
        self.parts.append(value)

    def array_length(self, count: int) -> None:
        """Writes the number of elements of an array, which the caller writes next."""
        self.parts.append(unsigned_varint(count + 1) if self.flexible else INT32.pack(count))

    def int32_array(self, values: Sequence[int]) -> None:
        """Writes an array of int32: its length, then the values."""
        self.array_length(len(values))
        self.parts.append(struct.pack(f">{len(values)}i", *values))

    def no_tagged_fields(self) -> None:
        """Ends a structure without tagged fields: a zero byte in flexible versions, nothing in others."""
        if self.flexible:
            self.parts.append(b"\x00")

    def null_array(self) -> None:
        """Writes an array that is null, in place of its length and elements."""
        self.parts.append(b"\x00" if self.flexible else b"\xff\xff\xff\xff")

    def tagged_fields(self, fields: Mapping[int, bytes]) -> None:
        """Ends a structure of a flexible version with tagged fields, given as {tag: the field's bytes}."""
        self.parts.append(unsigned_varint(len(fields)))
        for tag, content in sorted(fields.items()):
            self.parts.append(unsigned_varint(tag) + unsigned_varint(len(content)) + content)
