"""Decoding of what stored records of consumer groups have beyond primitive types: ids, arrays of structs, tags.

Values are flexible (KIP-482): lengths are unsigned varints of length + 1, and every struct ends with tagged fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from millrace.wire.decoder import Decoder

Item = TypeVar("Item")


class FlexibleDecoder(Decoder):
    """A position in a record's value. Reading raises CorruptRecordError where the value is cut short or impossible."""

    __slots__ = ()

    def __init__(self, data: bytes) -> None:
        super().__init__(data, flexible=True)

    def int8(self) -> int:
        """Reads a signed byte."""
        return int.from_bytes(self._take(1), signed=True)

    def uuid(self) -> UUID:
        """Reads sixteen bytes as an id."""
        return UUID(bytes=bytes(self._take(16)))

    def array(self, item: Callable[[], Item]) -> list[Item]:
        """Reads an array of what `item` reads."""
        return [item() for _ in range(self.array_length())]

    def structs(self, item: Callable[[], Item]) -> list[Item]:
        """Reads an array of structs and skips their tagged fields."""

        def struct() -> Item:
            value = item()
            self.tagged_fields()
            return value

        return self.array(struct)

    def tagged(self) -> dict[int, bytes]:
        """Reads the end of a struct: returns its optional fields by their tags."""
        fields = {}
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            fields[tag] = bytes(self._take(self.unsigned_varint()))
        return fields
