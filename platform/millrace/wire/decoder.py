"""Primitive types of the protocol, read one after the other: the counterpart of `encoder`.

For messages and stored records that `kio` does not know. CorruptRecordError for bytes that are cut short, lengths that
can't be, and text that is not UTF-8.
"""

from __future__ import annotations

from millrace.errors import CorruptRecordError
from millrace.wire.encoder import INT16, INT32, INT64

MAX_VARINT_BYTES = 5


class Decoder:
    """A position in bytes; every call reads one value and moves on."""

    __slots__ = ("_data", "_flexible", "position")

    def __init__(self, data: bytes | memoryview, position: int = 0, *, flexible: bool = False) -> None:
        self._data = memoryview(data)
        self._flexible = flexible
        self.position = position

    def int16(self) -> int:
        """Big-endian."""
        return int(INT16.unpack(self._take(2))[0])

    def int32(self) -> int:
        """Big-endian."""
        return int(INT32.unpack(self._take(4))[0])

    def int64(self) -> int:
        """Big-endian."""
        return int(INT64.unpack(self._take(8))[0])

    def string(self) -> str:
        """Text that may not be null."""
        text = self.nullable_string()
        if text is None:
            raise CorruptRecordError(f"null at {self.position} where a string belongs")
        return text

    def nullable_string(self) -> str | None:
        """Text or None."""
        length = self._compact_length() if self._flexible else self._plain_length(self.int16())
        if length < 0:
            return None
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptRecordError(f"the string before {self.position} is not UTF-8: {error}") from error

    def bytes_(self) -> bytes:
        """Bytes that may not be null."""
        length = self._compact_length() if self._flexible else self._plain_length(self.int32())
        if length < 0:
            raise CorruptRecordError(f"null at {self.position} where bytes belong")
        return bytes(self._take(length))

    def array_length(self) -> int:
        """How many elements follow; none for null. No more than there are bytes left."""
        length = self._compact_length() if self._flexible else self._plain_length(self.int32())
        if length > len(self._data) - self.position:
            raise CorruptRecordError(f"{length} elements at {self.position} can't be in {len(self._data)} bytes")
        return max(length, 0)

    def tagged_fields(self) -> None:
        """Pass over the end of a structure; nothing in plain versions."""
        if self._flexible:
            for _ in range(self.unsigned_varint()):
                self.unsigned_varint()
                self._take(self.unsigned_varint())

    def unsigned_varint(self) -> int:
        """One to five bytes, seven bits each, the lowest first."""
        value = 0
        for index in range(MAX_VARINT_BYTES):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value
        raise CorruptRecordError(f"variable-length integer before {self.position} is longer than 32 bits")

    def _compact_length(self) -> int:
        return self.unsigned_varint() - 1

    def _plain_length(self, length: int) -> int:
        if length < -1:
            raise CorruptRecordError(f"length {length} before {self.position}")
        return length

    def _take(self, size: int) -> memoryview:
        end = self.position + size
        if end > len(self._data):
            raise CorruptRecordError(f"{size} bytes at {self.position} run over the {len(self._data)} that there are")
        taken = self._data[self.position : end]
        self.position = end
        return taken
