"""Reads primitive types of the protocol one after the other: the counterpart of `encoder`.

It serves the messages of the hot path, and messages and stored records that `kio` has no schema for. Bytes that are cut
short, impossible lengths and text that is not UTF-8 raise the error that the decoder was made with.
"""

from __future__ import annotations

import struct
from uuid import UUID

from millrace.errors import CorruptRecordError, MillraceError
from millrace.wire.encoder import INT16, INT32, INT64, MAX_STRING_BYTES

MAX_VARINT_BYTES = 5
MAX_ELEMENTS = 64_000  # in all arrays of a client's message: nobody else runs for the 15 ms in which they are freed
UUID_BYTES = 16
NULL = -1


class Decoder:
    """Reads a message from bytes; every call reads the next value and moves the position behind it.

    Args:
        data: The message; slices of it are views, not copies.
        position: Where to begin.
        flexible: Whether lengths are compact and structures end with tagged fields (KIP-482).
        error: The class of error that bad bytes raise, such as MalformedRequestError.
    """

    __slots__ = ("_data", "_elements", "_error", "_flexible", "position")

    def __init__(
        self,
        data: bytes | memoryview,
        position: int = 0,
        *,
        flexible: bool = False,
        error: type[MillraceError] = CorruptRecordError,
    ) -> None:
        self._data = memoryview(data)
        self._elements = 0
        self._flexible = flexible
        self._error = error
        self.position = position

    def boolean(self) -> bool:
        """Reads one byte, of which 0 is False."""
        return self._byte() != 0

    def int8(self) -> int:
        """Reads a signed integer of one byte."""
        byte = self._byte()
        return byte - 256 if byte > 127 else byte

    def int16(self) -> int:
        """Reads a signed integer of two bytes, big-endian."""
        return self._integer(INT16)

    def int32(self) -> int:
        """Reads a signed integer of four bytes, big-endian."""
        return self._integer(INT32)

    def int64(self) -> int:
        """Reads a signed integer of eight bytes, big-endian."""
        return self._integer(INT64)

    def uuid(self) -> UUID:
        """Reads a UUID of sixteen bytes."""
        return UUID(bytes=bytes(self._take(UUID_BYTES)))

    def string(self) -> str:
        """Reads a string that may not be null; null raises the decoder's error."""
        text = self.nullable_string()
        if text is None:
            raise self._error(f"null at {self.position} where a string belongs")
        return text

    def nullable_string(self) -> str | None:
        """Reads a string; returns None for null."""
        length = self._varint_length() if self._flexible else self._length(INT16)
        if length == NULL:
            return None
        if length > MAX_STRING_BYTES:
            raise self._error(f"the string at {self.position} has {length} bytes; the limit is {MAX_STRING_BYTES}")
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise self._error(f"the string before {self.position} is not UTF-8: {error}") from error

    def bytes_(self) -> bytes:
        """Reads bytes that may not be null, and returns a copy; null raises the decoder's error."""
        view = self.nullable_view()
        if view is None:
            raise self._error(f"null at {self.position} where bytes belong")
        return bytes(view)

    def nullable_view(self) -> memoryview | None:
        """Reads bytes, and returns them as a view of the message; None for null."""
        length = self._varint_length() if self._flexible else self._length(INT32)
        return None if length == NULL else self._take(length)

    def skip(self, size: int) -> None:
        """Moves the position behind the next `size` bytes."""
        self._take(size)

    def array_length(self) -> int:
        """Reads the number of elements of an array, 0 for null; it is at most the number of bytes left."""
        length = self._varint_length() if self._flexible else self._length(INT32)
        if length > len(self._data) - self.position:
            raise self._error(f"{length} elements at {self.position} do not fit in {len(self._data)} bytes")
        self._count_elements(length)
        return 0 if length == NULL else length

    def tagged_fields(self) -> None:
        """Skips the tagged fields at the end of a structure; does nothing in versions that are not flexible."""
        if self._flexible and (count := self.unsigned_varint()):
            self._read_tagged_fields(count)

    def read_tagged_fields(self) -> dict[int, memoryview]:
        """Reads the tagged fields at the end of a structure; returns {tag: the field's bytes}."""
        if not self._flexible or not (count := self.unsigned_varint()):
            return {}
        return self._read_tagged_fields(count)

    def _read_tagged_fields(self, count: int) -> dict[int, memoryview]:
        self._count_elements(count)
        fields: dict[int, memoryview] = {}
        for _ in range(count):
            tag = self.unsigned_varint()
            fields[tag] = self._take(self.unsigned_varint())
        return fields

    def _count_elements(self, count: int) -> None:
        self._elements += count
        if self._elements > MAX_ELEMENTS:
            raise self._error(f"{count} elements at {self.position} are more than {MAX_ELEMENTS} in all")

    def unsigned_varint(self) -> int:
        """Reads an unsigned integer of one to five bytes with seven bits each, the lowest bits first."""
        byte = self._byte()
        if byte < 0x80:
            return byte
        value, shift = byte & 0x7F, 7
        for _ in range(MAX_VARINT_BYTES - 1):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise self._error(f"variable-length integer before {self.position} is longer than 32 bits")

    def _byte(self) -> int:
        position = self.position
        try:
            byte = self._data[position]
        except IndexError:
            raise self._too_short(1) from None
        self.position = position + 1
        return byte

    def _integer(self, form: struct.Struct) -> int:
        position = self.position
        try:
            value: int = form.unpack_from(self._data, position)[0]
        except struct.error:
            raise self._too_short(form.size) from None
        self.position = position + form.size
        return value

    def _varint_length(self) -> int:
        return self.unsigned_varint() - 1

    def _length(self, form: struct.Struct) -> int:
        length = self._integer(form)
        if length < NULL:
            raise self._error(f"the length before {self.position} is {length}")
        return length

    def _take(self, size: int) -> memoryview:
        end = self.position + size
        if end > len(self._data):
            raise self._too_short(size)
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def _too_short(self, size: int) -> MillraceError:
        return self._error(f"{size} bytes at {self.position} run past the end at {len(self._data)}")
