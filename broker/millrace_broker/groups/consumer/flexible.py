"""Structs of Kafka's stored records, read one field after the other.

key     plain: a string has an i16 length
value   flexible (KIP-482): lengths are unsigned varints of length + 1, and every struct ends with tagged fields
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from millrace.errors import CorruptRecordError

Item = TypeVar("Item")
INT8, INT16, INT32, INT64 = (struct.Struct(form) for form in (">b", ">h", ">i", ">q"))


class Reader:
    """A position in a record's bytes. CorruptRecordError where they are cut short or can't be."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def int8(self) -> int:
        """Signed."""
        return self._number(INT8)

    def int16(self) -> int:
        """Big-endian."""
        return self._number(INT16)

    def int32(self) -> int:
        """Big-endian."""
        return self._number(INT32)

    def int64(self) -> int:
        """Big-endian."""
        return self._number(INT64)

    def uuid(self) -> UUID:
        """Sixteen bytes."""
        return UUID(bytes=self.raw(16))

    def plain_string(self) -> str:
        """A string with an i16 length."""
        return self._text(self.raw(self.int16()))

    def string(self) -> str:
        """A string that is not null."""
        return self._text(self.bytes_())

    def optional_string(self) -> str | None:
        """A string or null."""
        length = self.unsigned_varint() - 1
        return None if length < 0 else self._text(self.raw(length))

    def bytes_(self) -> bytes:
        """Bytes that are not null."""
        return self.raw(self.unsigned_varint() - 1)

    def array(self, item: Callable[[], Item]) -> list[Item]:
        """An array that is not null, of what `item` reads."""
        count = self.unsigned_varint() - 1
        if not 0 <= count <= len(self._data):
            raise CorruptRecordError(f"an array of {count} in a record of {len(self._data)} bytes")
        return [item() for _ in range(count)]

    def structs(self, item: Callable[[], Item]) -> list[Item]:
        """An array of structs, whose tagged fields are passed over."""

        def struct_() -> Item:
            value = item()
            self.tagged_fields()
            return value

        return self.array(struct_)

    def tagged_fields(self) -> dict[int, bytes]:
        """The end of a struct: its optional fields by their tags."""
        fields = {}
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            fields[tag] = self.raw(self.unsigned_varint())
        return fields

    def unsigned_varint(self) -> int:
        """Seven bits a byte, the lowest first; five bytes at most."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise CorruptRecordError("a length of a record does not end")

    def raw(self, size: int) -> bytes:
        """The next `size` bytes."""
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise CorruptRecordError(f"a field of {size} bytes at {self._position} of {len(self._data)}")
        data = self._data[self._position : end]
        self._position = end
        return data

    def _number(self, form: struct.Struct) -> int:
        return int(form.unpack(self.raw(form.size))[0])

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise CorruptRecordError(f"a text of a record is not UTF-8: {error}") from None
